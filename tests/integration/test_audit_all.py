"""``audit --all``: every range that was ever published is counted in the table; ``audit`` says what it looked at."""

from __future__ import annotations

import pytest

from kafka_ingest.pipeline_files.files import find_pipeline
from kafka_ingest.postgres.reports import PostgresWrittenTable
from kafka_ingest.postgres.rows import settings_to_json
from kafka_ingest.protocol.audit import TableAudit, audit_table
from kafka_ingest.protocol.batch import OffsetSpan, RunMode, RunOptions
from tests.integration.pipeline_under_test import FedPipeline, PipelineUnderTest

BATCHES, PARTITIONS, OFFSETS = 250, 8, 10
TEXT = {"value": {"format": "text", "column": "body"}, "key": None, "headers": None, "metadata_columns": None}

UUID = "('00000000-0000-4000-8000-' || lpad(({})::text, 12, '0'))::uuid"

#: 250 batches of 10 offsets in each of 8 partitions, then a reload of [1000, 1505) in partition 3.
_FILL = f"""
INSERT INTO kafka_ingest.pipeline (
    pipeline, target_schema, target_table, cluster_id, isolation_level, first_run, topic_column, generation_column,
    partition_column, offset_column
)
VALUES (
    'events', 'shop', 'events', 'c', 'read_committed', '{{"kind": "earliest"}}', 'kafka_topic', 'kafka_generation',
    'kafka_partition', 'kafka_offset'
);
INSERT INTO kafka_ingest.batch (
    batch_id, pipeline, dag_id, run_id, task_group, map_index, request_number, clear_number, parameters, kind, state,
    settings, settings_hash, protocol_version, target_schema, target_table, cluster_id, planned_at, committed_at,
    rows, deletes, superseded, dead_letters, tombstones, filtered, invisible
)
SELECT
    {UUID.format("b")}, 'events', 'd', 'run ' || b, '', -1, 0, 0, '{{}}', 'live', 'committed', %s, 'h', 1, 'shop',
    'events', 'c', now(), now(), CASE WHEN b > {BATCHES} THEN 505 ELSE {PARTITIONS * OFFSETS} END, 0, 0, 0, 0,
    0, 0
FROM generate_series(1, {BATCHES} + 1) AS b;
INSERT INTO kafka_ingest.batch_partition (
    batch_id, pipeline, topic, generation, partition, line, range_start, range_end, committed_before, committed_after,
    loaded_to, reaches_high_watermark, published, rows, deletes, superseded, dead_letters,
    tombstones, filtered, invisible
)
SELECT
    {UUID.format("b")}, 'events', 'orders', 0, p, 0, (b - 1) * {OFFSETS}, b * {OFFSETS}, (b - 1) * {OFFSETS},
    b * {OFFSETS}, (b - 1) * {OFFSETS}, false, true, {OFFSETS}, 0, 0, 0, 0, 0, 0
FROM generate_series(1, {BATCHES}) AS b
CROSS JOIN generate_series(0, {PARTITIONS - 1}) AS p
UNION ALL
SELECT
    {UUID.format(BATCHES + 1)}, 'events', 'orders', 0, 3, 0, 1000, 1505, {BATCHES * OFFSETS}, {BATCHES * OFFSETS},
    {BATCHES * OFFSETS}, false, true, 505, 0, 0, 0, 0, 0, 0;
INSERT INTO kafka_ingest.position_change (
    request_id, kind, pipeline, topic, partition, who, why, to_offset, to_generation, to_line
)
SELECT 'first', 'initialised', 'events', 'orders', p, 'plan', 'first plan', 0, 0, 0
FROM generate_series(0, {PARTITIONS - 1}) AS p;
CREATE SCHEMA shop;
CREATE TABLE shop.events (
    body text, kafka_topic text NOT NULL, kafka_generation integer NOT NULL, kafka_partition integer NOT NULL,
    kafka_offset bigint NOT NULL, kafka_timestamp timestamptz, batch_id uuid NOT NULL
);
INSERT INTO shop.events (kafka_topic, kafka_generation, kafka_partition, kafka_offset, batch_id)
SELECT 'orders', 0, p, o, {UUID.format(1)}
FROM generate_series(0, {BATCHES * OFFSETS - 1}) AS o
CROSS JOIN generate_series(0, {PARTITIONS - 1}) AS p;
CREATE INDEX ON shop.events USING brin (kafka_partition, kafka_offset);
"""


@pytest.fixture
def grown(pipeline: PipelineUnderTest) -> PipelineUnderTest:
    """A ledger of 2,001 ranges, and a table with what they hold: 20,000 rows."""
    pipeline.write("orders", **TEXT)
    pipeline.query(_FILL, settings_to_json(find_pipeline("events").batch))
    return pipeline


def audit(pipeline: PipelineUnderTest, *arguments: str) -> tuple[int, list[str], list[str]]:
    """Return the exit code, what is wrong in the table, and the notes."""
    code, found, notes = pipeline.command("audit", "events", *arguments)
    return code, [row["row"] for row in found if row["invariant"] == "target_rows"], notes.splitlines()


