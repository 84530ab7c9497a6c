"""Keeps secrets out of what the job prints: exception texts of libraries are not ours to trust."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from urllib.parse import quote

#: A setting whose name holds one of these is a secret, in Kafka's and in libpq's spelling.
_SECRET_NAMES = ("password", "passphrase", "secret", "token", "jaas", "key.pem", "oauthbearer.config", "user.info")


def secret_values(*settings: Mapping[str, str]) -> list[str]:
    """Gives the values of all settings whose names say that they are secret."""
    return [
        value
        for mapping in settings
        for name, value in mapping.items()
        if value and any(part in name.lower() for part in _SECRET_NAMES)
    ]


class Scrubber:
    """Replaces secrets in text, in every spelling in which libraries print them.

    Args:
        secrets: The values to hide.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        spellings = {spelling for secret in secrets for spelling in _spellings(secret)}
        # The longest first: a secret may be part of another's spelling.
        self._spellings = sorted(spellings, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """Gives the text with ``***`` in place of every secret."""
        for spelling in self._spellings:
            text = text.replace(spelling, "***")
        return text


class ScrubbedFormatter(logging.Formatter):
    """Formats log records, traces included, and scrubs them."""

    def __init__(self, pattern: str, scrub: Scrubber) -> None:
        super().__init__(pattern, "%H:%M:%S")
        self._scrub = scrub

    def format(self, record: logging.LogRecord) -> str:
        """Formats and scrubs."""
        return self._scrub(super().format(record))


def _spellings(secret: str) -> Iterable[str]:
    # As it is, percent-encoded, and escaped as in repr(), in JSON and in a libpq connection string.
    escaped = secret.replace("\\", "\\\\")
    yield from (secret, quote(secret, safe=""), quote(secret), repr(secret)[1:-1], json.dumps(secret)[1:-1])
    yield from (escaped, escaped.replace("'", "\\'"))
