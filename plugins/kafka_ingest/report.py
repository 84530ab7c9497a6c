"""Texts and tables for people: batches, positions, previews, lag."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from textwrap import indent
from typing import Any

from kafka_ingest.errors import naming
from kafka_ingest.protocol.batch import COMMAND_LINE, Batch, LoadPhases, RecordCounts, Request
from kafka_ingest.protocol.dead_letters import DeadLetterOutcome, DeadLetterReport
from kafka_ingest.protocol.ledger_view import PositionChange, SettingChange, retired_topics, without_retired
from kafka_ingest.protocol.log import LogSnapshot, PartitionState
from kafka_ingest.protocol.plan import PlanPreview
from kafka_ingest.protocol.ports import Clock, Ledger, Log
from kafka_ingest.protocol.position import OffsetRange, Position, TopicPartition
from kafka_ingest.protocol.roll_back import LoweredPosition, UndoneSpan
from kafka_ingest.protocol.staging import DeadLetterGroup
from kafka_ingest.settings import PipelineSettings

# ----------
# Rows as aligned text.

Row = Mapping[str, Any]


def table(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """Return aligned text with a heading; numbers are aligned to the right, a missing value is ``-``."""
    cells = [[cell(row.get(column)) for column in columns] for row in rows]
    headings = [column.replace("_", " ") for column in columns]
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    is_number = [all(isinstance(row.get(c), int | float | None) for row in rows) for c in columns]

    def line(values: Sequence[str]) -> str:
        parts = zip(values, widths, is_number, strict=True)
        return "  ".join(v.rjust(w) if right else v.ljust(w) for v, w, right in parts).rstrip()

    return "\n".join([line(headings), line(["-" * width for width in widths]), *map(line, cells)])


#: Counts that are 0 in every pipeline that appends.
_OF_UPSERT = ("deletes", "superseded", "last_deletes", "last_superseded", "keys_in_doubt", "needs_rebuild")


def shown_columns(rows: Sequence[Row], columns: Sequence[str]) -> list[str]:
    """Return the columns of a table for people: of those that only upsert pipelines have, what some row has."""
    return [name for name in columns if name not in _OF_UPSERT or any(row.get(name) for row in rows)]


def vertical(row: Row) -> str:
    """Return one row as aligned text, a line for each key."""
    width = max(len(key) for key in row)
    return "\n".join(f"{key.ljust(width)}  {cell(value)}" for key, value in row.items())


def cell(value: Any) -> str:
    """Return one value as text on one line."""
    match value:
        case None | "" | []:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.1f}"
        case datetime():
            return value.strftime("%Y-%m-%d %H:%M:%SZ")
        case bytes():
            return _readable(value)
        case list() | tuple():
            return ", ".join(cell(item) for item in value)
        case _:
            return _printable(" ".join(str(value).split()))


def _printable(text: str) -> str:
    """Escape what a terminal might obey: a name in a record's headers can hold anything."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _readable(value: bytes) -> str:
    """Return printable text as it is; else PostgreSQL's hex spelling, which ``decode`` and ``bytea`` read back."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return "\\x" + value.hex()
    return text if text.isprintable() and text else "\\x" + value.hex()


# ----------
# A batch as a small JSON-safe value, for XCom, asset events and ``--json``, and as text for people.
#
# In JSON, keys are strings and times ISO 8601. Texts have short lines: a task log is read in a narrow column.

_INDENT = "  "
_REASON_COLUMNS = ("reason", "records", "first_at")
_ANNOUNCED_COLUMNS = ("batch_id", "kind", "rows", "deletes", "superseded", "dead_letters", "valid_through")


def batch_summary(batch: Batch) -> dict[str, Any]:
    """Return the batch's identity, ranges ``[start, end)``, counts, record times and ``valid_through``.

    ``counts`` is ``None`` until the batch is committed.
    """
    return {
        "batch_id": batch.batch_id,
        "pipeline": batch.pipeline,
        "target": str(batch.settings.target),
        "kind": batch.kind.value,
        "state": batch.state.value,
        "ranges": _by_topic(batch, lambda r: [r.start, r.end]),
        "committed_offsets": _by_topic(batch, lambda r: r.committed_after),
        "span_offsets": batch.span_offsets,
        "replaced_offsets": batch.replaced_offsets,
        "counts": asdict(batch.counts) if batch.counts else None,
        "record_time_min": _iso(batch.record_time_min),
        "record_time_max": _iso(batch.record_time_max),
        "valid_through": _iso(batch.valid_through),
        "left_out": list(batch.left_out),
        "warnings": list(batch.warnings),
    }


def load_summary(batch: Batch, phases: LoadPhases | None) -> dict[str, Any]:
    """Return :func:`batch_summary` and ``phases``, in seconds (:class:`LoadPhases`).

    ``phases`` is ``None`` when another attempt loaded the batch, or when this one was killed at its end.
    """
    return {**batch_summary(batch), "phases": asdict(phases) if phases else None}


def batch_result(batch: Batch) -> dict[str, Any]:
    """Return what a person wants to know of a committed batch, by heading."""
    counts = batch.counts or RecordCounts()
    return {
        "batch": batch.batch_id,
        "target": str(batch.settings.target),
        "rows": counts.rows,
        **{name: records for name, records in upsert_counts(counts).items() if records},
        "dead letters": counts.dead_letters,
        "tombstones counted": counts.tombstones,
        "offsets without a record": counts.invisible,
        "record times": [time for time in (batch.record_time_min, batch.record_time_max) if time],
        "valid through": batch.valid_through,
    }


def committed_text(batch: Batch) -> str:
    """Say in a few lines what a committed batch has written."""
    return f"The batch is committed:\n{indent(vertical(batch_result(batch)), _INDENT)}"


def dead_letters_text(batch: Batch, groups: Sequence[DeadLetterGroup]) -> str:
    """Say how many records of a committed batch became dead letters, why, where, and how to see them.

    Nothing of their payload is shown: it may be personal data.

    Args:
        batch: The batch.
        groups: The ledger's counts by reason; empty where it could not be asked.
    """
    counts = batch.counts or RecordCounts()
    rows = [
        {"reason": group.reason, "records": group.records, "first_at": f"{group.first_in} offset {group.first_offset}"}
        for group in groups
    ]
    became = f"{counts.dead_letters:,} of {counts.readable:,} records became dead letters"
    lines = [
        f"{became}: {batch.settings.target} does not have them",
        *([indent(table(rows, _REASON_COLUMNS), _INDENT)] if rows else []),
        f"  look: python -m kafka_ingest dead-letters list {batch.pipeline} --batch {batch.batch_id}",
        "  the batch went through because it did not pass",
        *(f"    {limit}" for limit in batch.settings.dead_letters.texts()),
    ]
    return "\n".join(lines)


def announced_text(asset: str, batches: Sequence[Batch]) -> str:
    """Say which batches an audit announces under the name of an asset."""
    rows = [_announced_row(batch) for batch in batches]
    listed = table(rows, shown_columns(rows, _ANNOUNCED_COLUMNS))
    return f"Every invariant holds. Announced as {asset}:\n{indent(listed, _INDENT)}"


def _announced_row(batch: Batch) -> Row:
    counts = batch.counts or RecordCounts()
    return {
        "batch_id": batch.batch_id,
        "kind": batch.kind.value,
        "rows": counts.rows,
        **upsert_counts(counts),
        "dead_letters": counts.dead_letters,
        "valid_through": batch.valid_through,
    }


def upsert_counts(counts: RecordCounts) -> dict[str, int]:
    """Return the counts that are 0 in every pipeline that appends, by name."""
    return {"deletes": counts.deletes, "superseded": counts.superseded}


def _by_topic(batch: Batch, value: Callable[[OffsetRange], Any]) -> dict[str, dict[str, Any]]:
    topics: dict[str, dict[str, Any]] = {}
    for r in batch.ranges:
        topics.setdefault(r.topic, {})[str(r.partition)] = value(r)
    return topics


def _iso(time: datetime | None) -> str | None:
    return time.isoformat() if time else None


# ----------
# What became of dead letters: the command line and Airflow's log show the same table.

OUTCOME_COLUMNS = ("becomes", "reason", "records", "first_at", "detail")


def outcome_rows(outcome: DeadLetterOutcome) -> list[Row]:
    """Return a row for each thing that became of dead letters; for those that stay one for each reason."""
    resolved = {
        "a row": outcome.replayed,
        "counted": outcome.counted,
        "discarded": outcome.discarded,
        "superseded": outcome.superseded,
    }
    rows: list[Row] = [{"becomes": name, "records": records} for name, records in resolved.items() if records]
    return rows + [
        {
            "becomes": "stays a dead letter",
            "reason": group.reason,
            "records": group.records,
            "first_at": f"{group.topic}[{group.partition}] offset {group.offset}",
            "detail": group.detail,
        }
        for group in outcome.stayed
    ]


def outcome_remarks(told: DeadLetterReport) -> Iterator[str]:
    """Say which dead letters were chosen, by reason, and who had it done, if it was."""
    reasons: Counter[str] = Counter()
    for group in told.chosen:
        reasons[group.reason] += group.records
    if reasons:
        yield "chosen: " + ", ".join(f"{records:,} {reason}" for reason, records in sorted(reasons.items()))
    if done := told.recorded:
        when = f"was done before, at {cell(done.at)}" if told.was_done_before else "is done"
        yield f"request {done.request_id} {when}, by {done.who}: {done.why}"


_PAYLOAD = ("key", "value", "header_names", "header_values")


def dead_letter_document(letter: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dead letter as it is exported: JSON-safe, times as ISO 8601, bytes as base64, headers as pairs."""
    names, values = letter["header_names"], letter["header_values"]
    headers = None if names is None else [{"key": n, "value": _base64(v)} for n, v in zip(names, values, strict=True)]
    times = {key: _iso(letter[key]) for key in ("created_at", "resolved_at")}
    plain = {key: value for key, value in letter.items() if key not in _PAYLOAD}
    payload = {"key": _base64(letter["key"]), "value": _base64(letter["value"]), "headers": headers}
    return {**plain, **times, **payload}


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


