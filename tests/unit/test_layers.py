"""What a list of forbidden libraries cannot say: core and steps import the standard library, and nothing else."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "plugins" / "kafka_ingest"
ALLOWED = {"core": {"kafka_ingest.core"}, "steps": {"kafka_ingest.core", "kafka_ingest.steps"}}


@pytest.mark.parametrize("layer", ALLOWED)
def test_the_layer_imports_the_standard_library_and_the_layers_below_only(layer: str) -> None:
    allowed = ALLOWED[layer]
    strangers = [
        f"{path.name}: {module}"
        for path in (PACKAGE / layer).rglob("*.py")
        for module in _imported(path)
        if module.partition(".")[0] not in sys.stdlib_module_names and ".".join(module.split(".")[:2]) not in allowed
    ]
    assert strangers == []


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")
