"""Columns by which rows are found again get another name: nothing is doubled, whatever is renamed first."""

from __future__ import annotations

import pytest

from kafka_ingest.errors import ConfigError, TargetMismatch
from kafka_ingest.protocol.batch import OffsetSpan, RunMode, RunOptions
from tests.integration.pipeline_under_test import FedPipeline, PipelineUnderTest
from tests.integration.test_change_positions import change

TEXT = {"value": {"format": "text", "column": "body"}, "key": None, "headers": None, "metadata_columns": None}
RENAMED = {**TEXT, "metadata_columns": {"offset": "source_offset"}}
RENAME_IN_TABLE = "ALTER TABLE shop.events RENAME COLUMN kafka_offset TO source_offset"
CHANGE = ("change", "events", "change-identity-columns", "--reason", "house style")
BODIES = "SELECT body, count(*) FROM shop.events GROUP BY body ORDER BY body"
ONCE_EACH = [("a", 1), ("b", 1), ("c", 1)]


@pytest.fixture
def loaded(pipeline: FedPipeline) -> str:
    """The topic, of whose records a, b and c stand in the table; d waits."""
    name = pipeline.open(**TEXT)
    pipeline.send(*"abc")
    pipeline.load_here()
    pipeline.send("d")
    return name


def reload_of(topic: str) -> RunOptions:
    return RunOptions(RunMode.RELOAD, offsets=(OffsetSpan(topic, 0, 0, 3),))


def test_a_run_with_another_name_stops_before_it_looks_at_the_table(pipeline: PipelineUnderTest, loaded: str) -> None:
    pipeline.write(loaded, **RENAMED)
    with pytest.raises(ConfigError) as stopped:
        pipeline.load_here()
    assert 'RENAME COLUMN "kafka_offset" TO "source_offset";' in stopped.value.next_command
    pipeline.query("ALTER TABLE shop.events ADD COLUMN source_offset bigint, ALTER kafka_offset DROP NOT NULL")
    with pytest.raises(ConfigError):
        pipeline.load_here(reload_of(loaded))
    assert pipeline.query(BODIES) == ONCE_EACH


def test_a_column_that_was_added_instead_of_renamed_is_not_accepted(pipeline: PipelineUnderTest, loaded: str) -> None:
    pipeline.write(loaded, **RENAMED)
    pipeline.query("ALTER TABLE shop.events ADD COLUMN source_offset bigint, ALTER kafka_offset DROP NOT NULL")
    code, _, notes = pipeline.command(*CHANGE, "--apply")
    assert (code, '"class": "TargetMismatch"' in notes, "kafka_offset is still there" in notes) == (78, True, True)
    pipeline.query("ALTER TABLE shop.events DROP COLUMN source_offset")
    pipeline.query(RENAME_IN_TABLE)
    assert pipeline.command(*CHANGE, "--apply")[0] == 0


def test_a_reload_replaces_once_columns_are_renamed_in_table_file_and_ledger(
    pipeline: PipelineUnderTest, loaded: str
) -> None:
    pipeline.write(loaded, **RENAMED)
    pipeline.query(RENAME_IN_TABLE)
    made = change(pipeline, "change-identity-columns")  # the audit beside it finds the rows under their new name
    assert made["settings"] == [{"name": "column of offset", "from": "kafka_offset", "to": "source_offset"}]
    assert pipeline.load_here(reload_of(loaded))["counts"]["rows"] == 3
    assert pipeline.query(BODIES) == ONCE_EACH
    assert pipeline.load_here()["counts"]["rows"] == 1
    assert pipeline.query("SELECT body, source_offset FROM shop.events ORDER BY 2") == [
        ("a", 0),
        ("b", 1),
        ("c", 2),
        ("d", 3),
    ]


def test_a_batch_of_before_the_renaming_is_rolled_back_by_the_new_names(
    pipeline: PipelineUnderTest, loaded: str
) -> None:
    pipeline.write(loaded, **RENAMED)
    pipeline.query(RENAME_IN_TABLE)
    change(pipeline, "change-identity-columns")
    code, _, notes = pipeline.command("roll-back", "events", "--batches", "1", "--reason", "spoilt", "--apply")
    assert code == 0, notes
    assert pipeline.query(BODIES) == []
    assert pipeline.load_here()["counts"]["rows"] == 4


def test_a_column_that_was_renamed_in_the_table_alone_is_not_to_be_added(
    pipeline: PipelineUnderTest, loaded: str
) -> None:
    pipeline.query(RENAME_IN_TABLE)
    with pytest.raises(TargetMismatch) as stopped:
        pipeline.load_here()
    assert 'RENAME COLUMN ... TO "kafka_offset"; never ADD COLUMN' in stopped.value.found
    assert "pipeline events" in stopped.value.found
    _, found, _ = pipeline.command("preflight", "events")
    assert "never ADD COLUMN" in str(found)


def test_a_column_is_added_to_a_table_that_nothing_was_loaded_into(pipeline: FedPipeline) -> None:
    pipeline.open(**TEXT)
    pipeline.query("CREATE SCHEMA shop")
    pipeline.query(
        "CREATE TABLE shop.events (body text, kafka_topic text, kafka_generation integer, kafka_partition integer,"
        " kafka_timestamp timestamptz, batch_id uuid)"
    )
    pipeline.send("a")
    with pytest.raises(TargetMismatch) as stopped:
        pipeline.load_here()
    statement = 'ALTER TABLE "shop"."events" ADD COLUMN "kafka_offset" bigint;'
    assert statement in stopped.value.found
    pipeline.query(statement)
    assert pipeline.load_here()["counts"]["rows"] == 1