# ----------
# Position changes and roll-backs: the command line and Airflow's log show the same table.

CHANGE_COLUMNS = ("topic", "partition", "from", "to", "generation", "line", "read_again", "given_up")
SETTING_COLUMNS = ("name", "from", "to")
ROLL_BACK_COLUMNS = ("topic", "partition", "from", "to", "line", "offsets")
UNDONE_COLUMNS = (*ROLL_BACK_COLUMNS, "rows", "dead_letters")


def change_rows(positions: Iterable[PositionChange]) -> list[Row]:
    """Return a row for each position that changes; timeline and generation are those afterwards."""
    return [
        {
            "topic": change.topic,
            "partition": change.partition,
            "from": change.before.offset if change.before else None,
            "to": change.after.offset if change.after else None,
            "generation": change.after.generation if change.after else None,
            "line": change.after.timeline if change.after else None,
            "read_again": _span(change.read_again),
            "given_up": _span(change.given_up),
        }
        for change in positions
    ]


def setting_rows(settings: Iterable[SettingChange]) -> list[Row]:
    """Return a row for each setting that binds the pipeline and changes."""
    return [{"name": setting.name, "from": setting.before, "to": setting.after} for setting in settings]


def lowered_rows(positions: Iterable[LoweredPosition]) -> list[Row]:
    """Return a row for each position that a roll-back would lower."""
    return [
        {
            "topic": lowered.before.topic,
            "partition": lowered.before.partition,
            "from": lowered.before.committed_offset,
            "to": lowered.after.committed_offset,
            "line": lowered.after.timeline,
            "offsets": lowered.span_offsets,
        }
        for lowered in positions
    ]


