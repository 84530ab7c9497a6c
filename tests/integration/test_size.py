"""The command ``size`` on real topics and a real ledger: what it measures, what it assumes, what it refuses."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import pytest

from tests.integration.pipeline_under_test import FedPipeline, produced

HOUR_MS = 3_600_000
TRAFFIC = ("--records-per-day", "50000000", "--bytes-per-record", "300")


def send_at(pipeline: FedPipeline, hours_ago: float, records: int, *, partition: int = 0) -> None:
    """Send records of 12 bytes, key included, with a time in the past."""
    moment = int(time.time() * 1000) - round(hours_ago * HOUR_MS)
    with produced(pipeline.make_producer()) as sender:
        for _ in range(records):
            sender.produce(pipeline.topic, b"0123456789", b"ab", partition=partition, timestamp=moment)


def sized(pipeline: FedPipeline, *options: str) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Run the command; return its inputs and the values of its figures, by name."""
    code, found, notes = pipeline.command("size", pipeline.name, *options)
    assert code == 0, notes
    inputs = {one["name"]: one for one in found["inputs"]}
    return inputs, {one["name"]: one["value"] for one in found["figures"]}


def values(inputs: Mapping[str, Mapping[str, Any]], *names: str) -> list[Any]:
    return [inputs[name]["value"] for name in names]


def test_a_young_topic_is_measured_and_taken_for_as_much_of_a_day(pipeline: FedPipeline) -> None:
    pipeline.open(3, {"retention.ms": str(72 * HOUR_MS)}, spark={"tasks": 2, "executor_cores": 4})
    for hours_ago, records in ((2.5, 100), (1.5, 300), (0.5, 200)):
        send_at(pipeline, hours_ago, records, partition=int(hours_ago))
    inputs, figures = sized(pipeline)
    assert values(inputs, "topics", "partitions", "retention hours", "bytes per record", "largest record") == [
        1,
        3,
        72,
        12,
        12,
    ]
    # 600 records in 2.5 hours are 240 an hour, 5,760 a day; the busiest hour has 300.
    assert inputs["records per day"]["value"] == pytest.approx(5_760, rel=0.05)
    assert inputs["peak factor"]["value"] == pytest.approx(1.25, rel=0.05)
    assert "600 in the 2.5 hours that Kafka has" in inputs["records per day"]["source"]
    # What the file says, and what nobody does: @daily, raw with one column, key and headers, tasks and cores.
    own = ("interval minutes", "columns", "format", "mode", "limit", "tasks", "cores")
    assert values(inputs, *own) == [1_440, 3, "raw", "append", 2_000_000, 2, 4]
    assert inputs["outage hours"]["source"] == "assumed"
    assert inputs["pace"]["source"].startswith("assumed: fewer than 3 batches")
    assert figures["records of an interval"] == pytest.approx(5_760, rel=0.05)
    assert figures["tasks"] == 2


def test_of_an_older_topic_the_busiest_day_of_the_week_counts(pipeline: FedPipeline) -> None:
    pipeline.open(1, {"retention.ms": "-1"})
    send_at(pipeline, 8 * 24, 5_000)  # no longer in the week
    send_at(pipeline, 4.5 * 24, 700)
    send_at(pipeline, 5.5, 90)
    send_at(pipeline, 2.5, 30)
    inputs, figures = sized(pipeline)
    assert values(inputs, "records per day", "peak factor", "retention hours") == [700, 18, None]
    assert inputs["retention hours"]["source"].startswith("records stay")
    assert "longest outage" not in figures


