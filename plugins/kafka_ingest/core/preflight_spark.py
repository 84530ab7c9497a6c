"""Judges Spark: whether its master can be reached, and the packages of the interpreters that tasks run on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from kafka_ingest.core.preflight import CheckResult, Verdict
from kafka_ingest.core.preflight_facts import InterpreterFacts, MasterFacts

#: What a load imports, as modules, and the oldest versions that will do (pyproject.toml).
OLDEST_PACKAGES: Mapping[str, str] = {
    "confluent_kafka": "2.8",
    "msgspec": "0.19",
    "psycopg2": "2.9.9",
    "pyarrow": "17",
    "pyspark": "4.0",
}
OLDEST_PYTHON = "3.11"

_PACKAGES = "python packages"


def master_result(master: MasterFacts) -> CheckResult:
    """Judges whether the master can be reached."""
    if not master.unreachable:
        found = f"{master.master} accepts connections" if master.reachable else f"{master.master}: on this machine"
        return CheckResult("spark", Verdict.PASS, found)
    # Of several masters one leads and the others stand by: one that is down is a warning.
    verdict = Verdict.WARN if master.reachable else Verdict.FAIL
    fix = "start it, or correct host and port of the Spark connection; this machine must reach it"
    return CheckResult("spark", verdict, f"{master.master}: {'; '.join(master.unreachable)}", fix)


def authentication_results(master: MasterFacts) -> Iterator[CheckResult]:
    """Warn of a Spark that serves the passwords which tasks carry to everybody who reaches its ports."""
    if not master.is_authenticated:
        found = f"{master.master}: spark.authenticate is off: who reaches a load's ports can read its passwords"
        fix = 'the cluster\'s secret in the extra of the Spark connection: {"spark.authenticate.secret": "..."}'
        yield CheckResult("spark secret", Verdict.WARN, found, f"{fix}; docs/deploying.md, Where secrets lie")


def not_looked_at(pipeline: str) -> CheckResult:
    """Says that only a job could tell the packages of the executors."""
    fix = f"python -m kafka_ingest preflight {pipeline} --spark"
    return CheckResult(_PACKAGES, Verdict.WARN, "not looked at: it takes a job on the cluster", fix)


def package_results(driver: InterpreterFacts, interpreters: Iterable[InterpreterFacts]) -> Iterator[CheckResult]:
    """Judges every interpreter that tasks run on, against what a load imports and against the driver's Python."""
    for interpreter in sorted(set(interpreters), key=lambda facts: (facts.host, facts.python)):
        faults = [*_python_faults(driver, interpreter), *_package_faults(interpreter)]
        versions = ", ".join(f"{name} {version}" for name, version in interpreter.versions)
        what = f"{interpreter.host}: Python {interpreter.python}"
        if not faults:
            yield CheckResult(_PACKAGES, Verdict.PASS, f"{what}, {versions}")
            continue
        fix = "install them into the Python that tasks run on (spark.pyspark.python); docs/deploying.md, Which packages"
        yield CheckResult(_PACKAGES, Verdict.FAIL, f"{what}: {'; '.join(faults)}", fix)


def _python_faults(driver: InterpreterFacts, interpreter: InterpreterFacts) -> Iterator[str]:
    if _numbers(interpreter.python) < _numbers(OLDEST_PYTHON):
        yield f"Python {OLDEST_PYTHON} or newer is needed"
    # PySpark refuses a worker whose minor version differs from the driver's (PYTHON_VERSION_MISMATCH).
    if _numbers(interpreter.python)[:2] != _numbers(driver.python)[:2]:
        yield f"the driver has Python {driver.python}, and minor versions must be equal"


def _package_faults(interpreter: InterpreterFacts) -> Iterator[str]:
    yield from (f"{name} cannot be imported ({reason})" for name, reason in interpreter.faults)
    for name, version in interpreter.versions:
        oldest = OLDEST_PACKAGES[name]
        if _numbers(version) < _numbers(oldest):
            yield f"{name} {version} is older than {oldest}"


def _numbers(version: str) -> tuple[int, ...]:
    """Gives the leading numbers of a version: 2.9.13 is (2, 9, 13), 4.0.0.dev1 is (4, 0, 0)."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()
