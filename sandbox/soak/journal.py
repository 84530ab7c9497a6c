"""The record of a soak: lines for the person, and two files for the search after a failure.

``choices.jsonl`` holds the seed's choices, a line a cycle, written before anything starts. ``events.jsonl`` holds what
really happened, with times.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sandbox.paths import private_folder
from sandbox.soak.choices import Cycle


class Journal:
    """Lines and files of a soak, and its counts.

    Args:
        folder: Where the files are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = private_folder(folder)
        self.kills: Counter[str] = Counter()
        self.late_faults = 0
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the soak began."""
        return time.monotonic() - self._started

    def choices(self, cycles: Iterable[Cycle]) -> None:
        """Write down the seed's choices."""
        lines = "".join(f"{json.dumps(cycle.as_record())}\n" for cycle in cycles)
        (self.folder / "choices.jsonl").write_text(lines, encoding="utf-8")

    def event(self, what: str, **details: Any) -> None:
        """Append one event."""
        record = {"seconds": round(self.seconds, 2), "event": what, **details}
        with (self.folder / "events.jsonl").open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(record)}\n")

    def hit(self, victim: str, **details: Any) -> None:
        """Count and append a fault that hit something."""
        self.kills[victim] += 1
        self.event("fault", victim=victim, **details)

    def late(self, fault: str) -> None:
        """Count and append a fault that came too late: the run had ended."""
        self.late_faults += 1
        self.event("late fault", fault=fault)

    def say(self, text: str) -> None:
        """Tell the person who watches."""
        print(text, flush=True)
