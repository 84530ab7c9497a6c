"""Loads whose tasks report the members of JSON objects that no column reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from kafka_ingest.protocol.staging import NewField, Split, StageContext, StageResult, StageTask
from kafka_ingest.settings import NewFields, PipelineSettings
from spark_jobs.reader import KafkaRangeReader

Staged = Callable[..., StageResult]


def adding_columns(settings: PipelineSettings) -> PipelineSettings:
    """Return the pipeline with ``value.new_fields: add_column``."""
    batch = settings.batch
    return replace(settings, batch=replace(batch, value=replace(batch.value, new_fields=NewFields.ADD_COLUMN)))


def reporting_new_fields(stage_task: Staged, types: Mapping[str, str] | None = None) -> Staged:
    """Return the staging task, which reports every member of a value that no column of its settings reads.

    Args:
        stage_task: The task.
        types: Types of members, as of a schema; of all others ``jsonb``.
    """

    def reporting(task: StageTask, context: StageContext, attempt_id: int) -> StageResult:
        reader = _Noting(KafkaRangeReader(context.kafka, no_progress_timeout_seconds=60))
        try:
            result = stage_task(task, context, attempt_id, reader=reader)
        finally:
            reader.close()
        read = {column.path for column in context.settings.value.columns}
        found = sorted({(name,) for name in reader.names} - read)
        fields = tuple(NewField(path, (types or {}).get(path[0], "jsonb")) for path in found)
        return replace(result, new_fields=fields)

    return reporting


class _Noting:
    """A reader that notes the names of members."""

    def __init__(self, reader: KafkaRangeReader) -> None:
        self._reader = reader
        self.names: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        for records in self._reader.read(split):
            for value in records.column("value").to_pylist():
                self.names |= _names(value)
            yield records


def _names(value: bytes | None) -> set[str]:
    try:
        document = json.loads(value or b"null")
    except ValueError:
        return set()
    return set(document) if isinstance(document, dict) else set()
