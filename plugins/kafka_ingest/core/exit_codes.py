"""Exit codes of the job and of the command line: scripts can tell "again later" from "somebody must act".

The numbers are those of sysexits.h, where they fit.
"""

from __future__ import annotations

from kafka_ingest.core.errors import Busy, Fenced, IngestError, RetryLater, StopAndCall

OK = 0
UNEXPECTED = 1
USAGE = 2
#: An audit found that an invariant does not hold (EX_DATAERR).
AUDIT_FOUND = 65
#: The same command may succeed later (EX_TEMPFAIL).
RETRY_LATER = 75
#: The same command cannot succeed until somebody acts (EX_CONFIG).
STOP_AND_CALL = 78


def exit_code(error: IngestError) -> int:
    """Gives the exit code of an error's family."""
    if isinstance(error, RetryLater | Busy | Fenced):
        return RETRY_LATER
    return STOP_AND_CALL if isinstance(error, StopAndCall) else UNEXPECTED
