"""Measure the house, the product's packages, and fail past its limits: ``python tools/house.py``.

The limits keep what a reader pays for: files, import arrows, chains of them, long files and functions. A limit goes
down with what it measures, to its goal. It goes up only in a commit that brings a new subject, and says why.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import quantiles

ROOT = Path(__file__).resolve().parent.parent
#: The product's packages: folder on the path, name.
PACKAGES = (("plugins", "kafka_ingest"), (".", "spark_jobs"))
_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_COUNT_MODULES = """
import runpy, sys
runpy.run_path("dags/kafka_to_postgres.py")
print(sum(name.partition(".")[0] == "kafka_ingest" for name in sys.modules))
"""


@dataclass(frozen=True, slots=True)
class Measure:
    """One line of the table: what was counted, the most that may be, and the most that is wanted."""

    name: str
    value: float
    limit: float
    goal: float
    unit: str = ""

    def __str__(self) -> str:
        mark = "" if self.value <= self.limit else "  <- too much"
        numbers = "".join(f"{number:>10,.5g}{self.unit:2}" for number in (self.value, self.limit, self.goal))
        return f"{self.name:44}{numbers}{mark}"


@dataclass(frozen=True, slots=True)
class Module:
    """A source file: its lines, those with code, those of imports, and its tree."""

    lines: int
    code: frozenset[int]
    import_lines: frozenset[int]
    tree: ast.Module


def main() -> int:
    """Print the table; return 1 when a limit is passed."""
    modules = {name: _module(path) for name, path in _paths()}
    measures = [*_sizes(modules), *_graph(modules), *_shapes(modules)]
    print(f"{'the house':44}{'now':>10}  {'at most':>10}  {'goal':>10}")
    print("\n".join(map(str, measures)))
    return int(any(measure.value > measure.limit for measure in measures))


def _paths() -> Iterator[tuple[str, Path]]:
    for folder, package in PACKAGES:
        for path in sorted((ROOT / folder / package).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def _module(path: Path) -> Module:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    with tokenize.open(path) as file:
        tokens = [token for token in tokenize.generate_tokens(file.readline) if token.type not in _NO_CODE]
    code = {line for token in tokens for line in range(token.start[0], token.end[0] + 1)} - _docstring_lines(tree)
    imports = {line for node in ast.walk(tree) if _is_import(node) for line in _lines_of(node)}
    return Module(len(text.splitlines()), frozenset(code), frozenset(imports & code), tree)


def _docstring_lines(tree: ast.Module) -> set[int]:
    """Return the lines of docstrings, also of those that describe an attribute."""
    texts = (node for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    return {line for node in texts if isinstance(node.value, ast.Constant) for line in _lines_of(node)}


def _is_import(node: ast.AST) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def _lines_of(node: ast.AST) -> range:
    assert isinstance(node, ast.stmt)  # noqa: S101 - callers pass statements
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def _sizes(modules: Mapping[str, Module]) -> Iterator[Measure]:
    code = sum(len(module.code) for module in modules.values())
    imports = sum(len(module.import_lines) for module in modules.values())
    yield Measure("files over 2 lines", sum(module.lines > 2 for module in modules.values()), 159, 80)
    yield Measure("code lines (no blank, comment, docstring)", code, 29_270, 13_200)
    yield Measure("import lines, share of code", 100 * imports / code, 10.2, 10, " %")


def _graph(modules: Mapping[str, Module]) -> Iterator[Measure]:
    edges = {name: _imported(module.tree, modules) - {name} for name, module in modules.items()}
    importers = Counter(target for targets in edges.values() for target in targets)
    yield Measure("import edges", sum(map(len, edges.values())), 912, 410)
    yield Measure("modules with one importer", sum(count == 1 for count in importers.values()), 43, 14)
    yield Measure("longest chain of imports", _longest_chain(edges), 13, 11)
    yield Measure("modules loaded to parse the main DAG file", _modules_at_parse(), 26, 25)


def _imported(tree: ast.Module, modules: Mapping[str, Module]) -> set[str]:
    """Return the modules of the product that a module imports when it runs, at its top or in a function."""
    for_types = {id(node) for block in ast.walk(tree) if _is_for_types(block) for node in ast.walk(block)}
    found: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & modules.keys()
        elif isinstance(node, ast.ImportFrom) and node.module and node.module in modules:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names & modules.keys() or {node.module}
    return found


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _longest_chain(edges: Mapping[str, set[str]]) -> int:
    @cache
    def length(name: str) -> int:
        return 1 + max((length(target) for target in edges[name]), default=0)

    return max(map(length, edges))


def _modules_at_parse() -> int:
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "PYTHONPATH": "plugins", "AIRFLOW_HOME": home}
        done = subprocess.run(
            [sys.executable, "-c", _COUNT_MODULES],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
    return int(done.stdout.split()[-1])


def _shapes(modules: Mapping[str, Module]) -> Iterator[Measure]:
    files = [module.lines for module in modules.values() if module.lines > 2]
    functions = [length for module in modules.values() for length in _function_lengths(module)]
    yield Measure("file lines, p90", _p90(files), 479, 450)
    yield Measure("file lines, longest", max(files), 627, 620)
    yield Measure("function lines, p90", _p90(functions), 15, 15)
    yield Measure("function lines, longest", max(functions), 45, 45)


def _function_lengths(module: Module) -> Iterator[int]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield len(module.code.intersection(_lines_of(node)))


def _p90(values: Sequence[int]) -> float:
    return quantiles(values, n=10)[-1]


if __name__ == "__main__":
    sys.exit(main())
