"""The one error of the sandbox: something on this machine keeps a part from running."""

from __future__ import annotations


class SandboxError(Exception):
    """A part cannot be started, and a person at this machine can do something about it.

    Args:
        what: One sentence without a full stop: what went wrong.
        found: What was seen, for example the end of a log.
        next_step: The command or action that resolves it.
    """

    def __init__(self, what: str, *, found: str = "", next_step: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.found = found
        self.next_step = next_step

    def __str__(self) -> str:
        lines = [self.what]
        lines += [f"  {label}: {text}" for label, text in (("found", self.found), ("next", self.next_step)) if text]
        return "\n".join(lines)
