"""What a test tells the driver that it starts: what to run, where to die, and what to meet on the way."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from enum import StrEnum


class Situation(StrEnum):
    """What a run meets. All but ``ordinary`` stand for something outside of the driver that takes time or luck.

    Attributes:
        ORDINARY: Nothing in particular.
        SLOW: Staging takes so long that the heartbeat beats.
        OUTRUN: A newer attempt claims the batch before this one stages; its heartbeat notices.
        FENCED: A newer attempt claims the batch when this one has staged, and lives.
        ANSWER_LOST: COMMIT succeeds, its answer does not arrive.
        SIZES: Offsets alone do not say how many tasks a batch has: the log is asked how large its records are.
        NEW_FIELDS: The pipeline reads the first column of its file only, and adds columns for all other fields.
    """

    ORDINARY = "ordinary"
    SLOW = "slow"
    OUTRUN = "outrun"
    FENCED = "fenced"
    ANSWER_LOST = "answer_lost"
    SIZES = "sizes"
    NEW_FIELDS = "new_fields"


@dataclass(frozen=True, slots=True)
class Instructions:
    """One run of the driver.

    Attributes:
        pipeline: Name of the pipeline.
        run_id: The run; the same again is a retry.
        parameters: What the run is asked to do, as ``RunOptions.to_parameters`` gives it.
        stop_at: Event at which the process signals itself; empty: it runs to its end.
        nth: At which occurrence of the event.
        stop_with: SIGKILL, or SIGSTOP to make a zombie that SIGCONT wakes.
        situation: What the run meets.
        trace: File that gets a line for each event; empty: none.
        batch_id: Load only this planned batch, with neither plan nor audit; empty: all three steps.
        runner: ``in-process`` or ``spark``, as the job takes it.
        outcome: File in which the job says what came of the batch; empty: one that is thrown away.
        lock_timeout_seconds: Of the ledger's transactions; short where a test waits for it.
        idle_timeout_seconds: After which the server ends a transaction of the ledger, or a publish, that does nothing.
        other_runs_have_ended: Whether the scheduler says so: a plan then need not wait until a hold has passed.
    """

    pipeline: str
    run_id: str = ""
    parameters: str = "{}"
    stop_at: str = ""
    nth: int = 1
    stop_with: int = signal.SIGKILL
    situation: Situation = Situation.ORDINARY
    trace: str = ""
    batch_id: str = ""
    runner: str = "in-process"
    outcome: str = ""
    lock_timeout_seconds: float = 10
    idle_timeout_seconds: float = 60
    other_runs_have_ended: bool = False
