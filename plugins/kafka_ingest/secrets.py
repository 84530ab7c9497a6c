"""Which settings are secret, and every spelling in which their values could be printed: the one place that knows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote

_SECRET_NAME = re.compile(
    r"passw|passphrase|secret|token(?!\.endpoint\.url$)|credential|jaas|key\.pem$|private[._-]?key|oauthbearer\.config|user\.info",
    re.IGNORECASE,
)
#: The text between the two lines that frame a private key in PEM; certificates are public (RFC 7468).
_KEY_BODY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----(.+?)-----END ", re.DOTALL)
#: Shorter lines of a key would hide ordinary words; 16 is below the 64 characters of a PEM line.
_SHORTEST_LINE = 16


def is_secret_name(name: str) -> bool:
    """Tell whether the name of a setting, in Kafka's or libpq's spelling, says that its value is a secret."""
    return _SECRET_NAME.search(name) is not None


def secret_values(*settings: Mapping[str, object]) -> list[str]:
    """Return the secrets in settings, as text: values whose names say so, and private keys in any value."""
    pairs = [(name, str(value)) for mapping in settings for name, value in mapping.items() if value]
    return [text for name, value in pairs for text in _secrets_in(name, value)]


def _secrets_in(name: str, value: str) -> list[str]:
    # Only the body of a key: its frame is no secret, and a log may show it without the last line break.
    bodies = [body.strip() for body in _KEY_BODY.findall(value)]
    return bodies or ([value] if is_secret_name(name) else [])


def spellings(secret: str) -> tuple[str, ...]:
    """Return a secret as it is, as in JSON, ``repr()``, a URL and a libpq connection string; each once."""
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
    """Return the text with ``***`` for every secret, in any spelling, and for every line of a long one."""
    found = {
        spelling for secret in secrets if secret for part in _whole_and_lines(secret) for spelling in spellings(part)
    }
    # The longest first: a secret may be part of another's spelling.
    for spelling in sorted(found, key=len, reverse=True):
        text = text.replace(spelling, "***")
    return text


def _whole_and_lines(secret: str) -> Iterator[str]:
    yield secret
    lines = secret.splitlines()
    if len(lines) > 1:
        yield from (line.strip() for line in lines if len(line.strip()) >= _SHORTEST_LINE)
