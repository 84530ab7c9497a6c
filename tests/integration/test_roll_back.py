"""Batches rolled back on real Kafka and PostgreSQL: gone together, loaded again once, refused where that cannot be."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from kafka_ingest.protocol.batch import OffsetSpan, RunMode, RunOptions
from sandbox.kafka import KafkaBroker
from tests.integration.pipeline_under_test import FedPipeline, PipelineUnderTest

JSON = {"format": "json", "columns": [{"name": "n", "type": "integer"}]}
STATES = "SELECT batch_id::text, state FROM kafka_ingest.batch ORDER BY ordinal"
POSITIONS = "SELECT partition, committed_offset, loaded_to, line FROM kafka_ingest.committed_offset ORDER BY partition"


@pytest.fixture
def name(pipeline: FedPipeline) -> str:
    """A topic of two partitions whose values are JSON, and its pipeline."""
    return pipeline.open(2, value=JSON)


def roll_back(pipeline: PipelineUnderTest, batches: int = 1, *more: str) -> dict[str, Any]:
    arguments = ("roll-back", "events", "--batches", str(batches), "--reason", "wrong data", "--apply", *more)
    code, record, notes = pipeline.command(*arguments)
    assert code == 0, notes
    assert isinstance(record, dict)
    return record


def refused(pipeline: PipelineUnderTest, *more: str) -> str:
    """Asks for a roll-back that must be refused, and compares everything before and after; gives the message."""
    before = content(pipeline)
    code, _, notes = pipeline.command("roll-back", "events", "--batches", "1", "--reason", "why", "--apply", *more)
    assert (code, content(pipeline)) == (78, before)
    return notes


def content(pipeline: PipelineUnderTest) -> list[Any]:
    rows = pipeline.rows("kafka_partition, kafka_offset, n")
    return [
        rows,
        pipeline.dead_letters('partition, "offset", value'),
        pipeline.query(STATES),
        pipeline.query(POSITIONS),
    ]


def records(pipeline: PipelineUnderTest) -> list[Any]:
    """Rows and dead letters without the batch that wrote them."""
    return content(pipeline)[:2]


def test_rows_dead_letters_and_position_go_together_and_the_next_run_loads_them_again_once(
    pipeline: FedPipeline, name: str
) -> None:
    pipeline.send('{"n": 1}', '{"n": 2}')
    first = pipeline.load_here()
    pipeline.send('{"n": 3}', "{broken", '{"n": 5}')
    pipeline.send('{"n": 6}', partition=1)
    second = pipeline.load_here()
    loaded = records(pipeline)

    record = roll_back(pipeline)

    assert (record["batch_ids"], record["superseded"]) == ([second["batch_id"]], None)
    assert [(s["partition"], s["from_offset"], s["to_offset"], s["counts"]) for s in record["spans"]] == [
        (0, 5, 2, {"rows": 2, "dead_letters": 1}),
        (1, 1, 0, {"rows": 1, "dead_letters": 0}),
    ]
    assert content(pipeline) == [
        [(0, 0, 1), (0, 1, 2)],
        [],
        [(first["batch_id"], "committed"), (second["batch_id"], "rolled_back")],
        [(0, 2, 2, 1), (1, 0, 0, 1)],
    ]
    assert pipeline.command("audit", "events")[:2] == (0, [])
    again = pipeline.load_here()
    assert (again["ranges"], records(pipeline)) == ({name: {"0": [2, 5], "1": [0, 1]}}, loaded)
    assert pipeline.load_here()["ranges"] == {}


def test_the_change_is_recorded_with_who_when_why_from_and_to(pipeline: FedPipeline, name: str) -> None:
    pipeline.send('{"n": 1}', '{"n": 2}')
    batch = pipeline.load_here()
    roll_back(pipeline, 1, "--request-id", "incident-812")
    [row] = pipeline.query(
        "SELECT request_id, pipeline, topic, partition, who <> '', why, from_offset, from_line, to_offset, to_line,"
        " to_topic_id = from_topic_id, details FROM kafka_ingest.position_change WHERE kind = 'rolled_back'"
    )
    details = {"batches": 1, "batch_ids": [batch["batch_id"]], "superseded": None, "rows": 2, "dead_letters": 0}
    assert row == ("incident-812", "events", name, 0, True, "wrong data", 2, 0, 0, 1, True, details)


def test_it_is_shown_first_and_the_same_request_id_is_done_once(pipeline: FedPipeline, name: str) -> None:
    for number in (1, 2):
        pipeline.send(f'{{"n": {number}}}')
        pipeline.load_here()
    before = content(pipeline)
    code, shown, _ = pipeline.command("roll-back", "events", "--batches", "1")
    assert (code, [(p["from"], p["to"]) for p in shown["positions"]], content(pipeline)) == (0, [(2, 1)], before)

    once = roll_back(pipeline, 1, "--request-id", "r")
    after = content(pipeline)
    assert (roll_back(pipeline, 1, "--request-id", "r"), content(pipeline)) == (once, after)
    assert after[0] == [(0, 0, 1)]


def test_two_batches_are_rolled_back_also_where_only_one_touched_a_partition(pipeline: FedPipeline, name: str) -> None:
    pipeline.send('{"n": 1}')
    pipeline.load_here()
    pipeline.send('{"n": 2}', partition=1)
    pipeline.load_here()
    pipeline.send('{"n": 3}')
    pipeline.load_here()
    loaded = records(pipeline)
    roll_back(pipeline, 2)
    assert content(pipeline)[0] == [(0, 0, 1)]
    assert pipeline.query(POSITIONS) == [(0, 1, 1, 1), (1, 0, 0, 1)]
    pipeline.load_here()
    assert records(pipeline) == loaded


def test_the_run_of_a_batch_that_was_rolled_back_plans_anew(pipeline: FedPipeline, name: str) -> None:
    pipeline.send('{"n": 1}')
    batch = pipeline.load_here(run_id="r1")
    roll_back(pipeline)
    pipeline.send('{"n": 2}')
    again = pipeline.load_here(run_id="r1")
    assert again["batch_id"] != batch["batch_id"]
    assert (again["ranges"], pipeline.rows("n")) == ({name: {"0": [0, 2]}}, [(1,), (2,)])


def test_a_reload_in_between_loses_what_lies_above_the_new_position(pipeline: FedPipeline, name: str) -> None:
    pipeline.send('{"n": 1}', '{"n": 2}')
    pipeline.load_here()
    pipeline.send('{"n": 3}', '{"n": 4}')
    second = pipeline.load_here()
    loaded = records(pipeline)
    reload = pipeline.load_here(RunOptions(RunMode.RELOAD, offsets=(OffsetSpan(name, 0, 1, 3),)))
    assert roll_back(pipeline)["batch_ids"] == [second["batch_id"]]
    assert pipeline.rows("kafka_offset, batch_id::text")[1] == (1, reload["batch_id"])
    assert len(pipeline.rows("n")) == 2
    assert pipeline.command("audit", "events")[:2] == (0, [])
    pipeline.load_here()
    assert records(pipeline) == loaded


def test_a_roll_back_stops_at_a_reset_and_the_next_run_still_replaces_what_lies_above(
    pipeline: FedPipeline, name: str
) -> None:
    pipeline.send(*[f'{{"n": {number}}}' for number in range(6)])
    first = pipeline.load_here()
    loaded = records(pipeline)
    reset = ("change", "events", "reset", "--to-offset", name, "0", "2", "--reason", "mapping", "--apply")
    assert pipeline.command(*reset)[0] == 0
    assert "never passes a position change" in refused(pipeline)

    second = pipeline.load_here(RunOptions(limit_offsets=2))
    assert second["ranges"] == {name: {"0": [2, 4]}}
    assert roll_back(pipeline)["batch_ids"] == [second["batch_id"]]
    assert pipeline.query(STATES) == [(first["batch_id"], "committed"), (second["batch_id"], "rolled_back")]
    assert pipeline.query(POSITIONS) == [(0, 2, 6, 2), (1, 0, 0, 0)]
    assert pipeline.rows("n") == [(0,), (1,), (4,), (5,)]
    assert pipeline.command("audit", "events")[:2] == (0, [])
    pipeline.load_here()
    assert records(pipeline) == loaded


def test_what_the_log_no_longer_holds_is_not_rolled_back(
    pipeline: FedPipeline, name: str, kafka_broker: KafkaBroker
) -> None:
    pipeline.send('{"n": 1}', '{"n": 2}')
    pipeline.load_here()
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap})
    admin.delete_records([TopicPartition(name, 0, 1)])[TopicPartition(name, 0, 1)].result(30)
    notes = refused(pipeline)
    assert '"class": "OffsetsExpired"' in notes
    assert "1 offsets could not be read again" in notes


def test_a_topic_that_is_gone_is_not_rolled_back(pipeline: FedPipeline, name: str, kafka_broker: KafkaBroker) -> None:
    pipeline.send('{"n": 1}')
    pipeline.load_here()
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap})
    admin.delete_topics([name])[name].result(30)
    assert "no such topic in the cluster" in refused(pipeline)


def test_a_compacted_topic_is_rolled_back_only_where_that_is_allowed(pipeline: FedPipeline) -> None:
    pipeline.open(1, {"cleanup.policy": "compact"}, value=JSON)
    pipeline.send('{"n": 1}', key="k")
    pipeline.load_here()
    assert "cleanup.policy compact" in refused(pipeline)
    assert roll_back(pipeline, 1, "--allow-compacted")["spans"][0]["to_offset"] == 0


def test_a_reason_is_needed(pipeline: FedPipeline, name: str) -> None:
    pipeline.send('{"n": 1}')
    pipeline.load_here()
    code, _, notes = pipeline.command("roll-back", "events", "--batches", "1", "--apply")
    assert (code, '"class": "ConfigError"' in notes, len(pipeline.rows("n"))) == (78, True, 1)


def test_names_of_the_table_and_its_metadata_columns_are_quoted(pipeline: FedPipeline) -> None:
    odd = {"topic": "From", "generation": "select", "partition": "Partition", "offset": "offset$1"}
    pipeline.open(value=JSON, target={"table": "shop.Order", "create_table": True}, metadata_columns=odd)
    pipeline.send('{"n": 1}')
    pipeline.load_here()
    roll_back(pipeline)
    assert pipeline.query('SELECT n FROM shop."Order"') == []


def test_rows_that_a_trigger_keeps_from_being_deleted_stop_the_roll_back(pipeline: FedPipeline, name: str) -> None:
    pipeline.send('{"n": 1}', '{"n": 2}')
    pipeline.load_here()
    pipeline.query(
        "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN IF old.n = 2 THEN RETURN NULL; END IF; RETURN old; END $$"
    )
    pipeline.query("CREATE TRIGGER keeper BEFORE DELETE ON shop.events FOR EACH ROW EXECUTE FUNCTION keep()")
    notes = refused(pipeline)
    assert "1 rows still stand" in notes
    assert "trigger keeper on shop.events" in notes
    pipeline.query("DROP TRIGGER keeper ON shop.events")
    roll_back(pipeline)
    assert pipeline.rows("n") == []
