"""What the page says of a pipeline: the worst state that holds, why, and what to press."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from kafka_ingest.errors import ConfigError, DeadLetterReason
from kafka_ingest.forms.change import CHANGES, DISCARD, REPLAY
from kafka_ingest.forms.order import read_order
from kafka_ingest.forms.run import run_options
from kafka_ingest.page.airflow_side import DagFacts
from kafka_ingest.page.links import Action, Links, discard, next_steps, of_batch, of_pipeline, replay
from kafka_ingest.page.rendering import meaning, remedy
from kafka_ingest.page.states import MEANINGS, Standing, State, duration, judge
from kafka_ingest.protocol.batch import OffsetSpan
from tests.page_world import minutes, own_dag, run

LATE_AFTER = timedelta(minutes=15)
LINKS = Links("/team/kafka-ingest")

#: A pipeline that was loaded at minute 0 and has nothing to read; the page is looked at at minute 10.
LOADED: dict[str, Any] = {
    "now": minutes(10),
    "last_batch_id": "b1",
    "last_planned_at": minutes(0),
    "valid_through": minutes(0),
    "lag_offsets": 0,
    "headroom_offsets": 100,
    "headroom_seconds": None,
    "partitions_losing": 0,
    "partitions_short": 0,
    "outstanding_batch_id": None,
    "outstanding_dag_id": None,
    "outstanding_run_id": None,
    "hold_until": None,
    "step": None,
    "staged_offsets": None,
    "total_offsets": None,
    "failed_run_id": None,
    "failed_fault": None,
    "failed_message": None,
    "unresolved_dead_letters": 0,
}
NEVER_LOADED: dict[str, Any] = {
    **LOADED,
    **dict.fromkeys(("last_batch_id", "last_planned_at", "valid_through", "lag_offsets", "headroom_offsets")),
    "partitions_losing": None,
    "partitions_short": None,
}
PLANNED: dict[str, Any] = {
    "outstanding_batch_id": "b2",
    "outstanding_dag_id": "kafka_to_postgres__orders",
    "outstanding_run_id": "r2",
    "step": "stage",
    "staged_offsets": 40,
    "total_offsets": 100,
}
DUE = own_dag("orders", due_at=minutes(0), runs=(run("r1", "success", 0),))


def standing(dag: DagFacts = DUE, **differs: Any) -> Standing:
    """Judge the loaded pipeline with some values of the ledger's row changed."""
    summary = {**LOADED, **differs}
    place = Standing("orders", "warehouse", dag.dag_id, dag, summary["now"], State.UNKNOWN)
    return judge(summary, place, LATE_AFTER)


def titles(one: Standing) -> list[str]:
    return [action.title for action in next_steps(one, LINKS)]


def test_a_pipeline_whose_due_run_has_committed_is_up_to_date_and_asks_for_nothing() -> None:
    one = standing()
    assert (one.state, one.reasons, titles(one)) == (State.UP_TO_DATE, (), [])


def test_records_that_retention_took_come_before_everything_else() -> None:
    one = standing(replace(DUE, runs=(run("r1", "failed", 0),)), partitions_losing=2, headroom_offsets=-1_500)
    assert one.state is State.LOSING
    assert "in 2 partitions" in one.reasons[0]
    assert "1,500 offsets above the committed offset" in one.reasons[0]
    assert titles(one)[0] == "Accept the loss"


def test_short_headroom_says_how_much_time_is_left_and_asks_for_a_run() -> None:
    one = standing(partitions_short=1, headroom_seconds=7_500.0)
    assert one.state is State.LOSING
    assert "in about 2 h 5 min" in one.reasons[0]
    assert titles(one) == ["Start a run"]


def test_failed_runs_in_a_row_are_counted_up_to_the_first_that_did_not_fail() -> None:
    runs = (run("r4", "running", 9), run("r3", "failed", 8), run("r2", "failed", 7), run("r1", "success", 6))
    one = standing(replace(DUE, runs=runs))
    assert one.state is State.FAILING
    assert [failed.run_id for failed in one.failed_runs] == ["r3", "r2"]
    assert one.reasons[0].startswith("The last 2 runs failed")


def test_a_failure_is_told_with_its_tasks_and_the_first_line_of_its_message() -> None:
    failed = run("r2", "failed", 5, ended_at=minutes(6), failed_tasks=("load_batch",))
    message = "BrokerUnavailable: Kafka does not answer\n  next: try again"
    one = standing(replace(DUE, runs=(failed,)), failed_run_id="r2", failed_message=message)
    assert one.reasons[0] == (
        "The last run failed, the newest at 2026-11-30 13:06:02 UTC, in load_batch: "
        "BrokerUnavailable: Kafka does not answer"
    )
    assert titles(one) == ["Clear the run"]


