"""Why a value does not fit: a reason of the closed list and words for a person."""

from __future__ import annotations

from kafka_ingest.core.dead_letters import DeadLetterReason

# Enough to recognise a value by; a detail never quotes more than 100 characters of payload.
_EXCERPT_CHARACTERS = 60


class Misfit(Exception):
    """A value that its column cannot hold exactly.

    Args:
        reason: One reason of the closed list.
        detail: What was expected and what was found; :meth:`at` puts the place before it.
    """

    def __init__(self, reason: DeadLetterReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail

    def at(self, place: str) -> Misfit:
        """Gives the same misfit with its place: ``column "amount" at $.amount``."""
        return Misfit(self.reason, f"{place}: {self.detail}")


def wrong_type(expected: str, found: str) -> Misfit:
    """A value of another type, or text that does not name a value of the type."""
    return Misfit(DeadLetterReason.WRONG_TYPE, f"expected {expected}, found {found}")


def out_of_range(expected: str, found: str) -> Misfit:
    """A number or time that the type cannot hold exactly."""
    return Misfit(DeadLetterReason.OUT_OF_RANGE, f"expected {expected}, found {found}")


def unsupported_text(found: str) -> Misfit:
    """Text that PostgreSQL cannot hold."""
    expected = "text without U+0000 and without lone surrogates"
    return Misfit(DeadLetterReason.UNSUPPORTED_TEXT, f"expected {expected}, found {found}")


def excerpt(payload: str | bytes) -> str:
    """Quotes the beginning of a payload as it stands in the record; only what is not printable is escaped."""
    beginning = payload[: 4 * (_EXCERPT_CHARACTERS + 1)]  # UTF-8 takes four bytes a character at most
    text = beginning if isinstance(beginning, str) else beginning.decode("utf-8", "backslashreplace")
    more = "…" if len(text) > _EXCERPT_CHARACTERS else ""
    return printable(text[:_EXCERPT_CHARACTERS]) + more


def printable(text: str) -> str:
    """Escapes each character that is not printable, such as a line break or one that turns the writing direction."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
