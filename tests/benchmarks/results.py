"""Results as JSON files, one for each comparison: what docs/benchmarks.md is written from."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sandbox.paths import CHECKOUT

RESULTS = CHECKOUT / "tests" / "benchmarks" / "results"


def write_results(name: str, found: Mapping[str, Any], folder: Path = RESULTS) -> None:
    """Writes the results of one comparison over older ones."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    moment = datetime.now(UTC).isoformat(timespec="seconds")
    document = {"name": name, "measured_at": moment, **found}
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"written: {path}", file=sys.stderr)


def read_results(name: str, folder: Path = RESULTS) -> dict[str, Any]:
    """Reads the results of one comparison.

    Raises:
        FileNotFoundError: It was never measured.
    """
    document: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return document