def undone_rows(spans: Iterable[UndoneSpan]) -> list[Row]:
    """Return a row for each position that a roll-back has lowered, with what it deleted."""
    return [
        {
            "topic": span.topic,
            "partition": span.partition,
            "from": span.from_offset,
            "to": span.to_offset,
            "line": span.to_timeline,
            "offsets": span.from_offset - span.to_offset,
            "rows": span.counts.rows,
            "dead_letters": span.counts.dead_letters,
        }
        for span in spans
    ]


def _span(offsets: tuple[int, int] | None) -> str | None:
    return f"[{offsets[0]}, {offsets[1]})" if offsets else None


# ----------
# What a preview of a plan says besides its ranges.


def plan_remarks(preview: PlanPreview) -> Iterator[str]:
    """Yield a line for what a limit leaves over, what is replaced, who is in the way, and each warning and fault."""
    choice, outstanding = preview.choice, preview.outstanding
    planned = sum(r.span_offsets for r in choice.ranges)
    left = choice.backlog_offsets - planned
    if left > 0:
        yield f"the limit leaves {left:,} of {choice.backlog_offsets:,} offsets for later runs"
    if replaced := sum(r.replaced_to - r.start for r in choice.ranges):
        yield f"{replaced:,} of the offsets were loaded before: their rows are replaced"
    if outstanding:
        who = f"batch {outstanding.batch_id} of {outstanding.request}"
        yield f"{who} is outstanding: a run waits for it or replaces it"
    yield from (f"warning: {warning}" for warning in choice.warnings)
    yield from (f"left out: {fault}" for fault in choice.left_out)
    yield from (f"fault: {fault}\n  next: {fault.next_command}" for fault in choice.faults)


