"""Keeps secrets out of the job's log: exception texts of libraries are not ours to trust."""

from __future__ import annotations

import logging
from collections.abc import Sequence

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
