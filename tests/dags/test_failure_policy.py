"""What each family of errors means to Airflow."""

from __future__ import annotations

import logging
import traceback
from datetime import UTC, datetime, timedelta

import pytest
from airflow.exceptions import AirflowRescheduleException
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from kafka_ingest import errors
from kafka_ingest.errors import Busy, Fenced, IngestError, RetryLater, StopAndCall
from kafka_ingest.operators.context import airflow_exception, airflow_outcome

NOON = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
CLASSES = [found for found in vars(errors).values() if isinstance(found, type) and issubclass(found, IngestError)]
RETRIED = [cls for cls in CLASSES if issubclass(cls, RetryLater | Fenced)]
STOPPED = [cls for cls in CLASSES if issubclass(cls, StopAndCall)]


@pytest.mark.parametrize("cls", RETRIED)
def test_a_fault_that_may_pass_is_retried(cls: type[IngestError]) -> None:
    outcome = airflow_exception(cls("broker is away"), NOON)
    assert type(outcome) is AirflowException


@pytest.mark.parametrize("cls", STOPPED)
def test_a_fault_that_needs_a_person_is_not_retried(cls: type[IngestError]) -> None:
    assert type(airflow_exception(cls("offsets are gone"), NOON)) is AirflowFailException


def test_a_held_pipeline_is_asked_again_in_half_a_minute_without_a_retry() -> None:
    outcome = airflow_exception(Busy("another request holds the pipeline"), NOON)
    assert isinstance(outcome, AirflowRescheduleException)
    assert outcome.reschedule_date == NOON + timedelta(seconds=30)


def test_the_text_says_what_expected_found_and_next() -> None:
    fault = errors.OffsetsExpired(
        "the log starts above the committed offset",
        expected="orders[3] at 120 or below",
        found="log start offset 500",
        next_command="python -m kafka_ingest plan orders --dry-run",
        pipeline="orders",
        batch_id="b1",
    )
    assert str(airflow_exception(fault, NOON)) == (
        "OffsetsExpired: the log starts above the committed offset (pipeline orders, batch b1)\n"
        "  expected: orders[3] at 120 or below\n"
        "  found: log start offset 500\n"
        "  next: python -m kafka_ingest plan orders --dry-run"
    )


def test_the_cause_inside_the_code_is_not_shown_to_the_user() -> None:
    fault = errors.DatabaseUnavailable("PostgreSQL cannot be reached")
    fault.__cause__ = ConnectionRefusedError("secret://user:password@host")
    log = logging.getLogger("task")
    with pytest.raises(AirflowException) as caught, airflow_outcome(log):
        raise fault
    shown = "".join(traceback.format_exception(caught.value))
    assert "secret://" not in shown
    assert "ConnectionRefusedError" not in shown
    assert str(caught.value) == "DatabaseUnavailable: PostgreSQL cannot be reached"


def test_an_error_is_left_to_airflow_which_logs_what_is_raised(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), pytest.raises(AirflowException), airflow_outcome(logging.getLogger("task")):
        raise errors.DatabaseUnavailable("PostgreSQL cannot be reached")
    assert caplog.records == []


def test_who_holds_the_pipeline_is_logged_since_airflow_does_not(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("task")
    with caplog.at_level(logging.INFO), pytest.raises(AirflowRescheduleException), airflow_outcome(log):
        raise Busy("another request holds the pipeline")
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        (
            "INFO",
            (
                "Busy: another request holds the pipeline\n"
                "  This task asks again by itself, every 30 seconds, without using up a retry."
            ),
        )
    ]


def test_a_fault_of_the_package_keeps_its_own_class() -> None:
    with pytest.raises(ZeroDivisionError), airflow_outcome(logging.getLogger("task")):
        raise ZeroDivisionError
