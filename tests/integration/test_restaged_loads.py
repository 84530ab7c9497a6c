"""Records whose fields change, loaded with real Kafka, decoder and PostgreSQL: not one value of them is lost."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from kafka_ingest.errors import TargetMismatch
from kafka_ingest.pipeline_files.files import find_pipeline
from kafka_ingest.protocol.batch import OffsetSpan, RunMode, RunOptions
from kafka_ingest.settings import NewFields, PipelineSettings
from spark_jobs import stage
from tests.integration.new_fields import adding_columns, reporting_new_fields
from tests.integration.pipeline_under_test import FedPipeline

ID = {"name": "id", "type": "bigint", "required": True}
VALUE = {"format": "json", "columns": [ID]}


@dataclass
class Evolving:
    """A pipeline that adds columns for new members, unless it is told another policy.

    Attributes:
        types: Types of members, as of a schema.
    """

    files: FedPipeline
    types: dict[str, str] = field(default_factory=dict)
    policy: NewFields = NewFields.ADD_COLUMN

    def send(self, *documents: dict[str, Any], partition: int = 0) -> None:
        self.files.send(*map(json.dumps, documents), partition=partition)

    def settings(self, name: str) -> PipelineSettings:
        adding = adding_columns(find_pipeline(name))
        value = replace(adding.batch.value, new_fields=self.policy)
        return replace(adding, batch=replace(adding.batch, value=value))


@pytest.fixture
def evolving(pipeline: FedPipeline, monkeypatch: pytest.MonkeyPatch) -> Evolving:
    """Two partitions, two tasks, one column."""
    files = Evolving(pipeline)
    monkeypatch.setattr("tests.integration.pipeline_under_test.find_pipeline", files.settings)
    monkeypatch.setattr(stage, "stage_task", reporting_new_fields(stage.stage_task, files.types))
    pipeline.open(2, value=VALUE, tombstones="count")
    return files


def test_a_field_that_appears_in_the_middle_of_a_batch_keeps_every_value(evolving: Evolving) -> None:
    pipeline = evolving.files
    evolving.send({"id": 0}, {"id": 1, "note": "first"}, {"id": 2, "note": None}, {"id": 3, "note": {"by": ["x", 1]}})
    pipeline.send("{broken")
    evolving.send({"id": 4, "total": 12.50}, {"id": 5, "note": 7}, partition=1)
    summary = pipeline.load_here()
    assert (summary["counts"]["rows"], summary["counts"]["dead_letters"]) == (6, 1)
    assert pipeline.rows("kafka_partition, id, note, total::text") == [
        (0, 0, None, None),
        (0, 1, "first", None),
        (0, 2, None, None),
        (0, 3, {"by": ["x", 1]}, None),
        (1, 4, None, "12.5"),
        (1, 5, 7, None),
    ]
    assert pipeline.query("SELECT claim, state FROM kafka_ingest.batch") == [(2, "committed")]
    assert pipeline.command("status", "events")[1][0]["added_columns"] == ["note", "total"]
    assert pipeline.query("SELECT count(*) FROM pg_tables WHERE schemaname = 'kafka_ingest_staging'") == [(0,)]


def test_later_batches_fill_the_column_in_one_pass_and_add_what_is_new_to_them(evolving: Evolving) -> None:
    pipeline = evolving.files
    evolving.send({"id": 0, "a": 1})
    pipeline.load_here()
    evolving.send({"id": 1, "a": 2})
    pipeline.load_here()
    evolving.send({"id": 2, "a": 3, "b": 4})
    pipeline.load_here()
    assert pipeline.rows("id, a, b") == [(0, 1, None), (1, 2, None), (2, 3, 4)]
    assert pipeline.query("SELECT claim FROM kafka_ingest.batch ORDER BY ordinal") == [(2,), (1,), (2,)]
    assert pipeline.command("audit", "events", "--all")[:2] == (0, [])


def test_a_reload_fills_the_columns_of_rows_from_before_they_were_added(evolving: Evolving) -> None:
    pipeline = evolving.files
    evolving.policy = NewFields.IGNORE
    evolving.send({"id": 0, "note": "old"})
    pipeline.load_here()
    evolving.policy = NewFields.ADD_COLUMN
    evolving.send({"id": 1, "note": "new"})
    pipeline.load_here()
    assert pipeline.rows("id, note") == [(0, None), (1, "new")]
    again = RunOptions(RunMode.RELOAD, offsets=(OffsetSpan(pipeline.topic, 0, 0, 2),), reason="old notes")
    pipeline.load_here(again)
    assert pipeline.rows("id, note") == [(0, "old"), (1, "new")]


def test_a_column_that_was_added_is_filled_under_every_policy(evolving: Evolving) -> None:
    pipeline = evolving.files
    evolving.send({"id": 0, "note": "a"})
    pipeline.load_here()
    evolving.policy = NewFields.IGNORE
    evolving.send({"id": 1, "note": "b", "other": 1})
    pipeline.load_here()
    assert pipeline.rows("id, note") == [(0, "a"), (1, "b")]
    assert pipeline.query("SELECT column_name FROM kafka_ingest.schema_change") == [("note",)]


def test_a_roll_back_and_the_load_after_it_keep_the_columns_and_their_values(evolving: Evolving) -> None:
    pipeline = evolving.files
    evolving.send({"id": 0, "note": "a"})
    pipeline.load_here()
    code, _, notes = pipeline.command("roll-back", "events", "--batches", "1", "--reason", "why", "--apply")
    assert code == 0, notes
    assert pipeline.rows("note") == []
    pipeline.load_here()
    assert pipeline.rows("id, note") == [(0, "a")]


def test_a_column_that_the_owner_writes_into_the_file_is_the_owners(evolving: Evolving) -> None:
    pipeline = evolving.files
    evolving.send({"id": 0, "note": 1, "total": 2})
    pipeline.load_here()
    pipeline.query("ALTER TABLE shop.events ALTER COLUMN note TYPE integer USING note::text::integer")
    own = {"name": "note", "type": "integer", "path": "$.note", "required": True}
    pipeline.write(pipeline.topic, value={"format": "json", "columns": [ID, own]}, tombstones="count")
    evolving.send({"id": 1, "note": 3, "total": 4}, {"id": 2, "note": "x", "total": 5})
    summary = pipeline.load_here()
    assert (summary["counts"]["rows"], summary["counts"]["dead_letters"]) == (1, 1)
    assert pipeline.rows("id, note, total") == [(0, 1, 2), (1, 3, 4)]


def test_a_column_that_somebody_drops_stops_the_next_plan(evolving: Evolving) -> None:
    pipeline = evolving.files
    evolving.send({"id": 0, "note": 1})
    pipeline.load_here()
    pipeline.query("ALTER TABLE shop.events DROP COLUMN note")
    evolving.send({"id": 1, "note": 2})
    with pytest.raises(TargetMismatch, match="column note: expected jsonb; found no such column"):
        pipeline.load_here()


def test_a_pipeline_that_is_renamed_keeps_its_columns(evolving: Evolving) -> None:
    pipeline = evolving.files
    evolving.send({"id": 0, "note": 1})
    pipeline.load_here()
    pipeline.query("UPDATE kafka_ingest.pipeline SET pipeline = 'facts'")
    assert pipeline.query("SELECT pipeline, column_name FROM kafka_ingest.schema_change") == [("facts", "note")]


def test_of_a_typed_column_later_values_that_do_not_fit_are_dead_letters(evolving: Evolving) -> None:
    """A schema gave the column its type; a later one says otherwise."""
    pipeline = evolving.files
    evolving.types["n"] = "integer"
    evolving.send({"id": 0, "n": 1})
    pipeline.load_here()
    evolving.send({"id": 1, "n": 2}, {"id": 2, "n": "two"}, {"id": 3, "n": 3_000_000_000})
    summary = pipeline.load_here()
    assert (summary["counts"]["rows"], summary["counts"]["dead_letters"]) == (1, 2)
    assert pipeline.rows("id, n") == [(0, 1), (1, 2)]
    assert pipeline.dead_letters('"offset", reason') == [(2, "wrong_type"), (3, "out_of_range")]
    [(type_,)] = pipeline.query("SELECT data_type FROM information_schema.columns WHERE column_name = 'n'")
    assert type_ == "integer"


def test_a_check_of_the_table_makes_dead_letters_of_values_of_a_new_column(evolving: Evolving) -> None:
    pipeline = evolving.files
    evolving.send({"id": 0, "note": 1})
    pipeline.load_here()
    pipeline.query("ALTER TABLE shop.events ADD CHECK (note <> '2')")
    evolving.send({"id": 1, "note": 2}, {"id": 2, "note": 3, "other": 4})
    pipeline.load_here()
    assert pipeline.rows("id, note, other") == [(0, 1, None), (2, 3, 4)]
    assert pipeline.dead_letters('"offset", reason') == [(1, "check_violation")]
