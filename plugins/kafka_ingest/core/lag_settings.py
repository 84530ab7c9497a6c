"""How far a partition may lag behind before a live plan does something about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class LagAction(StrEnum):
    """What a live plan does about a partition whose lag passes a limit."""

    FAIL = "fail"
    WARN = "warn"
    SKIP_TO = "skip_to"


@dataclass(frozen=True, slots=True)
class LagPolicy:
    """How far a partition may lag behind before a live plan does something about it.

    Attributes:
        action: What it does.
        max_lag_offsets: Greatest end offset - committed offset; ``None``: no limit.
        max_lag_seconds: Greatest time since the partition was complete; ``None``: no limit.
        keep_offsets: With ``skip_to``: so many of the newest offsets are read, all before them are given up.
    """

    action: LagAction
    max_lag_offsets: int | None = None
    max_lag_seconds: int | None = None
    keep_offsets: int | None = None
