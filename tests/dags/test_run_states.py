"""What the planner learns from Airflow about the run that holds a pipeline."""

from __future__ import annotations

from typing import Any
from unittest.mock import create_autospec

import pytest
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import DagRunStateResult, ErrorResponse
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

from kafka_ingest.operators.lookup import AirflowRunStates
from kafka_ingest.protocol.batch import Request

HOLDER = Request("orders", "manual__1")


def run_states(**answer: Any) -> AirflowRunStates:
    task_instance = create_autospec(RuntimeTaskInstance, instance=True)
    task_instance.get_dagrun_state.configure_mock(**answer)
    return AirflowRunStates(task_instance)


@pytest.mark.parametrize(
    ("state", "is_finished"), [("success", True), ("failed", True), ("running", False), ("queued", False)]
)
def test_a_run_is_finished_when_airflow_says_so(state: str, is_finished: bool) -> None:
    answer = DagRunStateResult.model_validate({"state": state}).state
    assert run_states(return_value=answer).is_finished(HOLDER) is is_finished


def test_a_run_that_airflow_does_not_know_is_not_finished() -> None:
    unknown = AirflowRuntimeError(ErrorResponse(error=ErrorType.GENERIC_ERROR))
    assert run_states(side_effect=unknown).is_finished(Request("cli", "1")) is False
