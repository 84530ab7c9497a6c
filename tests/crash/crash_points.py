"""Where a run is killed: every call that changes something durable, before and after, and every read in between.

A point is a call of a port, of a staging task or of the job, with the step that makes it:
``<step>.<port>.<method>:before`` or ``:after``. A new durable effect adds a point: a test compares this list with the
ports and with what a run really calls.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafka_ingest.protocol.batch import RunMode, RunOptions, TimeSpan
from tests.crash.instructions import Situation

#: Parameters of a run that reads the whole log again.
RELOAD_EVERYTHING = RunOptions(RunMode.RELOAD, times=TimeSpan(0), reason="a crash test").to_parameters()

#: Parameters of a run that reads the whole log again into a table that holds the current state, and into a new one.
REBUILD, REBUILD_INTO_NEW_TABLE = (
    RunOptions(RunMode.REBUILD, reload_what_is_left=True, into_new_table=anew, reason="a crash test").to_parameters()
    for anew in (False, True)
)

#: What the run was doing, by number: tests, documents and reports name the kind by it.
KINDS = {
    1: "plan: before its last transaction, and after it but before the task reports",
    2: "load: claimed, nothing staged",
    3: "a task in the middle of COPY",
    4: "all staged, publish not begun",
    5: "publish: after each of its statements",
    6: "COMMIT sent, answer lost",
    7: "committed, staging not dropped",
    8: "committed, the driver dies before it exits",
    9: "audit",
}


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """One moment of a run.

    Attributes:
        kind: A number of :data:`KINDS`.
        event: The call, and whether the process dies before or after it.
        meaning: What is durable at that moment, and what is not.
        nth: At which occurrence of the event.
        situation: What the run has to meet for the call to happen at all.
        parameters: What the run has to be asked for, too.
    """

    kind: int
    event: str
    meaning: str
    nth: int = 1
    situation: Situation = Situation.ORDINARY
    parameters: str = "{}"

    @property
    def name(self) -> str:
        return self.event if self.nth == 1 else f"{self.event}#{self.nth}"

    @property
    def step(self) -> str:
        return self.event.split(".")[0]

    @property
    def leaves_a_planned_batch(self) -> bool:
        """Whether another run finds the killed one's batch outstanding, and has to supersede it."""
        return 1 < self.kind < 6 or self.event in ("plan.ledger.record_plan:after", "load.publication.commit:before")

    @property
    def call(self) -> str:
        """``<step>.<port>.<method>``."""
        return self.event.partition(":")[0]


