"""Keeps secrets and payload out of the job's log: exception texts of libraries are not ours to trust."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from types import TracebackType

from kafka_ingest.adapters.postgres_faults import trace_without_payload
from kafka_ingest.core.secret_texts import scrubbed


class ScrubbedFormatter(logging.Formatter):
    """Formats log records, traces included, and replaces secrets by ``***``.

    Args:
        pattern: Format of a line.
        secrets: The values to hide.
    """

    def __init__(self, pattern: str, secrets: Sequence[str]) -> None:
        super().__init__(pattern, "%H:%M:%S")
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        """Formats and scrubs."""
        return scrubbed(super().format(record), self._secrets)

    def formatException(  # noqa: N802 (the name of logging.Formatter's method)
        self,
        ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None],
    ) -> str:
        """Formats a trace, of database errors without what could quote a row."""
        return trace_without_payload(ei[1]) if ei[1] else ""
