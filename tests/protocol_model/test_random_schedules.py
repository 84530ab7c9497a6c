"""Thousands of random schedules of plans, loads, audits, crashes, zombies, and changes of log and database."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.protocol_model.driven_steps import drive_steps
from tests.protocol_model.model import ProtocolModel
from tests.protocol_model.schedule import tally_of


def test_no_schedule_loses_or_doubles_a_record(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Always the same schedules; ``make model-deep`` runs twenty times as many, other ones each time."""
    drive_steps(monkeypatch)
    is_deep = settings.get_current_profile_name() == "deep"
    run_state_machine_as_test(
        ProtocolModel,
        settings=settings(
            max_examples=20_000 if is_deep else 1_000,
            stateful_step_count=50,
            derandomize=not is_deep,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    with capsys.disabled():
        pytestconfig.get_terminal_writer().line(tally_of(ProtocolModel))
