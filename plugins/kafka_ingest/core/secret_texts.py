"""Which settings are secret, and every spelling in which their values could be printed: the one place that knows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote

_SECRET_NAME = re.compile(
    r"passw|passphrase|secret|token|credential|jaas|\.pem$|private[._-]?key|oauthbearer\.config|user\.info",
    re.IGNORECASE,
)


def is_secret_name(name: str) -> bool:
    """Whether the name of a setting, in Kafka's or libpq's spelling, says that its value is a secret."""
    return _SECRET_NAME.search(name) is not None


def secret_values(*settings: Mapping[str, object]) -> list[str]:
    """Gives the values of all settings whose names say that they are secret, as text."""
    return [str(value) for mapping in settings for name, value in mapping.items() if value and is_secret_name(name)]


def spellings(secret: str) -> tuple[str, ...]:
    """Gives a secret as it is, as in JSON, ``repr()``, a URL and a libpq connection string; each once."""
    libpq = secret.replace("\\", "\\\\").replace("'", "\\'")
    found = (
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        repr(secret)[1:-1],
        quote(secret, safe=""),
        quote(secret),
        libpq,
    )
    return tuple(dict.fromkeys(found))


def scrubbed(text: str, secrets: Iterable[str]) -> str:
    """Gives the text with ``***`` in place of every secret, however it is spelled."""
    found = {spelling for secret in secrets if secret for spelling in spellings(secret)}
    # The longest first: a secret may be part of another's spelling.
    for spelling in sorted(found, key=len, reverse=True):
        text = text.replace(spelling, "***")
    return text
