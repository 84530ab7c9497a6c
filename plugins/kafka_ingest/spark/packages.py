"""The interpreter that runs this, and the packages that a load imports; also on executors, where they may be missing.

So nothing but the standard library is imported here before it is asked for.
"""

from __future__ import annotations

import importlib
import json
import platform
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


def this_interpreter() -> InterpreterFacts:
    """Import each package, because one that is installed may lack a native library; return versions and reasons."""
    versions: list[tuple[str, str]] = []
    faults: list[tuple[str, str]] = []
    for name in OLDEST_PACKAGES:
        try:
            # psycopg2 says how it was built behind a space.
            versions.append((name, str(importlib.import_module(name).__version__).split()[0]))
        except ImportError as error:
            faults.append((name, " ".join(str(error).split())))
    return InterpreterFacts(socket.gethostname(), platform.python_version(), tuple(versions), tuple(faults))


def write_report(path: Path, interpreters: Iterable[InterpreterFacts]) -> None:
    """Write what the executors said, for the process that submitted the job."""
    path.write_text(json.dumps([asdict(facts) for facts in interpreters]), encoding="utf-8")


def read_report(path: Path) -> Sequence[InterpreterFacts] | None:
    """Return what :func:`write_report` wrote; ``None`` when the job did not come so far."""
    if not path.is_file():
        return None
    return [_facts(record) for record in json.loads(path.read_text(encoding="utf-8"))]


def _facts(record: dict[str, Any]) -> InterpreterFacts:
    versions = tuple((name, version) for name, version in record["versions"])
    faults = tuple((name, reason) for name, reason in record["faults"])
    return InterpreterFacts(record["host"], record["python"], versions, faults)


#: What a load imports, as modules, and the oldest versions that will do (pyproject.toml).
OLDEST_PACKAGES: Mapping[str, str] = {
    "confluent_kafka": "2.8",
    "msgspec": "0.19",
    "psycopg2": "2.9.9",
    "pyarrow": "17",
    "pyspark": "4.0",
}


OLDEST_PYTHON = "3.11"


@dataclass(frozen=True, slots=True)
class InterpreterFacts:
    """A Python interpreter, and the packages that a load imports.

    Attributes:
        host: Machine.
        python: Version of Python.
        versions: Version by package, for each that can be imported.
        faults: Reason by package, for each that cannot.
    """

    host: str
    python: str
    versions: tuple[tuple[str, str], ...]
    faults: tuple[tuple[str, str], ...] = ()
