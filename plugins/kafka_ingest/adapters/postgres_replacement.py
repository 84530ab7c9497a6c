"""Deletes what a batch replaces, within the publish transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg2 import sql

from kafka_ingest.adapters.postgres_audit import target_identifiers
from kafka_ingest.adapters.postgres_connection import Cursor
from kafka_ingest.adapters.postgres_publish_faults import hooks_fault
from kafka_ingest.adapters.postgres_rows import Row, fetch_row, query_with_identifiers, rows_of
from kafka_ingest.adapters.postgres_staging import staging_table
from kafka_ingest.adapters.target_catalog import read_hooks
from kafka_ingest.core.batch import Batch
from kafka_ingest.core.offsets import OffsetRange, TopicPartition
from kafka_ingest.core.outcome import BatchOutcome
from kafka_ingest.core.replacement import FIRST_OFFSETS, KeptDeadLetters, ReplacedPartition, Replacement
from kafka_ingest.core.staging import staging_name


def replace_loaded(cursor: Cursor, batch: Batch, outcome: BatchOutcome, *, with_resolved: bool) -> Replacement:
    """Deletes rows and dead letters in the replaced part of every range; nothing is asked where no range has one.

    psycopg2's errors pass through.

    Args:
        cursor: The publish transaction, with batch and positions locked.
        batch: The claimed batch.
        outcome: Whose staged records take the place.
        with_resolved: Whether resolved dead letters and their rows are deleted, too.

    Raises:
        TargetMismatch: A trigger or rule kept rows from being deleted.
    """
    replacing = [r for r in batch.ranges if r.replaced_to > r.start]
    if not replacing:
        return Replacement()
    parameters = {
        "pipeline": batch.pipeline,
        "with_resolved": with_resolved,
        "first_offsets": FIRST_OFFSETS,
        "task": list(outcome.winners.keys()),
        "attempt": list(outcome.winners.values()),
        **_spans(replacing),
    }
    names = _names(batch)
    cursor.execute(query_with_identifiers("queries/delete_replaced", **names), parameters)
    replaced = tuple(_replaced(row) for row in rows_of(cursor))
    _require_none_left(cursor, batch, parameters)
    return Replacement(replaced, () if with_resolved else _kept(cursor, names, parameters))


def _require_none_left(cursor: Cursor, batch: Batch, parameters: dict[str, Any]) -> None:
    """Stops where a trigger or rule kept rows, or put them back: they would stand twice."""
    hooks = [hook for hook in read_hooks(cursor, batch.settings.target) if hook.on_delete]
    if not hooks:
        return
    cursor.execute(
        query_with_identifiers(
            "queries/count_rows_left", **target_identifiers(batch.settings.target, batch.settings.metadata.identity)
        ),
        parameters,
    )
    (left,) = rows_of(cursor)
    if left["found"]:
        found = f"{left['found']} rows still stand, as {left['example']}"
        raise hooks_fault(batch, hooks, expected="no row that is to be replaced", found=found)


def _kept(cursor: Cursor, names: dict[str, sql.Composable], parameters: dict[str, Any]) -> tuple[KeptDeadLetters, ...]:
    counted = fetch_row(cursor, "count_resolved", **parameters)
    if not counted or not counted["resolved"]:
        return ()
    staged = {name: identifier for name, identifier in names.items() if name != "target"}
    cursor.execute(query_with_identifiers("queries/discard_staged_resolved", **staged), parameters)
    return tuple(_kept_in_partition(row) for row in rows_of(cursor))


def _kept_in_partition(row: Row) -> KeptDeadLetters:
    rows, dead_letters, tombstones = row["rows"], row["dead_letters"], row["tombstones"]
    return KeptDeadLetters(
        TopicPartition(row["topic"], row["partition"]),
        rows=rows,
        dead_letters=dead_letters,
        tombstones=tombstones,
        invisible=row["kept"] - rows - dead_letters - tombstones,
    )


def _replaced(row: Row) -> ReplacedPartition:
    where = TopicPartition(row["topic"], row["partition"])
    return ReplacedPartition(where, row["rows"], row["dead_letters"], row["missing"], tuple(row["first_missing"] or ()))


def _spans(ranges: Sequence[OffsetRange]) -> dict[str, list[Any]]:
    return {
        "topic": [r.topic for r in ranges],
        "generation": [r.generation for r in ranges],
        "partition": [r.partition for r in ranges],
        "replaced_from": [r.start for r in ranges],
        "replaced_to": [r.replaced_to for r in ranges],
    }


def _names(batch: Batch) -> dict[str, sql.Composable]:
    stem, settings = staging_name(batch.batch_id, batch.claim), batch.settings
    metadata, target = settings.metadata, settings.target
    return {
        "target": sql.Identifier(target.schema, target.table),
        "topic_column": sql.Identifier(metadata.topic),
        "generation_column": sql.Identifier(metadata.generation),
        "partition_column": sql.Identifier(metadata.partition),
        "offset_column": sql.Identifier(metadata.offset),
        "staged_rows": staging_table(stem, "rows"),
        "staged_dead_letters": staging_table(stem, "dead_letters"),
        "staged_counted": staging_table(stem, "counted"),
    }
