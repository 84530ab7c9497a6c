"""The protocol imports the standard library and the ground: a list of forbidden libraries cannot say it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "plugins" / "kafka_ingest"
GROUND = {f"kafka_ingest.{name}" for name in ("errors", "settings", "column_types", "secrets", "times")}


def test_the_protocol_imports_the_standard_library_and_the_ground_only() -> None:
    strangers = [
        f"{path.name}: {module}"
        for path in (PACKAGE / "protocol").rglob("*.py")
        for module in _imported(path)
        if module.partition(".")[0] not in sys.stdlib_module_names
        and module not in GROUND
        and ".".join(module.split(".")[:2]) != "kafka_ingest.protocol"
    ]
    assert strangers == []


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")
