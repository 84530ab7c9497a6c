"""The calculation of sizes: values worked out by hand from its rates, and a queue that is simulated beside it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kafka_ingest.settings import ValueFormat
from kafka_ingest.sizing.costs import LoadCost, Loading
from kafka_ingest.sizing.deployment import Deployment, Sizing, Traffic, own_pace
from kafka_ingest.sizing.figures import FITS, TIGHT, TOO_MUCH, SizeVerdict, figures, verdicts

#: JSON of 280 bytes is a row of 90 + 0.75 x 280 = 300; ten columns.
BYTES, ROW = 280, 300
MILLION = 1_000_000


def cost(records: float = MILLION, *, partitions: int = 1, record_bytes: float = BYTES, **loading: Any) -> LoadCost:
    return LoadCost(records, record_bytes, partitions, Loading(**loading))


def about(value: float) -> Any:
    return pytest.approx(value, rel=1e-6)


def sizing(records_per_day: float, *, traffic: dict[str, Any] | None = None, **deployment: Any) -> Sizing:
    loading = deployment.pop("loading", Loading())
    return Sizing(Traffic(records_per_day, BYTES, **(traffic or {})), Deployment(loading, **deployment))


def verdict(size: Sizing, part: str) -> SizeVerdict:
    (found,) = [one for one in verdicts(size) if one.part == part]
    return found


# One load.


def test_a_load_is_start_stage_in_parallel_and_one_publish() -> None:
    one = cost()
    # 1 + 0.3 x 10 + 0.018 x 300 = 9.4 µs a record, and 0.01 s for the partition.
    assert one.task_seconds == about(9.41)
    # 0.5 + 0.006 x 300 = 2.3 µs.
    assert one.publish_seconds == about(2.3)
    assert one.load_seconds == about(4.4 + 9.41 / 2 + 2.3)
    # Plan, audit and Airflow, and 0.15 ms to plan the partition.
    assert one.run_seconds == about(4.4 + 9.41 / 2 + 2.3 + 14.6 + 0.00015)


def test_a_load_writes_rows_to_staging_and_table_and_the_second_to_the_wal() -> None:
    one = cost()
    assert (one.staging_bytes, one.table_bytes, one.wal_bytes) == (326 * MILLION, 300 * MILLION, 330 * MILLION)
    unique = cost(has_unique_key=True)
    assert (unique.staging_bytes, unique.table_bytes, unique.wal_bytes) == (
        326 * MILLION,
        370 * MILLION,
        430 * MILLION,
    )
    state = cost(is_upsert=True)
    assert (state.table_bytes, state.wal_bytes, state.publish_seconds) == (370 * MILLION, 420 * MILLION, about(4))


@pytest.mark.parametrize(
    ("kind", "row"),
    [(ValueFormat.JSON_COLUMNS, 300), (ValueFormat.JSON_SCHEMA, 300), (ValueFormat.RAW, 370), (ValueFormat.AVRO, 566)],
)
def test_how_much_of_a_record_is_stored_follows_from_its_format(kind: ValueFormat, row: float) -> None:
    assert cost(format=kind).row_bytes == about(row)


def test_every_format_has_its_share() -> None:
    assert all(cost(format=kind).row_bytes > BYTES / 2 for kind in ValueFormat)


def test_a_small_load_is_not_cut_into_more_tasks_than_are_useful() -> None:
    # 25,000 offsets a task.
    assert [cost(records, tasks=8).tasks for records in (1, 49_999, 50_000, MILLION)] == [1, 1, 2, 8]


def test_a_load_of_large_records_is_cut_into_tasks_by_its_bytes() -> None:
    # 8 MB a task: eight records of 1 MB, or 80 of 100 kB.
    assert [cost(records, tasks=8, record_bytes=MILLION).tasks for records in (1, 15, 16, 1_000)] == [1, 1, 2, 8]
    assert cost(159, tasks=8, record_bytes=100_000).tasks == 1
    assert cost(160, tasks=8, record_bytes=100_000).tasks == 2


def test_rows_beyond_two_million_publish_more_slowly() -> None:
    # 2 M rows at 2.3 µs, and 8 M at half as much again.
    assert cost(10 * MILLION).publish_seconds == about(4.6 + 8 * 2.3 * 1.5)


def test_partitions_cost_time_even_with_few_records() -> None:
    many = cost(2_000, partitions=2_000)
    assert many.task_seconds == about(20 + 2_000 * 9.4e-6)
    assert many.run_seconds - many.load_seconds == about(14.6 + 0.3)
    # Without records there is nothing to begin with.
    assert cost(0, partitions=2_000).task_seconds == 0


def test_memory_of_a_task_is_a_chunk_or_ten_times_the_largest_record() -> None:
    # Worker 150, prefetch 16, answer 50 MB; 18 x 10,000 records of 280 bytes.
    assert cost().task_bytes() == about(216e6 + 50.4e6)
    assert cost().task_bytes(largest_bytes=20e6) == about(216e6 + 200e6)
    # A chunk is 8 MB at most.
    assert cost(record_bytes=5_000).task_bytes() == about(216e6 + 144e6)


# A deployment.


def test_what_waits_after_an_interval_is_the_busiest_hour_for_its_length_and_at_most_its_days() -> None:
    def waiting(hours: float, pipelines: int = 1) -> float:
        return sizing(24 * MILLION, interval_seconds=3_600 * hours, pipelines=pipelines).peak_records

    assert [waiting(0.25), waiting(1), waiting(12), waiting(24), waiting(72)] == [
        0.5 * MILLION,
        2 * MILLION,
        24 * MILLION,
        24 * MILLION,
        72 * MILLION,
    ]
    assert waiting(1, pipelines=4) == 0.5 * MILLION


def test_a_run_is_followed_by_others_until_nothing_waits() -> None:
    size = sizing(30 * MILLION, tasks=2)
    assert (size.peak_runs, size.usual_run.records) == (2, 1.25 * MILLION)
    assert size.peak_seconds == about(2 * size.usual_run.run_seconds)
    assert size.busy_share == about(size.peak_seconds / 3_600)
    # Without follow-ups the second waits for the next interval, in which as much comes again.
    assert replace(size, deployment=replace(size.deployment, follow_up=False)).busy_share == 2


def test_loads_at_once_their_connections_and_executors() -> None:
    size = sizing(2_400 * MILLION, pipelines=400, tasks=3, interval_seconds=900)
    # 400 pipelines, each busy for its share of 15 minutes, are done in half of them.
    at_once = 400 * size.usual_run.run_seconds / 450
    assert size.slots - 1 < at_once <= size.slots
    assert size.connections == size.slots * (2 * 3 + 3)
    assert size.executors == size.slots * 2
    # 1 GB of heap and two Python processes of 266.4 MB, with half as much again.
    assert size.executor_bytes == about(1e9 + 2 * 266.4e6 * 1.5)
    assert sizing(MILLION, pipelines=3).slots == 1


def test_tasks_are_the_fewest_with_which_the_goals_are_reached() -> None:
    # 200 M records in the busiest hour are 40 runs of 5 M, which may take 45 s each: 19 s beside stage and publish,
    # 4.6 s for 2 M rows and 10.35 s for 3 M more, and 47 task-seconds, in 11.05 s.
    size = sizing(2_400 * MILLION, loading=Loading(limit_offsets=5 * MILLION))
    assert size.tasks == 5
    assert size.reaches_goals
    assert not Sizing(size.traffic, replace(size.deployment, tasks=4)).reaches_goals


def test_where_no_number_of_tasks_is_enough_another_would_gain_less_than_a_fiftieth() -> None:
    size = sizing(20_000 * MILLION)
    assert not size.reaches_goals
    here, more, fewer = (
        cost(2 * MILLION, tasks=tasks).load_seconds for tasks in (size.tasks, size.tasks + 1, size.tasks - 1)
    )
    assert more > 0.98 * here
    assert here <= 0.98 * fewer


# Falling behind.

FOR_EVER = float("inf")


def simulated(outage_hours: float, speed: float, retention_hours: float) -> tuple[float, bool]:
    """Let a queue fill for an outage and empty again, minute by minute; return the hours and whether records expired.

    Records of a minute are one; what was read is a time: up to there everything is loaded.
    """
    now = outage_hours * 60
    read = 0.0
    expired = now - read > retention_hours * 60
    while now - read > speed:
        now, read = now + 1, read + speed
        expired |= now - read > retention_hours * 60
    return now / 60 - outage_hours, expired


@pytest.mark.parametrize("outage_hours", [1, 12, 50])
@pytest.mark.parametrize("records_per_day", [400 * MILLION, 1_000 * MILLION, 2_000 * MILLION])
def test_catching_up_takes_as_long_as_a_simulated_queue(outage_hours: float, records_per_day: float) -> None:
    size = sizing(records_per_day, tasks=2)
    hours, _ = simulated(outage_hours, size.speed, FOR_EVER)
    assert size.catch_up_hours(outage_hours) == pytest.approx(hours, abs=0.1)


def test_the_longest_outage_leaves_every_record_to_read_and_a_longer_one_does_not() -> None:
    size = sizing(400 * MILLION, tasks=2, traffic={"retention_hours": 24})
    longest = size.longest_outage_hours
    # An interval before the outage, and the first full run after it.
    waited = (size.deployment.interval_seconds + size.full_run.run_seconds) / 3_600
    assert longest == about(24 - waited)
    assert not simulated(longest + waited - 0.1, size.speed, 24)[1]
    assert simulated(longest + waited + 0.1, size.speed, 24)[1]


def test_from_the_hopeless_outage_on_catching_up_takes_longer_than_retention() -> None:
    size = sizing(4_000 * MILLION, tasks=2, traffic={"retention_hours": 100})
    assert 1 < size.speed < 2
    hopeless = size.hopeless_outage_hours
    assert simulated(hopeless - 1, size.speed, FOR_EVER)[0] < 100 < simulated(hopeless + 1, size.speed, FOR_EVER)[0]


def test_who_is_no_faster_than_producers_never_catches_up() -> None:
    size = sizing(20_000 * MILLION, tasks=2)
    assert size.speed < 1
    assert size.catch_up_hours(1) == FOR_EVER
    assert size.hopeless_outage_hours == 0
    # The oldest record gets older and older, so retention, however long, reaches it.
    assert size.longest_outage_hours == 0
    assert verdict(size, "retention").result == TOO_MUCH
    assert verdict(size, "catching up").result == TOO_MUCH
    values = {figure.name: figure.value for figure in figures(size)}
    assert values["catching up after 12 h"] is None


def test_what_is_kept_for_ever_has_no_longest_outage() -> None:
    size = sizing(MILLION, traffic={"retention_hours": None})
    assert size.longest_outage_hours == size.hopeless_outage_hours == FOR_EVER
    assert "retention" not in [one.part for one in verdicts(size)]


# The pipeline's own pace.

START = datetime(2026, 1, 1, tzinfo=UTC)


def batch(offsets: int, times: float, **changes: Any) -> dict[str, Any]:
    """Return the row of a batch that took so many times what is calculated for it."""
    seconds = times * sizing(MILLION, tasks=2).cost(offsets).load_seconds
    row = {"state": "committed", "kind": "live", "offsets": offsets, "planned_at": START}
    return {**row, "committed_at": START + timedelta(seconds=seconds), **changes}


def test_the_own_pace_is_the_median_of_live_batches_that_are_large_enough() -> None:
    size = sizing(MILLION, tasks=2)
    large = [batch(200_000, 1.2), batch(MILLION, 3), batch(2 * MILLION, 1.5)]
    others = [
        batch(99_999, 50),
        batch(MILLION, 50, kind="reload"),
        batch(MILLION, 50, state="superseded", committed_at=None),
    ]
    assert own_pace([*others, *large], size) == pytest.approx(1.5, rel=1e-4)
    assert own_pace([*others, *large[:2]], size) is None


def test_a_slower_pace_makes_loads_longer_and_not_what_airflow_takes() -> None:
    slow, usual = cost(pace=2.0), cost()
    assert slow.load_seconds == about(2 * usual.load_seconds)
    assert slow.run_seconds - slow.load_seconds == about(usual.run_seconds - usual.load_seconds)


# Verdicts.


def test_a_comfortable_deployment_fits_in_every_part() -> None:
    assert {one.result for one in verdicts(sizing(10 * MILLION))} == {FITS}
    assert {one.knob for one in verdicts(sizing(10 * MILLION))} == {""}


@pytest.mark.parametrize(
    ("size", "knob"),
    [
        # 50 runs of 42.4 s with one task, 33 s with two, in half an hour.
        pytest.param(sizing(1_200 * MILLION, tasks=1), "spark.tasks: 2 on as many cores", id="more tasks"),
        # 28 runs of 9.92 M may take 64.3 s: 19 s, 31.9 s publish, and 93.2 task-seconds.
        pytest.param(
            sizing(3_333 * MILLION),
            "limit.offsets_per_run: 10,000,000, spark.tasks: 7 on as many cores",
            id="a greater limit",
        ),
    ],
)
def test_the_knob_that_is_named_is_enough(size: Sizing, knob: str) -> None:
    found = verdict(size, "a run in its interval")
    assert found.result != FITS
    assert found.knob == knob
    tasks = int(knob.partition("spark.tasks: ")[2].split()[0])
    limit = 10 * MILLION if "limit" in knob else size.deployment.loading.limit_offsets
    loading = replace(size.deployment.loading, limit_offsets=limit)
    turned = Sizing(size.traffic, replace(size.deployment, tasks=tasks, loading=loading))
    assert verdict(turned, "a run in its interval").result == verdict(turned, "catching up").result == FITS


def test_more_pipelines_are_named_only_where_there_are_topics_for_them() -> None:
    def knob(topics: int) -> str:
        size = sizing(10_000 * MILLION, traffic={"topics": topics, "partitions": topics})
        return verdict(size, "a run in its interval").knob

    assert knob(1).startswith("no number of tasks is enough")
    # Two pipelines with half of 833 M records in the busiest hour are as busy as one with 417 M: each has 208 runs of
    # 2 M, of 19 s and more. With four it is 105 runs of 19 s and 4.6 s to publish, too much still. With eight 53.
    assert knob(1_000).startswith("8 pipelines, each with topics and a table of its own")
    assert knob(7).startswith("no number of tasks is enough")


def test_retention_must_hold_three_intervals_and_should_hold_an_outage() -> None:
    daily = {"interval_seconds": 86_400.0}
    assert verdict(sizing(MILLION, traffic={"retention_hours": 71}, **daily), "retention").result == TOO_MUCH
    assert verdict(sizing(MILLION, traffic={"retention_hours": 73}, **daily), "retention").result == FITS
    assert verdict(sizing(MILLION, traffic={"retention_hours": 6}), "retention").result == TIGHT


def test_connections_and_ledger_are_tight_past_what_is_usual() -> None:
    crowd = sizing(2_400 * MILLION, pipelines=1_000, tasks=8, interval_seconds=900)
    assert crowd.connections > 97
    assert verdict(crowd, "connections").result == TIGHT
    partitions = sizing(2_400 * MILLION, traffic={"partitions": 10_000})
    # 50 runs an hour of 2 M offsets, each with 10,000 ranges of 650 bytes.
    assert partitions.runs_a_day == 24 * 50
    assert partitions.ledger_bytes_a_day == about(24 * 50 * 10_000 * 650)
    assert verdict(partitions, "ledger").result == TIGHT