def test_options_override_what_is_measured_and_are_named(pipeline: FedPipeline) -> None:
    pipeline.open(1)
    send_at(pipeline, 0.5, 10)
    given = (
        "--peak-factor",
        "3",
        "--partitions",
        "12",
        "--tasks",
        "9",
        "--interval-minutes",
        "15",
        "--limit",
        "500000",
    )
    inputs, figures = sized(pipeline, *TRAFFIC, *given)
    names = ("records per day", "bytes per record", "peak factor", "partitions", "tasks", "interval minutes", "limit")
    assert values(inputs, *names) == [50_000_000, 300, 3, 12, 9, 15, 500_000]
    assert inputs["partitions"]["source"] == "--partitions"
    assert inputs["topics"]["source"] == "in Kafka"
    assert figures["tasks"] == 9
    bytes_given = sized(pipeline, "--bytes-per-day", "24MB", "--bytes-per-record", "2.4kB")[0]
    assert bytes_given["records per day"]["value"] == 10_000


def test_the_pace_of_its_own_batches_counts(pipeline: FedPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.open(1, spark={"tasks": 1})
    for number in range(3):
        send_at(pipeline, 0.5, 40)
        pipeline.load_here(run_id=f"run {number}")
    monkeypatch.setattr("kafka_ingest.sizing.deployment.LEAST_COMPARED", 40)
    # live batches of this ledger are slow or quick as the machine is: their times are set, to 44 s for 40 records.
    pipeline.query("UPDATE kafka_ingest.batch SET planned_at = committed_at - interval '44 seconds'")
    inputs, figures = sized(pipeline)
    # 40 records of 12 bytes: 4.4 s start, 0.01 s to begin with the partition, and 0.0003 s of work.
    assert inputs["pace"]["value"] == pytest.approx(44 / 4.41, rel=0.001)
    assert inputs["pace"]["source"] == "its own batches in the ledger, the median"
    assert figures["time of a full run"] > 40
    # The batches ran with the file's one task, whatever is asked for now; and a pace that is given counts.
    assert sized(pipeline, "--tasks", "8")[0]["pace"]["value"] == inputs["pace"]["value"]
    assert sized(pipeline, "--pace", "2")[0]["pace"] == {"name": "pace", "value": 2, "unit": "x", "source": "--pace"}


def test_without_a_ledger_the_pace_is_assumed(pipeline: FedPipeline) -> None:
    pipeline.open(1, spark={"tasks": 1})
    send_at(pipeline, 0.5, 10)
    pipeline.query("DROP SCHEMA kafka_ingest CASCADE")
    assert sized(pipeline)[0]["pace"]["source"].startswith("assumed: there is no ledger yet")


def test_an_empty_topic_has_no_size_until_its_traffic_is_given(pipeline: FedPipeline) -> None:
    pipeline.open(2)
    code, _, notes = pipeline.command("size", pipeline.name)
    assert code == 78
    error = json.loads(notes.splitlines()[-1])["error"]
    assert error["class"] == "ConfigError"
    # Both that are missing, at once.
    assert error["found"] == "records per day: no records in 7 days; bytes per record: no record that could be read"
    assert error["next_command"].startswith(f"python -m kafka_ingest size {pipeline.name} --records-per-day")
    inputs, _ = sized(pipeline, *TRAFFIC)
    assert inputs["partitions"]["value"] == 2
    pipeline.write("there.is.no.such.topic")
    code, _, notes = pipeline.command("size", pipeline.name, *TRAFFIC)
    assert code == 78
    assert "0 topics for 1 pipelines" in json.loads(notes.splitlines()[-1])["error"]["found"]


def test_a_broker_that_is_away_and_an_unknown_pipeline_are_told_as_everywhere(
    pipeline: FedPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.open(1)
    code, _, notes = pipeline.command("size", "nobody")
    assert (code, json.loads(notes.splitlines()[-1])["error"]["class"]) == (78, "ConfigError")
    nobody = {"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:1"}}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps(nobody))
    monkeypatch.setattr("kafka_ingest.full_world._PREFLIGHT_SECONDS", 1.0)
    code, _, notes = pipeline.command("size", pipeline.name)
    assert (code, json.loads(notes.splitlines()[-1])["error"]["class"]) == (75, "BrokerUnavailable")
