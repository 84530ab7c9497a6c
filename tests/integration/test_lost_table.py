"""The target is dropped, renamed away or not there for a time: it is created anew only where nothing is lost by it."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from kafka_ingest.errors import IngestError, TargetMismatch
from kafka_ingest.pipeline_files.files import find_pipeline
from kafka_ingest.postgres.target import PostgresTarget
from sandbox.kafka import KafkaBroker
from tests.integration.pipeline_under_test import FedPipeline, PipelineUnderTest
from tests.integration.test_change_positions import change
from tests.services import TopicFactory

GONE = "the table shop.events is gone"
OFFSETS = "SELECT kafka_offset FROM shop.events ORDER BY 1"


@pytest.fixture
def loaded(pipeline: FedPipeline) -> str:
    """The topic, of whose records a, b and c were loaded into a table that the pipeline has created; d waits."""
    name = pipeline.open()
    pipeline.send(*"abc")
    pipeline.load_here()
    pipeline.send("d")
    return name


def reset(pipeline: PipelineUnderTest) -> list[dict[str, Any]]:
    """Resets all positions to the log start, as the message says; gives those that moved."""
    code, made, notes = pipeline.command("change", "events", "reset", "--to", "earliest", "--reason", "lost", "--apply")
    assert code == 0, notes
    return list(made["positions"])


@pytest.mark.parametrize(
    "statement", ["DROP TABLE shop.events", "DROP SCHEMA shop CASCADE", "ALTER TABLE shop.events RENAME TO events_old"]
)
def test_a_table_that_is_gone_stops_the_run_instead_of_being_created_anew(
    pipeline: PipelineUnderTest, loaded: str, statement: str
) -> None:
    pipeline.query(statement)
    with pytest.raises(TargetMismatch, match=GONE) as stopped:
        pipeline.load_here()
    (batch_id,) = pipeline.query("SELECT batch_id::text FROM kafka_ingest.batch")[0]
    assert "pipeline events" in stopped.value.expected
    assert f"3 rows of batch {batch_id}" in stopped.value.expected
    assert 'change events reset --to earliest --reason "..."' in stopped.value.next_command
    assert "change-target" in stopped.value.next_command
    assert pipeline.query("SELECT to_regclass('shop.events')::text") == [(None,)]
    assert pipeline.query("SELECT committed_offset FROM kafka_ingest.committed_offset") == [(3,)]


def test_a_table_that_is_put_back_is_loaded_on(pipeline: PipelineUnderTest, loaded: str) -> None:
    pipeline.query("ALTER TABLE shop.events RENAME TO away")
    with pytest.raises(TargetMismatch):
        pipeline.load_here()
    pipeline.query("ALTER TABLE shop.away RENAME TO events")
    pipeline.load_here()
    assert pipeline.query(OFFSETS) == [(0,), (1,), (2,), (3,)]


def test_a_file_that_does_not_create_tables_is_not_told_to_create_an_empty_one(
    pipeline: PipelineUnderTest, loaded: str
) -> None:
    pipeline.write(loaded, target={"table": "shop.events"})
    pipeline.query("DROP TABLE shop.events")
    with pytest.raises(TargetMismatch, match=GONE) as stopped:
        pipeline.load_here()
    assert "CREATE TABLE" not in str(stopped.value)


def test_a_job_finds_the_table_gone_too(pipeline: PipelineUnderTest, loaded: str) -> None:
    pipeline.query("DROP TABLE shop.events")
    with pytest.raises(TargetMismatch, match=GONE):
        PostgresTarget(pipeline.database).shape(find_pipeline("events").batch)


def test_preflight_says_that_the_table_is_gone(pipeline: PipelineUnderTest, loaded: str) -> None:
    pipeline.query("DROP TABLE shop.events")
    code, checks, _ = pipeline.command("preflight", "events")
    [table] = [check for check in checks if check["check"] == "target table"]
    assert (code, table["result"]) == (78, "fail")
    assert "3 rows of batch" in table["found"]


def test_after_a_reset_to_the_log_start_the_table_is_created_and_loaded_anew(
    pipeline: PipelineUnderTest, loaded: str
) -> None:
    pipeline.query("DROP TABLE shop.events")
    reset(pipeline)
    pipeline.load_here()
    assert pipeline.query(OFFSETS) == [(0,), (1,), (2,), (3,)]
    pipeline.query("DROP TABLE shop.events")
    with pytest.raises(TargetMismatch, match=GONE):  # what was loaded after the reset counts again
        pipeline.load_here()


def test_after_retention_the_reset_gives_up_what_kafka_no_longer_holds(
    pipeline: PipelineUnderTest, loaded: str, kafka_broker: KafkaBroker
) -> None:
    pipeline.load_here()
    pipeline.query("DROP TABLE shop.events")
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap})
    (answer,) = admin.delete_records([TopicPartition(loaded, 0, 4)]).values()
    answer.result(30)
    with pytest.raises(TargetMismatch, match=GONE):
        pipeline.load_here()
    # Nothing moves: the position is at the log start already. That it was said is recorded all the same.
    assert reset(pipeline) == []
    pipeline.load_here()
    assert pipeline.query(OFFSETS) == []


@pytest.mark.parametrize("arguments", ["--by -3", "--to latest", "--to earliest --only TOPIC 0"])
def test_another_reset_does_not_say_that_the_rows_are_given_up(
    pipeline: PipelineUnderTest, loaded: str, arguments: str
) -> None:
    change(pipeline, "reset", *arguments.replace("TOPIC", loaded).split())
    pipeline.query("DROP TABLE shop.events")
    with pytest.raises(TargetMismatch, match=GONE):
        pipeline.load_here()


def test_another_target_is_created_and_so_is_the_former_one_when_the_pipeline_comes_back(
    pipeline: FedPipeline, loaded: str
) -> None:
    pipeline.write(loaded, target={"table": "mart.sales", "create_table": True})
    change(pipeline, "change-target")
    pipeline.load_here()
    assert pipeline.query("SELECT kafka_offset FROM mart.sales") == [(3,)]
    pipeline.query("DROP TABLE shop.events")
    pipeline.write(loaded)
    change(pipeline, "change-target")
    pipeline.send("e")
    pipeline.load_here()
    assert pipeline.query(OFFSETS) == [(4,)]


def test_after_everything_was_rolled_back_the_table_may_be_created(pipeline: PipelineUnderTest, loaded: str) -> None:
    code, _, notes = pipeline.command("roll-back", "events", "--batches", "1", "--reason", "spoilt", "--apply")
    assert code == 0, notes
    pipeline.query("DROP TABLE shop.events")
    pipeline.load_here()
    assert pipeline.query(OFFSETS) == [(0,), (1,), (2,), (3,)]


def test_a_table_is_created_again_while_nothing_was_committed_into_it(pipeline: FedPipeline) -> None:
    pipeline.open()
    pipeline.load_here()
    pipeline.query("DROP TABLE shop.events")
    pipeline.send("a")
    pipeline.load_here()
    assert pipeline.query(OFFSETS) == [(0,)]


def test_a_table_that_another_pipeline_has_loaded_is_not_created_by_a_first_run(
    pipeline: PipelineUnderTest, loaded: str, topic: TopicFactory
) -> None:
    pipeline.query("DROP TABLE shop.events")
    other = PipelineUnderTest("other", pipeline.folder, pipeline.database, pipeline.capture)
    other.write(topic(), target={"table": "shop.events", "create_table": True})
    with pytest.raises(IngestError, match=GONE) as stopped:
        other.load_here()
    assert "pipeline events" in stopped.value.expected
