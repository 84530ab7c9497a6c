"""Rows of the ledger as values, and values as parameters of a statement."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, fields
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from kafka_ingest.errors import VersionSkew
from kafka_ingest.postgres.database import Cursor, Row, fetch_rows
from kafka_ingest.protocol.batch import Batch, BatchKind, BatchStanding, BatchState, Hold, RecordCounts, Request
from kafka_ingest.protocol.dead_letters import DeadLetterChoice
from kafka_ingest.protocol.decisions import ChangeRequest, NewChange
from kafka_ingest.protocol.ledger_view import (
    PipelineRecord,
    PositionChange,
    PositionPoint,
    RecordedChange,
    SettingChange,
)
from kafka_ingest.protocol.log import LogObservation
from kafka_ingest.protocol.position import OffsetRange, Position, TopicPartition
from kafka_ingest.protocol.target import AddedColumn
from kafka_ingest.settings import (
    BatchSettings,
    FirstRun,
    IdentityColumns,
    IsolationLevel,
    NewFields,
    TargetSettings,
    UpsertSettings,
)

# ----------
# Frozen settings as canonical JSON: keys sorted, no spaces, UTF-8. Its hash tells whether a planned batch still fits
# its pipeline file.

_Value = TypeVar("_Value", BatchSettings, FirstRun, UpsertSettings)


def settings_to_json(settings: BatchSettings) -> str:
    """Return the settings as canonical JSON."""
    return _to_json(settings)


def settings_from_json(text: str) -> BatchSettings:
    """Read settings that :func:`settings_to_json` wrote; the order of keys does not matter.

    Raises:
        VersionSkew: Another version of this package wrote them, in a way that this one cannot read.
    """
    return _from_json(text, BatchSettings)


def settings_hash(settings: BatchSettings) -> str:
    """Return the SHA-256 of the canonical JSON, in hexadecimal."""
    return hashlib.sha256(settings_to_json(settings).encode()).hexdigest()


def first_run_to_json(first_run: FirstRun) -> str:
    """Return the choice of the first run as canonical JSON."""
    return _to_json(first_run)


def first_run_from_json(text: str) -> FirstRun:
    """Read what :func:`first_run_to_json` wrote.

    Raises:
        VersionSkew: Another version of this package wrote it, in a way that this one cannot read.
    """
    return _from_json(text, FirstRun)


def upsert_to_json(upsert: UpsertSettings | None) -> str | None:
    """Return what binds an upsert pipeline as canonical JSON; ``None`` for one that appends."""
    return _to_json(upsert) if upsert else None


def upsert_from_json(text: str | None) -> UpsertSettings | None:
    """Read what :func:`upsert_to_json` wrote.

    Raises:
        VersionSkew: Another version of this package wrote it, in a way that this one cannot read.
    """
    return None if text is None else _from_json(text, UpsertSettings)


def _to_json(value: BatchSettings | FirstRun | UpsertSettings) -> str:
    return msgspec.json.encode(_without_added(msgspec.to_builtins(value)), order="sorted").decode()


#: Fields that were added later: left out where they are empty, so that settings from before keep their hash.
_ADDED = frozenset(
    {
        *("conversion", "other_paths", "from_key", "header", "occurrence", "default", "rounding"),
        *("subject", "registry_connection"),
        *("upsert", "order_column", "delete_when", "deleted_at", "envelope", "history"),
    }
)
#: The same for fields whose usual value is a word.
_USUAL = {"new_fields": NewFields.IGNORE}


def _without_added(value: Any) -> Any:
    if isinstance(value, dict):
        told = ((key, v) for key, v in value.items() if (key, v) not in _USUAL.items())
        return {key: _without_added(v) for key, v in told if v or key not in _ADDED}
    return [_without_added(entry) for entry in value] if isinstance(value, list | tuple) else value


def _from_json(text: str, kind: type[_Value]) -> _Value:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        raise VersionSkew(
            f"stored {kind.__name__} cannot be read by this package version",
            expected="what this version writes",
            found=str(error),
            next_command="use one package version for Airflow and the Spark job, then plan again",
        ) from error


# ----------
# Rows of the ledger as values, and values as parameters.


def is_batch_id(text: str) -> bool:
    """Whether a text can be a batch id at all, so that PostgreSQL need not refuse it."""
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def announcer(request: Request) -> str:
    """Return the identity of a request as ``batch.announced_by`` stores it: a JSON array."""
    return json.dumps(request.identity, ensure_ascii=False)


#: Fields whose column has another name.
_COLUMNS = {"timeline": "line", "start": "range_start", "end": "range_end", "number": "request_number"}


def _columns_of(kind: type[Any], *but: str) -> dict[str, str]:
    """Return the column of each field of a value, but of some."""
    return {field.name: _COLUMNS.get(field.name, field.name) for field in fields(kind) if field.name not in but}


_RANGE = _columns_of(OffsetRange)
_REPLACED = {
    **{name: name for name in ("topic", "generation", "partition", "replaced_to")},
    "start": "replaced_from",
}
_POSITION = _columns_of(Position, "updated_at")
_POINT = _columns_of(PositionPoint)
_OBSERVATION = _columns_of(LogObservation)
_REQUEST = _columns_of(Request)
_HOLD = _columns_of(Hold, "request")
_COUNTS = _columns_of(RecordCounts)
_BATCH = _columns_of(Batch, "request", "kind", "state", "settings", "ranges", "counts", "left_out", "warnings")


def _arrays(columns: Mapping[str, str], values: Sequence[Any], prefix: str = "") -> dict[str, list[Any]]:
    """Return the columns of values as arrays, one element a value; ``None`` for one that is not there."""
    return {
        prefix + column: [None if value is None else getattr(value, field) for value in values]
        for field, column in columns.items()
    }


def _fields(columns: Mapping[str, str], row: Row, prefix: str = "") -> dict[str, Any]:
    return {field: row[prefix + column] for field, column in columns.items()}


def request_parameters(request: Request) -> dict[str, object]:
    """Return the columns of a request."""
    return {column: getattr(request, field) for field, column in _REQUEST.items()}


def request_of(row: Row) -> Request:
    """Read the request of a batch."""
    return Request(**_fields(_REQUEST, row))


def range_of(row: Row) -> OffsetRange:
    """Read a range."""
    return OffsetRange(**_fields(_RANGE, row))


def range_arrays(ranges: Sequence[OffsetRange]) -> dict[str, list[Any]]:
    """Return the columns of ranges as arrays, one element a range."""
    return {**_arrays(_RANGE, ranges), "committed_after": [r.committed_after for r in ranges]}


def replaced_arrays(ranges: Sequence[OffsetRange]) -> dict[str, list[Any]]:
    """Return what ranges replace, ``[replaced_from, replaced_to)``, as arrays, one element a range."""
    return _arrays(_REPLACED, ranges)


def position_of(row: Row) -> Position:
    """Read a position."""
    return Position(**_fields(_POSITION, row), updated_at=row["updated_at"])


def position_arrays(positions: Sequence[Position]) -> dict[str, list[Any]]:
    """Return the columns of positions as arrays, one element a position."""
    return _arrays(_POSITION, positions)


def observation_arrays(observations: Sequence[LogObservation]) -> dict[str, list[Any]]:
    """Return the columns of observations as arrays, one element a partition."""
    return _arrays(_OBSERVATION, observations)


def observation_of(row: Row) -> LogObservation:
    """Read an observation."""
    return LogObservation(**row)


def pipeline_of(row: Row) -> PipelineRecord:
    """Read what binds a pipeline."""
    return PipelineRecord(
        pipeline=row["pipeline"],
        target_schema=row["target_schema"],
        target_table=row["target_table"],
        cluster_id=row["cluster_id"],
        isolation_level=IsolationLevel(row["isolation_level"]),
        first_run=first_run_from_json(row["first_run"]),
        identity=IdentityColumns(
            row["topic_column"], row["generation_column"], row["partition_column"], row["offset_column"]
        ),
        upsert=upsert_from_json(row["upsert"]),
    )


def identity_parameters(identity: IdentityColumns) -> dict[str, object]:
    """Return the columns of ``pipeline`` that name what identifies a row of the target."""
    return {
        "topic_column": identity.topic,
        "generation_column": identity.generation,
        "partition_column": identity.partition,
        "offset_column": identity.offset,
    }


def hold_of(row: Row) -> Hold:
    """Read a hold."""
    return Hold(request=request_of(row), **_fields(_HOLD, row))


def standing_of(row: Row) -> BatchStanding:
    """Read state and claim."""
    return BatchStanding(BatchState(row["state"]), row["claim"])


def load_batches(cursor: Cursor, batch_ids: Iterable[str]) -> list[Batch]:
    """Read batches with their ranges, in the order in which they were recorded."""
    wanted = sorted(set(batch_ids))
    if not wanted:
        return []
    ranges: dict[str, list[OffsetRange]] = {batch_id: [] for batch_id in wanted}
    for row in fetch_rows(cursor, "select_ranges", batch_ids=wanted):
        ranges[row["batch_id"]].append(range_of(row))
    rows = fetch_rows(cursor, "select_batches", batch_ids=wanted)
    return [_batch_of(row, tuple(ranges[row["batch_id"]])) for row in rows]


def load_batch(cursor: Cursor, batch_id: str | None) -> Batch | None:
    """Read one batch; ``None`` when there is none."""
    batches = load_batches(cursor, [batch_id] if batch_id else [])
    return batches[0] if batches else None


def load_added_columns(cursor: Cursor, pipeline: str, target: TargetSettings) -> dict[AddedColumn, str]:
    """Read the columns that were added to a table for a pipeline, in this order, each with the batch that did it."""
    place = {"target_schema": target.schema, "target_table": target.table}
    rows = fetch_rows(cursor, "select_schema_changes", pipeline=pipeline, **place)
    return {AddedColumn(row["name"], row["type"], tuple(row["path"])): row["batch_id"] for row in rows}


def _batch_of(row: Row, ranges: tuple[OffsetRange, ...]) -> Batch:
    return Batch(
        request=request_of(row),
        kind=BatchKind(row["kind"]),
        state=BatchState(row["state"]),
        settings=settings_from_json(row["settings"]),
        ranges=ranges,
        counts=_counts_of(row),
        left_out=tuple(row["left_out"]),
        warnings=tuple(row["warnings"]),
        **_fields(_BATCH, row),
    )


def _counts_of(row: Row) -> RecordCounts | None:
    if row["rows"] is None:
        return None
    return RecordCounts(**_fields(_COUNTS, row))


def count_arrays(counts: Sequence[RecordCounts]) -> dict[str, list[Any]]:
    """Return the columns of counts as arrays, one element each."""
    return _arrays(_COUNTS, counts)


def deleted_by_partition(rows: Iterable[Mapping[str, Any]]) -> dict[TopicPartition, int]:
    """Read how many rows or dead letters were deleted in each partition."""
    return {TopicPartition(row["topic"], row["partition"]): row["deleted"] for row in rows}


# ----------
# Position changes as rows of ``position_change``.


def place_arrays(positions: Sequence[Position]) -> dict[str, list[Any]]:
    """Return the partitions of positions as arrays."""
    return {"topic": [p.topic for p in positions], "partition": [p.partition for p in positions]}


def before_arrays(positions: Sequence[Position]) -> dict[str, list[Any]]:
    """Return what positions must still be for a change to be made, as arrays."""
    return {
        "from_offset": [p.committed_offset for p in positions],
        "from_generation": [p.generation for p in positions],
        "from_line": [p.timeline for p in positions],
        "from_topic_id": [p.topic_id for p in positions],
    }


def change_arrays(
    changes: Sequence[PositionChange | None], details: Sequence[Mapping[str, Any]]
) -> dict[str, list[Any]]:
    """Return rows of ``position_change`` as arrays: one element a partition, ``None`` for one that names no partition.

    Args:
        changes: What changes.
        details: What else each row tells.
    """
    return {
        "topic": [c.topic if c else None for c in changes],
        "partition": [c.partition if c else None for c in changes],
        "details": [
            json.dumps({**more, **_given_up(c)}, ensure_ascii=False) for c, more in zip(changes, details, strict=True)
        ],
        **_arrays(_POINT, [c.before if c else None for c in changes], "from_"),
        **_arrays(_POINT, [c.after if c else None for c in changes], "to_"),
    }


def _given_up(change: PositionChange | None) -> dict[str, list[int]]:
    return {"given_up": list(change.given_up)} if change and change.given_up else {}


def change_details(change: NewChange) -> dict[str, Any]:
    """Return what each row of a change tells beside its position."""
    details: dict[str, Any] = {"arguments": change.request.arguments}
    if change.plan.settings:
        details["settings"] = [astuple(setting) for setting in change.plan.settings]
    if change.supersedes:
        details["superseded"] = change.supersedes
    return details


def recorded_change(request: ChangeRequest, rows: Sequence[Row]) -> RecordedChange:
    """Read what a request has recorded; at least one row. One of a roll-back has no arguments."""
    first = rows[0]
    details = first["details"]
    return RecordedChange(
        pipeline=request.pipeline,
        request_id=request.request_id,
        kind=first["kind"],
        arguments=details.get("arguments", ""),
        who=first["who"],
        why=first["why"],
        at=first["at"],
        positions=tuple(_position_change(row) for row in rows if row["partition"] is not None),
        settings=tuple(SettingChange(*setting) for setting in details.get("settings", ())),
        superseded=details.get("superseded"),
    )


def _position_change(row: Row) -> PositionChange:
    given_up = row["details"].get("given_up")
    return PositionChange(
        topic=row["topic"],
        partition=row["partition"],
        before=_point(row, "from"),
        after=_point(row, "to"),
        given_up=(given_up[0], given_up[1]) if given_up else None,
    )


def _point(row: Row, side: str) -> PositionPoint | None:
    if row[f"{side}_offset"] is None:
        return None
    return PositionPoint(**_fields(_POINT, row, f"{side}_"))


def need_of_rebuild(row: Row | None) -> str:
    """Return why a table that holds the current state may miss something; empty where nothing says so."""
    if row is None:
        return ""
    what = row["kind"].replace("_", " ")
    if row["given_up"]:
        start, end = row["given_up"]
        what += f", which gave up {row['topic']}[{row['partition']}] [{start}, {end})"
    return f"{what}, at {row['at'].isoformat(timespec='seconds')}"


# ----------
# Dead letters: which of them, and how many at once.

#: A page of dead letters: what a load decodes and stages at once (``spark_jobs/records.py``), so that as much memory is
#: enough for any number of them.
PAGE_RECORDS = 10_000
PAGE_BYTES = 8_000_000


def choice_parameters(choice: DeadLetterChoice) -> dict[str, Any]:
    """Return a choice, without its limit, as parameters of a statement."""
    places = choice.places
    return {
        "batch_id": choice.batch_id,
        "generation": choice.generation,
        "reasons": list(choice.reasons) or None,
        "topic": [place.topic for place in places],
        "partition": [place.partition for place in places],
        "range_start": [place.start for place in places],
        "range_end": [place.end for place in places],
    }
