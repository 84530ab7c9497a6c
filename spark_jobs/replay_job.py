"""The job that resolves dead letters: it decodes their stored bytes again, in the transaction that resolves them."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter

import pyarrow as pa

from kafka_ingest.errors import OK, IngestError, exit_code
from kafka_ingest.postgres.database import Connection, Row
from kafka_ingest.postgres.dead_letters import ATTEMPT, TASK, PostgresDeadLetterLedger
from kafka_ingest.postgres.target import PostgresTarget
from kafka_ingest.protocol.batch import Batch
from kafka_ingest.protocol.dead_letters import DeadLetterReport, resolve_dead_letters
from kafka_ingest.protocol.staging import Split, StageContext, staging_name
from kafka_ingest.secrets import secret_values
from kafka_ingest.spark.archive import keep_job_folder
from kafka_ingest.spark.replay import ReplayOrder, write_report
from kafka_ingest.spark.submission import take_environment, write_error
from spark_jobs.decode.changes import decoder_of
from spark_jobs.decode.values import Rejected
from spark_jobs.process import set_up_logging
from spark_jobs.records import stored_records
from spark_jobs.staging import StagingWriter, renaming_note

_log = logging.getLogger("kafka_ingest.job")


class StoredRecordStager:
    """What decodes and stages dead letters, a page at a time, as a task of a load does with what it has read.

    Args:
        params: Keyword arguments of ``psycopg2.connect``.
        connection: The connection with the transaction and its staging tables.
        batch: Names the staging tables and the settings.
        registry: Configuration of the schema registry; empty for a pipeline without one.
    """

    def __init__(
        self, params: dict[str, str], connection: Connection, batch: Batch, *, registry: Mapping[str, str]
    ) -> None:
        shape = PostgresTarget(params).shape(batch.settings)
        context = StageContext(batch.batch_id, batch.claim, batch.settings, shape, kafka={}, postgres=params)
        stem = staging_name(batch.batch_id, batch.claim)
        self._decoder = decoder_of(batch.settings, shape, batch_id=batch.batch_id, registry=registry)
        self._writer = StagingWriter(connection, stem, context, TASK, ATTEMPT)
        self._records = 0

    def __call__(self, page: Sequence[Row]) -> None:
        """Stage a page, in the order of topic, generation, partition and offset."""
        for _, rows in groupby(page, key=itemgetter("topic", "generation", "partition")):
            self._stage(list(rows))
        self._records += len(page)
        _log.info("decoded %s dead letters", f"{self._records:,}")

    def _stage(self, rows: Sequence[Row]) -> None:
        """Stage dead letters of one partition: rows, what still does not fit, and what is only counted."""
        notes = [renaming_note(row["detail"]) for row in rows]
        # A header name that is not stored as it was can fill no column.
        records = stored_records(rows, unreadable={index for index, note in enumerate(notes) if note})
        split = _split_of(rows)
        decoded = self._decoder.decode(records, generation=split.generation)
        refused = (*self._writer.write(decoded), *self._writer.write_deletes(decoded))
        dead = [
            Rejected(row.row_index, row.reason, notes[row.row_index] + row.detail) for row in (*decoded.dead, *refused)
        ]
        self._writer.write_dead_letters(_without_bytes(records), dead, split)
        self._writer.write_counted(records, decoded.tombstones, split)


def _split_of(rows: Sequence[Row]) -> Split:
    first, last = rows[0], rows[-1]
    place = {name: first[name] for name in ("topic", "partition", "generation")}
    end = last["offset"] + 1
    return Split(index=0, **place, start=first["offset"], end=end, replaced_to=end)


def _without_bytes(records: pa.RecordBatch) -> pa.RecordBatch:
    """Leave out what the ledger has already: only the new reason of a dead letter is stored."""
    for name in ("key", "value", "headers"):
        index = records.schema.get_field_index(name)
        nulls = pa.nulls(records.num_rows, records.schema.field(index).type)
        records = records.set_column(index, records.schema.field(index), nulls)
    return records


def main() -> int:
    """Do what was asked for, or only show it; return the exit code. Expected faults show their message, no trace."""
    set_up_logging([])
    try:
        order, outcome_file = take_environment(os.environ, ReplayOrder)
    except IngestError as error:
        _log.error("%s", error)
        return exit_code(error)
    keep_job_folder(outcome_file.parent)
    set_up_logging(secret_values(order.postgres, order.registry))
    try:
        report = replay(order)
    except IngestError as error:
        write_error(outcome_file, error)
        _log.warning("the request ends with %s", type(error).__name__)
        return exit_code(error)
    write_report(outcome_file, report)
    return OK


def replay(order: ReplayOrder) -> DeadLetterReport:
    """Do what the order says."""
    params = dict(order.postgres)
    settings = order.pipeline
    stager = partial(StoredRecordStager, params, registry=order.registry)
    ledger = PostgresDeadLetterLedger(params, settings.batch, stager)
    return resolve_dead_letters(settings, order.request, ledger, apply=order.apply)
