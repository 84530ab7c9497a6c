"""Position changes and roll-backs as rows for people: the command line and Airflow's log show the same table."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_ingest.core.position_changes import PositionChange, SettingChange
from kafka_ingest.core.roll_back import LoweredPosition, UndoneSpan
from kafka_ingest.core.text_table import Row

CHANGE_COLUMNS = ("topic", "partition", "from", "to", "generation", "line", "read_again", "given_up")
SETTING_COLUMNS = ("name", "from", "to")
ROLL_BACK_COLUMNS = ("topic", "partition", "from", "to", "line", "offsets")
UNDONE_COLUMNS = (*ROLL_BACK_COLUMNS, "rows", "dead_letters")


def change_rows(positions: Iterable[PositionChange]) -> list[Row]:
    """Gives a row for each position that changes; line and generation are those afterwards."""
    return [
        {
            "topic": change.topic,
            "partition": change.partition,
            "from": change.before.offset if change.before else None,
            "to": change.after.offset if change.after else None,
            "generation": change.after.generation if change.after else None,
            "line": change.after.line if change.after else None,
            "read_again": _span(change.read_again),
            "given_up": _span(change.given_up),
        }
        for change in positions
    ]


def setting_rows(settings: Iterable[SettingChange]) -> list[Row]:
    """Gives a row for each thing that binds the pipeline and changes."""
    return [{"name": setting.name, "from": setting.before, "to": setting.after} for setting in settings]


def lowered_rows(positions: Iterable[LoweredPosition]) -> list[Row]:
    """Gives a row for each position that a roll-back would lower."""
    return [
        {
            "topic": lowered.before.topic,
            "partition": lowered.before.partition,
            "from": lowered.before.committed_offset,
            "to": lowered.after.committed_offset,
            "line": lowered.after.line,
            "offsets": lowered.span_offsets,
        }
        for lowered in positions
    ]


def undone_rows(spans: Iterable[UndoneSpan]) -> list[Row]:
    """Gives a row for each position that a roll-back has lowered, with what it deleted."""
    return [
        {
            "topic": span.topic,
            "partition": span.partition,
            "from": span.from_offset,
            "to": span.to_offset,
            "line": span.to_line,
            "offsets": span.from_offset - span.to_offset,
            "rows": span.counts.rows,
            "dead_letters": span.counts.dead_letters,
        }
        for span in spans
    ]


def _span(offsets: tuple[int, int] | None) -> str | None:
    return f"[{offsets[0]}, {offsets[1]})" if offsets else None
