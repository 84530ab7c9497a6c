"""What the page says of a pipeline: its state in a word, the reason in a sentence. Pure decisions on plain values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from kafka_ingest.page.airflow_side import DagFacts, RunFacts

#: A row of ``PostgresOverview.pipelines``.
Summary = Mapping[str, Any]


class State(StrEnum):
    """States of a pipeline, the worst first: where several hold, the first one is told."""

    LOSING = "losing records"
    FAILING = "failing"
    STUCK = "stuck"
    LATE = "late"
    UNKNOWN = "unknown"
    LOADING = "loading"
    PAUSED = "paused"
    NOT_STARTED = "not started"
    UP_TO_DATE = "up to date"


#: What each state means, for the page's legend and ``docs/page.md``.
MEANINGS: Mapping[State, str] = {
    State.LOSING: "Kafka's retention has deleted records that were not read, or will within hours",
    State.FAILING: "the newest run that ended has failed",
    State.STUCK: "a batch is planned, nobody works on it, and no run is active",
    State.LATE: "a scheduled run was due, and no batch has been committed since",
    State.UNKNOWN: "the database that holds the ledger does not answer",
    State.LOADING: "a run is active",
    State.PAUSED: "the DAG is paused: no scheduled run begins",
    State.NOT_STARTED: "no batch has been committed yet",
    State.UP_TO_DATE: "the newest run that was due has committed its batch",
}
_ORDER = {state: place for place, state in enumerate(State)}
_ACTIVE, _ENDED = ("running", "queued"), ("success", "failed")


@dataclass(frozen=True, slots=True)
class Standing:
    """One pipeline as the page shows it.

    Attributes:
        pipeline: Its name.
        connection: Id of the connection that leads to its ledger.
        dag_id: The DAG that it belongs to; who may read that one may see the pipeline.
        dag: What Airflow knows of that DAG; ``None`` where it is gone.
        now: The moment of the answer, by the database's clock, or the page's where there is no answer.
        state: The worst that holds.
        reasons: Why, in sentences; the first one is about the state.
        summary: The ledger's row; empty where the database did not answer.
        failed_runs: Runs that failed in a row, the newest included.
    """

    pipeline: str
    connection: str
    dag_id: str
    dag: DagFacts | None
    now: datetime
    state: State
    reasons: tuple[str, ...] = ()
    summary: Summary = field(default_factory=dict)
    failed_runs: tuple[RunFacts, ...] = ()

    @property
    def rank(self) -> int:
        """Place of its state, 0 for the worst."""
        return _ORDER[self.state]

    @property
    def lag_seconds(self) -> float | None:
        """Return 0 when nothing waited at the newest plan, else the time since ``valid_through``, if that is known."""
        if self.summary.get("lag_offsets") == 0:
            return 0.0
        through = self.summary.get("valid_through")
        return None if through is None else max(0.0, (self.now - through).total_seconds())

    @property
    def newest_fault(self) -> str:
        """Class of the fault with which the newest run failed; empty where it did not, or no attempt told."""
        is_told = self.failed_runs and self.summary.get("failed_run_id") == self.failed_runs[0].run_id
        return (self.summary["failed_fault"] or "") if is_told else ""

    @property
    def active_run(self) -> RunFacts | None:
        """The run that goes on, or waits to."""
        return next((run for run in self.dag.runs if run.state in _ACTIVE), None) if self.dag else None

    @property
    def clearable_run(self) -> tuple[str, str] | None:
        """DAG and run that somebody would clear, so that it does its batch."""
        if self.failed_runs:
            return self.dag_id, self.failed_runs[0].run_id
        if self.state is State.STUCK and self.summary["outstanding_dag_id"] == self.dag_id:
            return self.summary["outstanding_dag_id"], self.summary["outstanding_run_id"]
        return None


def judge(summary: Summary, place: Standing, late_after: timedelta) -> Standing:
    """Return a pipeline's standing.

    Args:
        summary: The ledger's row.
        place: Names and DAG of the pipeline.
        late_after: How long after a run was due the pipeline counts as late.
    """
    now, dag = summary["now"], place.dag
    failed = _failed_in_a_row(dag.runs if dag else ())
    told = list(_judgements(summary, dag, failed, late_after))
    state = min((state for state, _ in told), key=_ORDER.__getitem__)
    reasons = tuple(reason for s, reason in sorted(told, key=lambda one: _ORDER[one[0]]) if reason)
    return Standing(
        place.pipeline, place.connection, place.dag_id, dag, now, state, reasons, summary, failed_runs=failed
    )


def _failed_in_a_row(runs: Sequence[RunFacts]) -> tuple[RunFacts, ...]:
    """Return the newest runs that ended, up to the first that did not fail."""
    failed: list[RunFacts] = []
    for run in runs:
        if run.state not in _ENDED:
            continue
        if run.state != "failed":
            break
        failed.append(run)
    return tuple(failed)


def _judgements(
    summary: Summary, dag: DagFacts | None, failed: Sequence[RunFacts], late_after: timedelta
) -> Iterator[tuple[State, str]]:
    active = next((run for run in dag.runs if run.state in _ACTIVE), None) if dag else None
    if loss := _loss(summary):
        yield State.LOSING, loss
    if failed:
        yield State.FAILING, _failure(failed, summary)
    if summary["outstanding_batch_id"] and not active and not _is_held(summary):
        yield State.STUCK, _stuck(summary)
    late = _lateness(dag, active) if dag and _is_late(summary, dag, late_after) else ""
    if late:
        yield State.LATE, late
    # Lateness names the run, or that the DAG is paused, already.
    if active or _is_held(summary):
        yield State.LOADING, "" if active and late else _loading(summary, active)
    if dag and dag.is_paused:
        yield State.PAUSED, "" if "the DAG is paused" in late else "The DAG is paused: no scheduled run begins."
    if summary["last_batch_id"] is None:
        yield State.NOT_STARTED, "No batch has been committed yet."
    yield State.UP_TO_DATE, ""


def _loss(summary: Summary) -> str:
    if losing := summary["partitions_losing"]:
        return (
            f"Kafka no longer holds records that were not read, in {plural(losing, 'partition')}: the log of the worst "
            f"begins {-summary['headroom_offsets']:,} offsets above the committed offset."
        )
    if short := summary["partitions_short"]:
        left = duration(summary["headroom_seconds"])
        return (
            f"Kafka's retention comes close in {plural(short, 'partition')}: records are deleted unread in about "
            f"{left} at the observed rate, unless they are loaded before."
        )
    return ""


def _failure(failed: Sequence[RunFacts], summary: Summary) -> str:
    newest = failed[0]
    runs = "The last run failed" if len(failed) == 1 else f"The last {len(failed)} runs failed"
    at = f" at {moment(newest.ended_at)}" if newest.ended_at else ""
    tasks = f", in {', '.join(newest.failed_tasks)}" if newest.failed_tasks else ""
    what = summary["failed_message"] if summary["failed_run_id"] == newest.run_id else None
    return f"{runs}, the newest{at}{tasks}{': ' + first_line(what) if what else '.'}"


def first_line(message: str) -> str:
    """Return what a message in four parts says first: the class and what went wrong."""
    return message.strip().partition("\n")[0]


def _is_held(summary: Summary) -> bool:
    return summary["hold_until"] is not None and bool(summary["hold_until"] > summary["now"])


def _stuck(summary: Summary) -> str:
    since = f" since {moment(summary['hold_until'])}" if summary["hold_until"] else ""
    return (
        f"Batch {summary['outstanding_batch_id']} is planned, its attempt has given no sign of life{since}, "
        "and no run is active."
    )


def _is_late(summary: Summary, dag: DagFacts, late_after: timedelta) -> bool:
    if dag.due_at is None or summary["now"] < dag.due_at + late_after:
        return False
    planned = summary["last_planned_at"]
    return planned is None or planned < dag.due_at


def _lateness(dag: DagFacts, active: RunFacts | None) -> str:
    assert dag.due_at is not None  # noqa: S101 - a pipeline without it is not late
    due = f"A run was due at {moment(dag.due_at)}, and no batch has been committed since"
    if active and active.state == "running":
        return f"{due}: run {active.run_id} is still running, since {moment(active.started_at)}."
    waits = f"run {active.run_id} waits to start, since {moment(active.run_after)}" if active else ""
    if dag.is_paused:
        return f"{due}: the DAG is paused{', and ' + waits if waits else ''}."
    if waits:
        return f"{due}: {waits}."
    if any(run.run_after >= dag.due_at for run in dag.runs):
        return f"{due}: the run has ended without one."
    return f"{due}: Airflow has not started a run; see whether its scheduler works."


def _loading(summary: Summary, active: RunFacts | None) -> str:
    who = f"Run {active.run_id} is {active.state}" if active else "A batch is being loaded"
    if not _is_held(summary):
        return f"{who}."
    staged, total = summary["staged_offsets"], summary["total_offsets"]
    return f"{who}: step {summary['step']}, {staged:,} of {total:,} offsets staged."


# ----------
# What several sentences are made of.


def plural(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def moment(time: datetime | None) -> str:
    """Return a time as people read it, UTC to the second."""
    return "-" if time is None else time.strftime("%Y-%m-%d %H:%M:%S UTC")


_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def duration(seconds: float | None) -> str:
    """Return a time span in its two greatest units, such as ``2 h 5 min``."""
    if seconds is None:
        return "-"
    if abs(seconds) < 10:
        return f"{seconds:.1f} s"
    left, parts = round(abs(seconds)), list[str]()
    for size, unit in _UNITS:
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
        if len(parts) == 2:
            break
    return ("-" if seconds < 0 else "") + " ".join(part for part in parts if part)
