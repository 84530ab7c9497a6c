"""The port ``Attempts`` in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kafka_ingest.errors import IngestError
from kafka_ingest.protocol.attempts import Attempt, AttemptOutcome
from kafka_ingest.protocol.batch import Request

#: A try, as the ledger tells them apart.
Try = tuple[str, Request, str, int]


class FakeAttempts:
    """What became of each try, in the order in which they were first recorded; ``fault`` is raised instead."""

    def __init__(self) -> None:
        self.fault: IngestError | None = None
        self.recorded: dict[Try, Attempt] = {}

    def record(self, attempt: Attempt) -> None:
        if self.fault:
            raise self.fault
        key = (attempt.pipeline, attempt.request, attempt.task_id, attempt.try_number)
        self.recorded[key] = replace(attempt)

    def outcomes(self) -> Mapping[str, AttemptOutcome | None]:
        """Return how the newest try of each task ended."""
        return {attempt.task_id: attempt.outcome for attempt in self.recorded.values()}
