"""What commands print: aligned text for people, one JSON document for scripts."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any, TextIO

from kafka_ingest.errors import IngestError
from kafka_ingest.report import Row, cell, table, vertical

__all__ = ["Output", "Row", "cell", "table"]


class Output:
    """Prints results to standard output, notes to standard error.

    Args:
        as_json: Print JSON instead of text. Notes then still go to standard error, so that the document stays whole.
    """

    def __init__(self, *, as_json: bool, stdout: TextIO | None = None, stderr: TextIO | None = None) -> None:
        self.as_json = as_json
        self._stdout = stdout or sys.stdout
        self._stderr = stderr or sys.stderr

    def rows(self, rows: Sequence[Row], columns: Sequence[str], *, empty: str) -> None:
        """Print a list: in text the named columns, in JSON whole rows.

        Args:
            rows: The rows, in order.
            columns: Keys to show in text; they are the headings, too.
            empty: What to say in text when there is no row.
        """
        if self.as_json:
            self._json(list(rows))
        else:
            self._write(table(rows, columns) if rows else empty)

    def record(self, row: Row) -> None:
        """Print one result: in text a line for each key."""
        if self.as_json:
            self._json(row)
        else:
            self._write(vertical(row))

    def note(self, text: str) -> None:
        """Tell a person what is going on."""
        self._stderr.write(f"{text}\n")
        self._stderr.flush()

    def fault(self, error: IngestError) -> None:
        """Print the four-part message of an expected fault, in JSON with the same parts."""
        if self.as_json:
            self._stderr.write(json.dumps({"error": error.to_record()}) + "\n")
        else:
            self._stderr.write(f"{error}\n")

    def _json(self, document: Any) -> None:
        self._write(json.dumps(document, indent=2, default=_json_value))

    def _write(self, text: str) -> None:
        self._stdout.write(f"{text}\n")


def _json_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} has no JSON form")
