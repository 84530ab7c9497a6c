"""Ties the driver's life to that of the process that started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Asks the kernel to kill this process when its parent ends; ends it at once when the parent is gone already.

    Why: SIGKILL of spark-submit, as an execution time-out of Airflow sends it, leaves the Python driver running as an
    orphan that goes on writing. Does nothing where the kernel cannot (prctl(2) is Linux's); fencing holds there too.
    """
    if sys.platform != "linux":
        return
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent may have ended before the call, which then waits for the death of whoever adopted this process.
    # One that ended even before getppid() is noticed when the driver finds no JVM to talk to.
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
