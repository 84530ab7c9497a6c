"""The real steps with what would make a schedule depend on the wall clock taken into the schedule's hands."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

import pytest

from kafka_ingest.errors import IngestError
from kafka_ingest.protocol.load import Heartbeat
from tests.protocol_model.attempts import Attempt


class DrivenHeartbeat(Heartbeat):
    """The real heartbeat without its thread: it beats when the schedule says so."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._attempt = Attempt.current()

    def __enter__(self) -> Self:
        self._attempt.beat = self._beat_now
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._attempt.beat = None

    def _beat_now(self) -> None:
        self._attempt.clock.time += timedelta(seconds=self._hold.heartbeat_interval_seconds)
        with suppress(IngestError):  # as in the thread, which tries again later
            self._beat()


def drive_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the thread of the heartbeat, and let a batch of a few offsets have several tasks."""
    monkeypatch.setattr("kafka_ingest.protocol.load.Heartbeat", DrivenHeartbeat)
    monkeypatch.setattr("kafka_ingest.protocol.staging.MIN_TASK_OFFSETS", 2)
    monkeypatch.setattr("kafka_ingest.protocol.staging.MAX_TASK_OFFSETS", 4)
