"""Pipelines of change events: their files, and what became of records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kafka_ingest.pipeline_files.files import check_content
from kafka_ingest.protocol.target import delete_settings
from kafka_ingest.settings import BatchSettings
from spark_jobs.decode.changes import ChangeDecoder
from spark_jobs.decode.values import DecodedBatch
from tests.debezium_samples import RecordedEvent
from tests.decoding import BATCH_ID, batch_of, record, target_of
from tests.pipeline_texts import pipeline_text

ID = "{name: id, type: bigint, from: key}"


def events_settings(*columns: str, value: str = "", target: str = "", **sections: str) -> BatchSettings:
    """Return the settings of a file: these columns beside the key ``id``, more keys of value and target, or all."""
    listed = ", ".join((ID, *columns))
    text = pipeline_text(
        value=value if "columns:" in value else value_section(f"columns: [{listed}]", value or "envelope: debezium"),
        target=target if "table:" in target else target_section(target or "truncate: ignore, deletes: remove"),
        **sections,
    )
    return check_content(text.encode(), Path("pipeline.yaml")).batch


def value_section(columns: str, more: str) -> str:
    given = "" if "format:" in more else "format: json, "
    return f"{{{given}{columns}, {more}}}"


def target_section(more: str) -> str:
    key = "" if "key:" in more else "key: [id], "
    return f"{{table: shop.orders, create_table: true, mode: upsert, order: offset, {key}{more}}}"


def decode_events(
    settings: BatchSettings, *events: RecordedEvent, registry: Mapping[str, str] | None = None
) -> DecodedBatch:
    """Decode records, and check that each is in exactly one of the parts."""
    decoder = ChangeDecoder(settings, target_of(settings), batch_id=BATCH_ID, registry=registry or {})
    records = [record(event.value, key=event.key, headers=list(event.headers)) for event in events]
    decoded = decoder.decode(batch_of(*records), generation=0)
    dead = [row.row_index for row in decoded.dead]
    rows = [*decoded.row_index, *decoded.partial_index, *decoded.delete_index, *dead, *decoded.tombstones]
    assert sorted(rows) == list(range(len(events)))
    return decoded


def became(decoded: DecodedBatch) -> list[str]:
    """Return what became of each record: ``row``, ``delete``, ``counted``, or the reason of its dead letter."""
    told = dict.fromkeys(decoded.row_index, "row") | dict.fromkeys(decoded.delete_index, "delete")
    told |= dict.fromkeys(decoded.partial_index, "partial")
    told |= dict.fromkeys(decoded.tombstones, "counted") | {row.row_index: row.reason.value for row in decoded.dead}
    return [told[row] for row in sorted(told)]


def column(decoded: DecodedBatch, name: str) -> list[Any]:
    """Return the values of a column, of the records that became rows."""
    values: list[Any] = decoded.columns.column(name).to_pylist()
    return values


def deleted_keys(decoded: DecodedBatch, settings: BatchSettings) -> list[Any]:
    """Return the first column of each delete."""
    name = delete_settings(settings).value.columns[0].name
    return [] if decoded.deletes is None else list(decoded.deletes.column(name).to_pylist())


def event(value: str | None, key: str | None = '{"id":1}') -> RecordedEvent:
    """Return a record that was written by hand."""
    return RecordedEvent(key and key.encode(), value and value.encode(), ())  # type: ignore[arg-type]


def of_place(events: Sequence[RecordedEvent], *offsets: int) -> list[RecordedEvent]:
    """Return the records at these offsets."""
    return [events[offset] for offset in offsets]