POINTS = (
    CrashPoint(1, "plan.ledger.plan_view:after", "the ledger was read, nothing is written"),
    CrashPoint(1, "plan.target.prepare:before", "there is no target table"),
    CrashPoint(1, "plan.target.prepare:after", "the target table was created, nothing is planned"),
    CrashPoint(1, "plan.log.snapshot:after", "Kafka was asked, nothing is planned"),
    CrashPoint(1, "plan.log.offsets_at:after", "Kafka was asked for the offsets of the first run, nothing is planned"),
    CrashPoint(
        1,
        "plan.ledger.loaded_from:after",
        "the ledger was asked what it holds of the span to reload, nothing is planned",
        parameters=RELOAD_EVERYTHING,
    ),
    CrashPoint(1, "plan.ledger.record_plan:before", "the ranges are chosen, nothing is planned"),
    CrashPoint(1, "plan.ledger.record_plan:after", "the batch is planned, nobody was told"),
    CrashPoint(2, "load.ledger.claim:before", "the job runs, the batch is not claimed"),
    CrashPoint(2, "load.ledger.claim:after", "the batch is claimed and held"),
    CrashPoint(2, "load.staging.create:before", "claimed, no staging tables"),
    CrashPoint(2, "load.staging.create:after", "claimed, staging tables are empty"),
    CrashPoint(2, "load.runner.parallelism:after", "the heartbeat runs, no task was started"),
    CrashPoint(
        2,
        "load.log.mean_offset_bytes:after",
        "the log was asked how large records are, no task is cut",
        situation=Situation.SIZES,
    ),
    CrashPoint(2, "load.runner.cancel:before", "a newer claim was noticed while staging", situation=Situation.OUTRUN),
    CrashPoint(2, "load.runner.cancel:after", "a newer claim has stopped the tasks", situation=Situation.OUTRUN),
    CrashPoint(3, "load.runner.run:before", "the tasks are cut, none was started"),
    CrashPoint(3, "load.task.copy:before", "the first task has read a chunk"),
    CrashPoint(3, "load.task.copy:middle", "half of the first chunk is on its way"),
    CrashPoint(3, "load.task.copy:after", "one chunk is copied, its transaction is open"),
    CrashPoint(3, "load.task.copy:middle", "half of the third chunk is on its way", nth=3),
    CrashPoint(3, "load.task.stage:after", "one task has committed its staged rows, the other was not started"),
    CrashPoint(3, "load.task.copy:middle", "one task is staged, the other is copying", nth=5),
    CrashPoint(4, "load.runner.run:after", "all tasks are staged"),
    CrashPoint(
        4, "load.staging.progress:after", "all staged, the heartbeat has summed progress", situation=Situation.SLOW
    ),
    CrashPoint(4, "load.ledger.heartbeat:before", "all staged, the hold is to be extended", situation=Situation.SLOW),
    CrashPoint(4, "load.ledger.heartbeat:after", "all staged, the hold was extended", situation=Situation.SLOW),
    CrashPoint(4, "load.log.identity:after", "all staged, Kafka was asked for the topic ids again"),
    CrashPoint(4, "load.runner.release:before", "fenced: the cluster is not given back", situation=Situation.FENCED),
    CrashPoint(4, "load.runner.release:after", "fenced: the cluster is given back", situation=Situation.FENCED),
    CrashPoint(4, "load.ledger.hold:after", "fenced: waiting for a newer claim", situation=Situation.FENCED),
    CrashPoint(
        4,
        "load.evolution.add_columns:before",
        "all staged, some fields have no column, the table is as it was",
        situation=Situation.NEW_FIELDS,
    ),
    CrashPoint(
        4,
        "load.evolution.record:after",
        "the table has new columns and the ledger says so, uncommitted",
        situation=Situation.NEW_FIELDS,
    ),
    CrashPoint(
        4,
        "load.evolution.add_columns:after",
        "the table has new columns, nothing is staged with them",
        situation=Situation.NEW_FIELDS,
    ),
    CrashPoint(
        4,
        "load.ledger.claim:after",
        "claimed once more, the staging tables are those of the first claim",
        nth=2,
        situation=Situation.NEW_FIELDS,
    ),
    CrashPoint(
        4,
        "load.staging.create:after",
        "claimed once more, the staging tables have the new columns",
        nth=2,
        situation=Situation.NEW_FIELDS,
    ),
    CrashPoint(
        4,
        "load.runner.run:after",
        "all staged once more, with the new columns",
        nth=2,
        situation=Situation.NEW_FIELDS,
    ),
    CrashPoint(5, "load.publisher.begin:before", "all staged and accounted for"),
    CrashPoint(5, "load.publisher.begin:after", "the transaction is open"),
    CrashPoint(5, "load.publication.lock_batch:after", "the batch row is locked"),
    CrashPoint(5, "load.publication.advance_positions:after", "positions are moved, uncommitted"),
    CrashPoint(5, "load.publication.replace:after", "what is read again is deleted, uncommitted"),
    CrashPoint(5, "load.publication.insert_rows:after", "rows are in the target, uncommitted"),
    CrashPoint(5, "load.publication.insert_dead_letters:after", "dead letters are in the ledger, uncommitted"),
    CrashPoint(5, "load.publication.record_outcome:after", "counts and state are written, uncommitted"),
    CrashPoint(6, "load.publication.commit:before", "everything is written, COMMIT was not sent"),
    CrashPoint(6, "load.ledger.settle:before", "committed, and nobody knows", situation=Situation.ANSWER_LOST),
    CrashPoint(6, "load.ledger.settle:after", "committed, and the ledger said so", situation=Situation.ANSWER_LOST),
    CrashPoint(7, "load.publication.commit:after", "committed, the connection is open"),
    CrashPoint(7, "load.staging.drop:before", "committed, staging tables are there"),
    CrashPoint(7, "load.staging.drop:after", "committed, staging tables are gone"),
    CrashPoint(8, "load.ledger.batch:after", "committed, nobody was told"),
    CrashPoint(8, "load.job.write_batch:before", "committed, the outcome file is not written"),
    CrashPoint(8, "load.job.write_batch:after", "committed, the outcome file is written, the driver has not ended"),
    CrashPoint(9, "audit.ledger.batch:after", "committed, the invariants were not checked"),
    CrashPoint(9, "audit.ledger.violations:after", "the invariants were checked, nothing is announced"),
    CrashPoint(9, "audit.ledger.unannounced:after", "unannounced batches were read"),
    CrashPoint(9, "audit.ledger.mark_announced:before", "consumers are told, the announcement is not stored"),
    CrashPoint(9, "audit.ledger.mark_announced:after", "consumers are told, the announcement is stored"),
)

