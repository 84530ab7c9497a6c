"""Turns position changes into columns of ``position_change``, and its rows back into position changes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import astuple
from typing import Any

from kafka_ingest.adapters.postgres_rows import Row
from kafka_ingest.core.change_requests import ChangeRequest
from kafka_ingest.core.change_view import NewChange
from kafka_ingest.core.offsets import Position
from kafka_ingest.core.position_changes import (
    PositionChange,
    PositionMove,
    PositionPoint,
    RecordedChange,
    SettingChange,
)

_POINT_COLUMNS = ("offset", "generation", "line", "topic_id", "cluster_id")


def place_arrays(positions: Sequence[Position]) -> dict[str, list[Any]]:
    """Gives the partitions of positions as arrays."""
    return {"topic": [p.topic for p in positions], "partition": [p.partition for p in positions]}


def before_arrays(positions: Sequence[Position]) -> dict[str, list[Any]]:
    """Gives what positions must still be for a change to be made, as arrays."""
    return {
        "from_offset": [p.committed_offset for p in positions],
        "from_generation": [p.generation for p in positions],
        "from_line": [p.line for p in positions],
        "from_topic_id": [p.topic_id for p in positions],
    }


def change_arrays(change: NewChange) -> dict[str, list[Any]]:
    """Gives the rows of a change as arrays: one element a partition, or one for a change that moves no position."""
    changes: Sequence[PositionChange | None] = change.plan.positions or [None]
    topic = change.plan.retired_topic or change.plan.topic_read_again
    arrays: dict[str, list[Any]] = {
        "topic": [c.topic if c else topic for c in changes],
        "partition": [c.partition if c else None for c in changes],
        "details": [json.dumps(_details(change, c), ensure_ascii=False) for c in changes],
    }
    return {**arrays, **_point_arrays(changes)}


def move_arrays(moves: Sequence[PositionMove]) -> dict[str, list[Any]]:
    """Gives the rows of positions that a plan moves as arrays: one element a partition."""
    changes = [move.change for move in moves]
    return {
        "topic": [c.topic for c in changes],
        "partition": [c.partition for c in changes],
        "details": [json.dumps({"given_up": list(c.given_up)} if c.given_up else {}) for c in changes],
        **_point_arrays(changes),
    }


def _point_arrays(changes: Sequence[PositionChange | None]) -> dict[str, list[Any]]:
    arrays = {}
    for name in _POINT_COLUMNS:
        arrays[f"from_{name}"] = [getattr(c.before, name) if c and c.before else None for c in changes]
        arrays[f"to_{name}"] = [getattr(c.after, name) if c and c.after else None for c in changes]
    return arrays


def recorded_change(request: ChangeRequest, rows: Sequence[Row]) -> RecordedChange:
    """Reads what a request has recorded; at least one row. One of a roll-back has no arguments."""
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


def _details(change: NewChange, position: PositionChange | None) -> dict[str, Any]:
    details: dict[str, Any] = {"arguments": change.request.arguments}
    if change.plan.settings:
        details["settings"] = [astuple(setting) for setting in change.plan.settings]
    if change.supersedes:
        details["superseded"] = change.supersedes
    if position and position.given_up:
        details["given_up"] = list(position.given_up)
    return details


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
    return PositionPoint(*(row[f"{side}_{name}"] for name in _POINT_COLUMNS))
