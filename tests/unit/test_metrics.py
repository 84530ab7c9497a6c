"""The definitions of metrics, and what is measured."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from math import isnan

from kafka_ingest import metrics
from kafka_ingest.metrics import (
    METRICS,
    Metric,
    batch_measurements,
    failure_measurements,
    headroom_measurements,
    lag_measurements,
    phase_measurements,
    success_measurements,
)
from kafka_ingest.protocol.batch import BatchState, LoadPhases, RecordCounts, TaskSeconds
from kafka_ingest.protocol.log import observe
from tests.builders import (
    EMPTY_VIEW,
    NOON,
    partition_state,
    pipeline_settings,
    planned_batch,
    position,
    snapshot,
    view_of,
)
from tools.reference import metrics_page

SETTINGS = pipeline_settings()
COUNTS = RecordCounts(rows=5, deletes=7, superseded=6, dead_letters=4, tombstones=3, filtered=2, invisible=1)
COMMITTED = replace(planned_batch(state=BatchState.COMMITTED), counts=COUNTS, valid_through=NOON)
#: Log start, end offset and high watermark of three partitions of two topics.
LOG = {
    "orders": [partition_state(0, 10, 90, end=80), partition_state(1, 5, 5)],
    "returns": [partition_state(0, 0, 7)],
}
VIEW = replace(
    view_of(position(0, 50), position(1, 5), position(0, 7, topic="returns")), observations=observe(snapshot(LOG), ())
)


def test_every_metric_has_a_name_of_its_own_that_airflow_takes() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    assert all(re.fullmatch(r"kafka_ingest\.[a-z_]+", metric.name) for metric in METRICS)


def test_every_metric_of_the_file_is_listed_and_documented() -> None:
    defined = {value for value in vars(metrics).values() if isinstance(value, Metric)}
    assert defined == set(METRICS)
    page = metrics_page("command")
    assert all(f"| `{metric.name}` | {metric.kind.value} | {metric.unit} |" in page for metric in METRICS)


def test_counts_of_batches_are_told_once() -> None:
    told = {found.metric.name.partition(".")[2]: found.value for found in batch_measurements([COMMITTED])}
    assert told == {
        "batches": 1,
        "rows": 5,
        "deletes": 7,
        "superseded": 6,
        "dead_letters": 4,
        "tombstones": 3,
        "filtered": 2,
        "invisible_offsets": 1,
    }
    assert list(batch_measurements([replace(COMMITTED, announced_at=NOON)])) == []


def test_lag_is_the_sum_over_a_topic_of_what_could_be_read() -> None:
    # orders: 80 - 50 of partition 0, nothing of partition 1. returns: read to its end.
    found = [(m.metric, m.value, dict(m.tags)) for m in lag_measurements(SETTINGS, VIEW)]
    assert found == [(metrics.LAG, 30, {"topic": "orders"}), (metrics.LAG, 0, {"topic": "returns"})]


def test_headroom_is_the_least_over_logs_that_hold_something() -> None:
    # orders[0]: 50 - 10. orders[1] is empty: retention came up to the position, and nothing is lost. returns[0]: 7 - 0.
    measured = list(headroom_measurements(SETTINGS, VIEW))
    found = [(m.metric, m.value, dict(m.tags)) for m in measured if m.metric is not metrics.HEADROOM_SECONDS]
    assert found == [
        (metrics.HEADROOM_OFFSETS, 40, {"topic": "orders"}),
        (metrics.HEADROOM_OFFSETS, 7, {"topic": "returns"}),
        (metrics.SHORT_HEADROOM, 0, {}),
        (metrics.STALLED, 0, {}),
    ]


def test_headroom_that_is_unknown_or_of_an_empty_log_is_not_a_number_and_leaves_no_older_value() -> None:
    empty = {"orders": [partition_state(0, 90, 90)]}
    view = replace(view_of(position(0, 90)), observations=observe(snapshot(empty), ()))
    found = {m.metric: m.value for m in headroom_measurements(SETTINGS, view)}
    assert isnan(found[metrics.HEADROOM_OFFSETS])
    assert isnan(found[metrics.HEADROOM_SECONDS])
    seconds = [m.value for m in headroom_measurements(SETTINGS, VIEW) if m.metric is metrics.HEADROOM_SECONDS]
    assert [isnan(value) for value in seconds] == [True, True]  # one plan tells no rate


def test_before_a_plan_there_is_nothing_to_tell_of_the_log() -> None:
    assert list(lag_measurements(SETTINGS, EMPTY_VIEW)) == []
    assert list(headroom_measurements(SETTINGS, EMPTY_VIEW)) == []


def test_a_success_tells_its_time_the_next_run_and_up_to_when_the_table_is_complete() -> None:
    told = success_measurements(COMMITTED, NOON + timedelta(minutes=2), NOON + timedelta(hours=1))
    assert {m.metric: m.value for m in told} == {
        metrics.LAST_SUCCESS: NOON.timestamp() + 120,
        metrics.FAILED_RUNS: 0,
        metrics.NEXT_RUN_DUE: NOON.timestamp() + 3_600,
        metrics.VALID_THROUGH: NOON.timestamp(),
        metrics.VALID_THROUGH_AGE: 120.0,
    }


def test_what_a_success_does_not_know_is_not_told() -> None:
    told = success_measurements(replace(COMMITTED, valid_through=None), NOON, None)
    assert [m.metric for m in told] == [metrics.LAST_SUCCESS, metrics.FAILED_RUNS]


def test_an_old_audit_that_is_cleared_turns_no_clock_back() -> None:
    assert list(success_measurements(replace(COMMITTED, announced_at=NOON), NOON + timedelta(days=3), None)) == []


def test_a_run_has_failed_when_its_last_try_has() -> None:
    retried = list(failure_measurements("orders", "load", "DatabaseUnavailable", is_last_try=False))
    assert [(m.metric, m.value, dict(m.tags)) for m in retried] == [
        (metrics.STEP_FAILURES, 1, {"step": "load", "fault": "DatabaseUnavailable"})
    ]
    given_up = list(failure_measurements("orders", "load", "DatabaseUnavailable", is_last_try=True))
    assert [(m.metric, m.value, m.is_change) for m in given_up] == [
        (metrics.STEP_FAILURES, 1, False),
        (metrics.FAILED_RUNS, 1, True),
    ]


def test_phases_are_told_in_milliseconds() -> None:
    phases = LoadPhases(session=3.0, stage=12.5, publish=2.0, tasks=TaskSeconds(read=5.5, decode=8.0, copy=9.0))
    told = [(found.metric.name.partition(".")[2], found.tags, found.value) for found in phase_measurements(phases, "o")]
    assert told == [
        ("load_phase_duration", (("phase", "session"),), 3_000),
        ("load_phase_duration", (("phase", "stage"),), 12_500),
        ("load_phase_duration", (("phase", "publish"),), 2_000),
        ("stage_task_time", (("part", "read"),), 5_500),
        ("stage_task_time", (("part", "decode"),), 8_000),
        ("stage_task_time", (("part", "copy"),), 9_000),
    ]