# ----------
# How far each partition's committed offset is behind its log. Writes nothing.

_NOT_DESCRIBED = PartitionState(-1, has_leader=False, fault="Kafka does not list this partition")


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The lag of one partition of a pipeline.

    Attributes:
        topic: Topic name.
        partition: Partition number.
        committed_offset: Next offset to read; ``None`` before the partition's first plan.
        end_offset: What can be read now; ``None`` when Kafka does not tell.
        lag_offsets: Offsets waiting, ``end_offset - committed_offset``, never below 0; ``None`` when one is unknown.
        lag_seconds: 0 when nothing waits, else the time since ``valid_through``; an estimate, as that is. ``None``
            when unknown.
        headroom_offsets: ``committed_offset`` - log start offset: how much the log still holds before the position.
            Below 0, offsets that were not read are gone.
        headroom_seconds: Estimated time until retention reaches the position, at the rate that plans observed; ``None``
            while the log start does not move, or too little was seen of it.
        open_transaction_offsets: High watermark - end offset: what an open producer transaction holds back.
        fault: Why numbers are missing; empty otherwise.
    """

    topic: str
    partition: int
    committed_offset: int | None
    end_offset: int | None
    lag_offsets: int | None
    lag_seconds: float | None
    headroom_offsets: int | None
    headroom_seconds: float | None
    open_transaction_offsets: int | None
    fault: str = ""


@dataclass(frozen=True, slots=True)
class LagPorts:
    """What the report needs from the world."""

    ledger: Ledger
    log: Log
    clock: Clock


def report_lag(settings: PipelineSettings, ports: LagPorts) -> tuple[PartitionLag, ...]:
    """Compare the pipeline's positions with its topics, ordered by (topic, partition).

    Partitions that only one side knows are included; those of retired topics are not.

    Raises:
        BrokerUnavailable: Kafka does not answer.
        DatabaseUnavailable: PostgreSQL does not answer.
    """
    # A report asks in nobody's name: no batch belongs to this request.
    with naming(settings.pipeline):
        view = ports.ledger.plan_view(settings.pipeline, Request(COMMAND_LINE, "lag report"), settings.batch.target)
        topics = ports.log.snapshot(settings.plan.topics, settings.batch.isolation_level)
    snapshot = without_retired(view, topics)
    retired = retired_topics(view)
    positions = {position.topic_partition: position for position in view.positions if position.topic not in retired}
    states = dict(_states(snapshot))
    rates = {seen.topic_partition: seen.retention_offsets_per_second for seen in view.observations}
    now = ports.clock.now()
    return tuple(
        _partition_lag(where, positions.get(where), states.get(where, _NOT_DESCRIBED), now=now, rate=rates.get(where))
        for where in sorted(positions.keys() | states.keys())
    )


def _states(snapshot: LogSnapshot) -> Iterator[tuple[TopicPartition, PartitionState]]:
    for topic, state in snapshot.topics.items():
        for number, partition in state.partitions.items():
            yield TopicPartition(topic, number), partition


def _partition_lag(
    where: TopicPartition, position: Position | None, state: PartitionState, *, now: datetime, rate: float | None
) -> PartitionLag:
    committed = position.committed_offset if position else None
    # The end may be below the position: an open transaction began before it. Nothing waits then.
    waiting = _difference(state.end_offset, committed)
    lag = None if waiting is None else max(0, waiting)
    headroom = _difference(committed, state.log_start_offset)
    return PartitionLag(
        topic=where.topic,
        partition=where.partition,
        committed_offset=committed,
        end_offset=state.end_offset,
        lag_offsets=lag,
        lag_seconds=_lag_seconds(lag, position.valid_through if position else None, now),
        headroom_offsets=headroom,
        headroom_seconds=headroom / rate if headroom is not None and rate else None,
        open_transaction_offsets=_difference(state.high_watermark, state.end_offset),
        fault=state.fault or ("" if state.has_leader else "no leader"),
    )


def _lag_seconds(lag_offsets: int | None, valid_through: datetime | None, now: datetime) -> float | None:
    if lag_offsets == 0:
        return 0.0
    if lag_offsets is None or valid_through is None:
        return None
    return max(0.0, (now - valid_through).total_seconds())


def _difference(high: int | None, low: int | None) -> int | None:
    return None if high is None or low is None else high - low