# ----------
# A run of a pipeline whose table holds the current state. It folds where others delete and insert.

_OF_APPEND = {
    "load.publication.replace",
    "load.publication.insert_rows",
}
_OF_STATE = (
    CrashPoint(
        1, "plan.target.require_versions:after", "the new table was looked at for rows of others, nothing is planned"
    ),
    CrashPoint(
        1, "plan.log.delete_retentions:after", "Kafka was asked how long it keeps tombstones, nothing is planned"
    ),
    CrashPoint(4, "load.log.delete_retentions:after", "all staged, Kafka was asked how long it keeps tombstones"),
    CrashPoint(4, "load.ledger.caught_up:after", "all staged, the ledger was asked when the log was last read whole"),
    CrashPoint(5, "load.publication.fold:after", "the newest change of each key is known, nothing of it is written"),
    CrashPoint(5, "load.fold.fold_remove_rows:after", "rows that deletes remove are gone, uncommitted"),
    CrashPoint(5, "load.fold.fold_update_rows:after", "rows that stand are altered, uncommitted"),
    CrashPoint(5, "load.fold.fold_insert_rows:after", "new keys have rows, uncommitted"),
    CrashPoint(5, "load.fold.fold_remember_removed:after", "removed keys are remembered, uncommitted"),
    CrashPoint(5, "load.fold.fold_forget_removed:after", "keys that are there again are forgotten, uncommitted"),
    CrashPoint(5, "load.publication.write_newest:after", "the table is the fold, uncommitted"),
)
#: What a run makes that reads again, before it writes: a reload, and in it a rebuild, which then sweeps.
_OF_LET_GO = (
    CrashPoint(5, "load.fold.let_go_rows:after", "rows that their records make no more are gone, uncommitted"),
    CrashPoint(5, "load.fold.let_go_removed:after", "removed keys that are none any more are gone, uncommitted"),
    CrashPoint(
        5, "load.fold.delete_read_dead_letters:after", "dead letters that were read again are gone, uncommitted"
    ),
)
_OF_SWEEP = (
    CrashPoint(5, "load.fold.sweep_rows:after", "rows that the log does not hold are gone, uncommitted"),
    CrashPoint(5, "load.fold.sweep_removed:after", "removed keys that the log does not hold are gone, uncommitted"),
    CrashPoint(
        5, "load.fold.close_unread_dead_letters:after", "dead letters that were not read are closed, uncommitted"
    ),
)

#: What a rebuild into a new table makes beside that.
OF_NEW_TABLE = (
    CrashPoint(1, "plan.target.require_replaceable:after", "the old table can be replaced, nothing is planned"),
    CrashPoint(5, "load.fold.create_rebuilt_table:after", "the new table is there and empty, uncommitted"),
    CrashPoint(5, "load.fold.forget_removed_keys:after", "removed keys are forgotten, uncommitted"),
    CrashPoint(5, "load.fold.replace_table:after", "the new table has the name of the old one, uncommitted"),
)

#: Of a live run, a reload and a rebuild; the first without the points that need other parameters.
STATE_POINTS = (
    *(point for point in POINTS if point.call not in _OF_APPEND and point.situation is not Situation.NEW_FIELDS),
    *_OF_STATE,
)
STATE_RELOAD_POINTS = (*(point for point in STATE_POINTS if point.kind > 1), *_OF_LET_GO)
REBUILD_POINTS = (*STATE_RELOAD_POINTS, *_OF_SWEEP)
NEW_TABLE_POINTS = (*REBUILD_POINTS, *OF_NEW_TABLE)