@pytest.mark.parametrize(
    ("fault", "decision"), [("TopicRecreated", "Accept the new topic"), ("OffsetsExpired", "Accept the loss")]
)
def test_a_fault_that_asks_for_a_decision_leads_to_the_form_that_takes_it(fault: str, decision: str) -> None:
    runs = (run("r2", "failed", 5), run("r1", "success", 0))
    one = standing(replace(DUE, runs=runs), failed_run_id="r2", failed_fault=fault)
    assert titles(one) == [decision, "Clear the run"]
    [values, *_] = [conf(action) for action in next_steps(one, LINKS) if action.form]
    read_order({**values, "reason": "why"}, zone="UTC", who="me", request_id="r1")
    assert titles(standing(replace(DUE, runs=runs), failed_run_id="r1", failed_fault=fault)) == ["Clear the run"]


def test_the_message_of_another_run_is_not_told_as_that_of_the_last_one() -> None:
    one = standing(
        replace(DUE, runs=(run("r2", "failed", 5),)), failed_run_id="r1", failed_message="BrokerUnavailable: old"
    )
    assert "BrokerUnavailable" not in one.reasons[0]


def test_a_planned_batch_without_hold_and_run_is_stuck_and_its_run_is_to_be_cleared() -> None:
    one = standing(**PLANNED, hold_until=minutes(9))
    assert one.state is State.STUCK
    [clear] = [action for action in next_steps(one, LINKS) if action.title == "Clear the run"]
    assert clear.href == "/team/dags/kafka_to_postgres__orders/runs/r2"


def test_a_batch_of_the_command_line_that_is_stuck_needs_a_new_run() -> None:
    one = standing(**{**PLANNED, "outstanding_dag_id": "cli"}, hold_until=minutes(9))
    assert (one.state, titles(one)) == (State.STUCK, ["Start a run"])


@pytest.mark.parametrize("runs", [(run("r2", "running", 9),), (run("r2", "queued", 9),)])
def test_a_planned_batch_is_not_stuck_while_a_run_is_active(runs: Any) -> None:
    assert standing(replace(DUE, runs=runs), **PLANNED, hold_until=minutes(9)).state is State.LOADING


def test_a_batch_that_is_held_is_being_loaded_and_its_progress_is_told() -> None:
    one = standing(**PLANNED, hold_until=minutes(11))
    assert one.state is State.LOADING
    assert "step stage, 40 of 100 offsets staged" in one.reasons[0]


@pytest.mark.parametrize(
    ("now", "state"), [(minutes(19.99), State.UP_TO_DATE), (minutes(20), State.LATE), (minutes(900), State.LATE)]
)
def test_a_pipeline_is_late_when_the_time_that_it_may_take_has_passed(now: Any, state: State) -> None:
    assert standing(replace(DUE, due_at=minutes(5)), now=now).state is state


def test_a_batch_that_was_planned_when_it_was_due_ends_lateness() -> None:
    assert standing(now=minutes(900)).state is State.UP_TO_DATE


@pytest.mark.parametrize(
    ("dag", "why"),
    [
        (replace(DUE, runs=(run("r2", "running", 5, started_at=minutes(6)),)), "run r2 is still running, since"),
        (replace(DUE, runs=(run("r2", "queued", 5),)), "run r2 waits to start, since 2026-11-30 13:05:02 UTC"),
        (replace(DUE, is_paused=True), "the DAG is paused."),
        (replace(DUE, is_paused=True, runs=(run("r2", "queued", 5),)), "the DAG is paused, and run r2 waits to start"),
        (replace(DUE, runs=()), "Airflow has not started a run"),
        (replace(DUE, runs=(run("r2", "success", 5),)), "the run has ended without one"),
    ],
)
def test_lateness_says_why(dag: DagFacts, why: str) -> None:
    one = standing(replace(dag, due_at=minutes(5)), now=minutes(60))
    assert one.state is State.LATE
    assert why in one.reasons[0]


def test_the_run_that_a_late_pipeline_waits_for_is_told_once() -> None:
    one = standing(replace(DUE, runs=(run("r2", "queued", 1),)), now=minutes(30), last_planned_at=minutes(-5))
    assert (one.state, sum("r2" in reason for reason in one.reasons)) == (State.LATE, 1)


def test_a_paused_dag_that_is_late_is_to_be_unpaused() -> None:
    assert titles(standing(replace(DUE, is_paused=True, due_at=minutes(5)), now=minutes(60)))[0] == "Unpause the DAG"


def test_a_paused_dag_that_owes_nothing_is_paused() -> None:
    assert standing(replace(DUE, is_paused=True)).state is State.PAUSED


def test_a_pipeline_before_its_first_batch_is_not_started() -> None:
    one = standing(own_dag("orders"), **NEVER_LOADED)
    assert (one.state, one.lag_seconds) == (State.NOT_STARTED, None)