def range_of(batch: int, partition: int, spans: str) -> str:
    where = f"topic orders, generation 0, partition {partition}, offsets {spans}"
    return f"{where} of batch 00000000-0000-4000-8000-{batch:012}"


def delete(pipeline: PipelineUnderTest, partition: int, offset: int) -> None:
    pipeline.query(f"DELETE FROM shop.events WHERE kafka_partition = {partition} AND kafka_offset = {offset}")


def double(pipeline: PipelineUnderTest, partition: int, offset: int) -> None:
    row = f"SELECT * FROM shop.events WHERE kafka_partition = {partition} AND kafka_offset = {offset}"
    pipeline.query(f"INSERT INTO shop.events {row}")


def test_a_sound_table_is_green_and_progress_is_told(grown: PipelineUnderTest) -> None:
    code, found, notes = audit(grown, "--all")
    assert (code, found) == (0, [])
    assert notes[0].startswith("checked in the ledger: the newest 251 batches (00000000-0000-4000-8000-000000000001 to")
    told = [line for line in notes if " %: " in line]
    assert told[-1] == "100 %: 2001 of 2001 ranges, 0 of them with faults"
    assert len(told) == 3  # a step is 100 batches
    assert "checked in the table: 2001 of 2001 published ranges, 20,000 rows" in notes


def test_a_plain_audit_says_what_it_did_not_look_at(grown: PipelineUnderTest) -> None:
    delete(grown, 0, 17)
    code, found, notes = audit(grown)
    assert (code, found) == (0, [])
    assert notes[1] == (
        "checked in the table: 1 ranges of the newest batch; 2000 other ranges were not looked at: "
        "python -m kafka_ingest audit events --all"
    )


def test_a_deleted_and_a_doubled_row_of_old_batches_are_found_with_their_offsets(grown: PipelineUnderTest) -> None:
    delete(grown, 0, 17)
    double(grown, 5, 42)
    code, found, notes = audit(grown, "--all")
    assert code == 65
    assert sorted(found) == [
        range_of(2, 0, "[10, 20)") + ": 10 rows, found 9, 1 missing; without a row or dead letter: 17",
        range_of(5, 5, "[40, 50)") + ": 10 rows, found 11, 1 doubled; doubled: 42",
    ]
    assert notes[-1] == "2 ranges with faults: 1 rows missing, 1 doubled, 0 loaded by nobody"


def test_a_row_that_a_reload_wrote_is_its_own_and_the_rest_of_an_old_range_is_not(grown: PipelineUnderTest) -> None:
    # The reload ends at 1505, in the middle of [1500, 1510) of batch 151.
    delete(grown, 3, 1200)
    delete(grown, 3, 1507)
    assert audit(grown, "--all")[1] == [
        range_of(251, 3, "[1000, 1505)") + ": 505 rows, found 504, 1 missing; without a row or dead letter: 1200",
        range_of(151, 3, "[1505, 1510)") + ": 5 rows, found 4, 1 missing; without a row or dead letter: 1507",
    ]


def test_an_emptied_table_is_found_and_only_the_first_ranges_are_listed(grown: PipelineUnderTest) -> None:
    grown.query("TRUNCATE shop.events")
    code, found, notes = audit(grown, "--all")
    assert (code, len(found)) == (65, 100)
    assert notes[-1] == (
        # 50 ranges were replaced as a whole: nothing of them is left to look at.
        "1951 ranges with faults: 20,000 rows missing, 0 doubled, 0 loaded by nobody; the first 100 are listed"
    )


def test_a_table_that_is_gone_stops_the_audit(grown: PipelineUnderTest) -> None:
    grown.query("DROP TABLE shop.events")
    code, _, notes = grown.command("audit", "events", "--all")
    assert (code, '"class": "TargetMismatch"' in notes) == (78, True)


def test_the_table_is_read_once_in_few_statements(grown: PipelineUnderTest) -> None:
    table = PostgresWrittenTable(grown.database, "events")
    statements: list[int] = []
    audit_table(table, lambda found: statements.append(found.offsets))
    assert len(statements) == 3


def test_what_is_reloaded_while_the_audit_runs_is_not_taken_for_a_fault(grown: PipelineUnderTest) -> None:
    """After the first step a reload of [10, 20) in partition 0 is published, in which all records are tombstones."""

    def reload_once(found: TableAudit) -> None:
        if grown.query("SELECT 1 FROM shop.events WHERE kafka_partition = 0 AND kafka_offset = 10"):
            grown.query(_RELOAD)

    audit = audit_table(PostgresWrittenTable(grown.database, "events"), reload_once)
    assert (audit.faulty, audit.written_since) == (0, 1)
    audit = audit_table(PostgresWrittenTable(grown.database, "events"), lambda _: None)
    assert (audit.faulty, audit.written_since, audit.rows) == (0, 0, 19_990)


