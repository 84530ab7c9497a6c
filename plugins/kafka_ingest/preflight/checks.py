"""What every check says: one line with a verdict, what was found, and what mends it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from kafka_ingest.errors import IngestError


class Verdict(StrEnum):
    """How a check came out.

    ``fail``: runs stop, or lose records, until somebody acts. ``warn``: runs work, but something that can be expected
    to happen (a lost broker, a missed run) would cost records, or a check could not be made.
    """

    PASS = "pass"  # noqa: S105 (no password)
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One line of the table.

    Attributes:
        check: What was looked at.
        result: How it came out.
        found: What is there.
        fix: What to run or to change; empty where nothing is to be done.
    """

    check: str
    result: Verdict
    found: str
    fix: str = ""


def failed(check: str, fault: IngestError) -> CheckResult:
    """Return the result of a check that could not get an answer."""
    found = f"{fault.what}: {fault.found}" if fault.found else fault.what
    return CheckResult(check, Verdict.FAIL, found, fault.next_command)


def answered(check: str, judge: Callable[[], Iterable[CheckResult]]) -> Iterator[CheckResult]:
    """Yield what a judge says; where it gets no answer, a line of this name that says why."""
    try:
        yield from judge()
    except IngestError as fault:
        yield failed(check, fault)


def is_ready(results: Iterable[CheckResult]) -> bool:
    """Whether no check failed; warnings do not count."""
    return all(result.result is not Verdict.FAIL for result in results)