def test_a_first_plan_that_fails_is_a_failure_with_its_message() -> None:
    dag = own_dag("orders", runs=(run("r1", "failed", 5),))
    one = standing(dag, **{**NEVER_LOADED, "failed_run_id": "r1", "failed_message": "TopicMissing: no topic orders"})
    assert one.state is State.FAILING
    assert one.reasons[0].endswith("TopicMissing: no topic orders")


def test_lag_in_time_is_nothing_where_nothing_waits_and_the_time_since_complete_where_something_does() -> None:
    assert standing().lag_seconds == 0
    assert standing(lag_offsets=7).lag_seconds == 600
    assert standing(lag_offsets=7, valid_through=None).lag_seconds is None


def test_every_state_has_a_meaning_and_every_reason_of_a_dead_letter_a_remedy() -> None:
    assert set(MEANINGS) == set(State)
    assert all(meaning(reason) and remedy(reason) for reason in DeadLetterReason)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.25, "0.2 s"), (59, "59 s"), (61, "1 min 1 s"), (3_600, "1 h"), (90_061, "1 d 1 h"), (86_400.4, "1 d")],
)
def test_time_spans_are_told_in_their_two_greatest_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


# ----------
# What is filled into Airflow's forms is what the forms take.

WITH_LETTERS = standing(unresolved_dead_letters=3)
RANGES = [
    {"topic": "shop.orders", "partition": 0, "range_start": 10, "range_end": 30},
    {"topic": "shop.orders", "partition": 1, "range_start": 0, "range_end": 5},
]


def conf(action: Action) -> dict[str, Any]:
    assert action.form is not None
    values: dict[str, Any] = json.loads(action.form.conf)
    return values


def test_a_reload_of_a_batch_asks_for_exactly_its_ranges() -> None:
    action = of_batch(WITH_LETTERS, {"dag_id": "d", "run_id": "r"}, RANGES, LINKS)
    options = run_options({**conf(action), "reason": "again"}, zone="UTC", pipeline="orders")
    assert options.offsets == (OffsetSpan("shop.orders", 0, 10, 30), OffsetSpan("shop.orders", 1, 0, 5))


def test_a_form_as_it_is_filled_in_does_nothing_without_a_reason() -> None:
    action = of_batch(WITH_LETTERS, {"dag_id": "d", "run_id": "r"}, RANGES, LINKS)
    with pytest.raises(ConfigError, match="Reason: expected why it is loaded again"):
        run_options(conf(action), zone="UTC", pipeline="orders")


def test_every_action_of_a_pipeline_is_taken_by_its_form_once_the_empty_fields_are_filled_in() -> None:
    times = {"from": "2026-11-30T12:00:00Z", "to": "2026-11-30T13:00:00Z", "time": "2026-11-30T13:00:00Z"}
    filled, asked = {**times, "reason": "why"}, set()
    for action in of_pipeline(WITH_LETTERS, LINKS):
        values = {key: value or filled.get(key) for key, value in conf(action).items()}
        if "kind" in values:
            read_order(values, zone="UTC", who="me", request_id="r1")
        else:
            run_options(values, zone="UTC", pipeline="orders")
        asked.add(values.get("kind") or values["mode"])
    assert asked == {"live", "reload", "reset", "accept-loss", REPLAY}
    assert asked & set(CHANGES) == {"reset", "accept-loss"}


@pytest.mark.parametrize(("action", "kind"), [(replay, REPLAY), (discard, DISCARD)])
def test_dead_letters_of_a_reason_are_chosen_in_form_and_command(action: Any, kind: str) -> None:
    found = action(WITH_LETTERS, LINKS, "wrong_type")
    assert conf(found)["kind"] == kind
    assert conf(found)["dead_letter_reasons"] == "wrong_type"
    assert "--of-reason wrong_type" in found.command


def test_a_pipeline_inside_somebody_elses_dag_has_no_form_of_a_run() -> None:
    one = standing(DagFacts("nightly", connections=("warehouse",)))
    assert {action.title for action in of_pipeline(one, LINKS)} == {"Reset the position", "Accept the loss"}


def test_addresses_escape_what_names_may_hold() -> None:
    one = replace(WITH_LETTERS, pipeline="a/b?c", connection="x&y")
    assert LINKS.pipeline(one) == "/team/kafka-ingest/pipelines/a%2Fb%3Fc?connection=x%26y"
    attempt = {"dag_id": "d", "run_id": "manual__2026-11-30T13:00:00+00:00", "task_id": "g.load", "map_index": 2}
    assert LINKS.task_log({**attempt, "try_number": 3}) == (
        "/team/dags/d/runs/manual__2026-11-30T13%3A00%3A00%2B00%3A00/tasks/g.load/mapped/2?try_number=3"
    )