_RELOAD = f"""
INSERT INTO kafka_ingest.batch (
    batch_id, pipeline, dag_id, run_id, task_group, map_index, request_number, clear_number, parameters, kind, state,
    settings, settings_hash, protocol_version, target_schema, target_table, cluster_id, planned_at, committed_at,
    rows, deletes, superseded, dead_letters, tombstones, filtered, invisible
)
SELECT
    {UUID.format(900)}, pipeline, dag_id, 'reload', task_group, map_index, 0, 0, parameters, 'reload', state, settings,
    'h', 1, target_schema, target_table, cluster_id, planned_at, committed_at, 0, 0, 0, 0, 10, 0,
    0
FROM kafka_ingest.batch WHERE run_id = 'run 1';
INSERT INTO kafka_ingest.batch_partition (
    batch_id, pipeline, topic, generation, partition, line, range_start, range_end, committed_before, committed_after,
    loaded_to, reaches_high_watermark, published, rows, deletes, superseded, dead_letters,
    tombstones, filtered, invisible
)
VALUES ({UUID.format(900)}, 'events', 'orders', 0, 0, 0, 10, 20, 2500, 2500, 2500, false, true, 0, 0, 0, 0, 10, 0, 0);
DELETE FROM shop.events WHERE kafka_partition = 0 AND kafka_offset BETWEEN 10 AND 19;
"""


def test_resolved_dead_letters_and_their_rows_are_not_the_audits_business(grown: PipelineUnderTest) -> None:
    grown.query(
        "UPDATE kafka_ingest.batch_partition SET rows = 9, dead_letters = 1 WHERE partition = 0 AND range_start = 10"
    )
    grown.query(
        "UPDATE kafka_ingest.batch SET rows = rows - 1, dead_letters = 1"
        " WHERE batch_id = '00000000-0000-4000-8000-000000000002'"
    )
    grown.query(
        'INSERT INTO kafka_ingest.dead_letter (pipeline, topic, generation, partition, "offset", reason, detail,'
        " batch_id, resolved_at, resolution) VALUES ('events', 'orders', 0, 0, 17, 'malformed', '',"
        " '00000000-0000-4000-8000-000000000002', now(), 'by hand')"
    )
    assert audit(grown, "--all")[:2] == (0, [])
    delete(grown, 0, 17)
    assert audit(grown, "--all")[:2] == (0, [])


@pytest.fixture
def loaded(pipeline: FedPipeline) -> str:
    """The topic, whose records a to f were loaded by three batches of two records each."""
    name = pipeline.open(**TEXT)
    for two in ("ab", "cd", "ef"):
        pipeline.send(*two)
        pipeline.load_here()
    return name


def test_loads_reloads_roll_backs_and_resets_leave_a_table_that_is_whole(pipeline: FedPipeline, loaded: str) -> None:
    def is_whole() -> bool:
        return audit(pipeline, "--all")[:2] == (0, [])

    assert is_whole()
    pipeline.load_here(RunOptions(RunMode.RELOAD, offsets=(OffsetSpan(loaded, 0, 1, 5),)))
    assert is_whole()
    code, _, notes = pipeline.command("roll-back", "events", "--batches", "1", "--reason", "spoilt", "--apply")
    assert code == 0, notes
    assert is_whole()
    pipeline.query("INSERT INTO shop.events SELECT * FROM shop.events WHERE kafka_offset = 0")
    assert audit(pipeline, "--all")[0] == 65
    assert pipeline.command("change", "events", "reset", "--by", "-3", "--reason", "again", "--apply")[0] == 0
    pipeline.send("g")
    pipeline.load_here()
    _, [row], _ = audit(pipeline, "--all")
    assert row.endswith("1 rows, found 2, 1 doubled; doubled: 0")


def test_after_a_reset_to_the_log_start_rows_may_be_gone_until_they_are_loaded_again(
    pipeline: PipelineUnderTest, loaded: str
) -> None:
    pipeline.query("DELETE FROM shop.events WHERE kafka_offset = 1")
    assert audit(pipeline, "--all")[0] == 65
    assert pipeline.command("change", "events", "reset", "--to", "earliest", "--reason", "again", "--apply")[0] == 0
    code, _, notes = audit(pipeline, "--all")
    assert code == 0
    assert "3 ranges loaded before a reset to the log start or a change of table" in notes[-1]
    pipeline.load_here()
    assert audit(pipeline, "--all")[:2] == (0, [])
    pipeline.query("DELETE FROM shop.events WHERE kafka_offset = 1")
    assert audit(pipeline, "--all")[0] == 65


def test_a_pipeline_that_never_planned_has_nothing_to_count(pipeline: PipelineUnderTest) -> None:
    pipeline.write("orders", **TEXT)
    code, found, notes = audit(pipeline, "--all")
    assert (code, found) == (0, [])
    assert "checked in the table: 0 of 0 published ranges, 0 rows" in notes
