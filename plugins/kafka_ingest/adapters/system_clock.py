"""The machine's clock."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class SystemClock:
    """Port ``Clock``."""

    def now(self) -> datetime:
        """Gives the time, UTC, with a time zone."""
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> None:
        """Waits."""
        time.sleep(seconds)
