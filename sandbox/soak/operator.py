"""The operator's interventions that the seed chose: asked for under the same id until done or rightly refused."""

from __future__ import annotations

import itertools
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from sandbox.paths import log_tail
from sandbox.soak.attempts import DONE, STOP_AND_CALL, Attempt, SoakFailure, run_arguments
from sandbox.soak.interventions import (
    Intervention,
    InterventionKind,
    Span,
    change_arguments,
    rebuild_form,
    reload_arguments,
    reload_form,
)
from sandbox.soak.journal import Journal
from sandbox.soak.processes import send
from sandbox.soak.progress import Progress, Usual, Watcher
from sandbox.soak.world import SoakWorld

CLI = "cli"  # the DAG id that the command line writes into the ledger
_PAUSE_SECONDS = 0.5
_POLL_SECONDS = 0.02
#: The batch of a run that is frozen, killed and retried is open for a minute; with Airflow for several minutes.
_LONGEST_SECONDS = 600.0
#: A command that does not supersede waits this long for the open batch; then nobody retries that batch's run.
_PATIENCE_SECONDS = 20.0
#: Time of a change from its first connection to its end, as measured on a busy machine: 0.2 to 0.6 s.
_CHANGE_SECONDS = 0.4
_OUTSTANDING, _REFUSED = "BatchOutstanding", "RollBackRefused"


@dataclass(slots=True)
class _UnderWay:
    """An intervention that is not done yet. A run's arguments are made once: another span under its id stops."""

    wanted: Intervention
    name: str
    run: list[str]
    asked_at: float
    attempts: int = 0
    attempt: Attempt | None = None
    progress: Callable[[], float] = lambda: 0.0
    not_before: float = 0.0

    def arguments(self) -> list[str]:
        if self.run:
            return [*run_arguments(self.name, runner="in-process"), *self.run]
        supersede = self.wanted.supersede or time.monotonic() > self.asked_at + _PATIENCE_SECONDS
        return change_arguments(self.wanted, self.name, supersede=supersede)


class Operator:
    """The operator, who intervenes between runs and beside them; only :meth:`finish` blocks.

    Args:
        world: The servers.
        journal: Records what happens.
        watcher: Looks into the ledger.
    """

    def __init__(self, world: SoakWorld, journal: Journal, watcher: Watcher) -> None:
        self.refused: Counter[str] = Counter()
        self._world, self._journal, self._watcher = world, journal, watcher
        self._started = datetime.now(UTC)
        self._usual = Usual()
        self._numbers = itertools.count(1)
        self._under_way: list[_UnderWay] = []

    def ask(self, wanted: Intervention, run_id: str) -> None:
        """Begin to ask for an intervention; :meth:`advance` goes on with it.

        Args:
            wanted: What.
            run_id: The run that it happens before, beside or after; part of request ids and run ids.
        """
        name = f"{run_id}-{wanted.kind}-{next(self._numbers)}"
        self._journal.event("asking", intervention=str(wanted), request=name)
        self._begin(wanted, name)

    def keep_up(self, waiting: list[Intervention], run_id: str, *, progress: float) -> None:
        """Ask for those whose moment has come, which leave the list, and go on with all.

        Raises:
            SoakFailure: As :meth:`advance`.
        """
        while waiting and progress >= (waiting[0].moment or 0.0):
            self.ask(waiting.pop(0), run_id)
        self.advance()

    def advance(self) -> None:
        """Start, kill or check every command that is under way.

        Raises:
            SoakFailure: A command ended in a way that no fault and no rule excuses, or something is never done.
        """
        for one in list(self._under_way):
            self._advance(one)

    def finish(self) -> None:
        """Go on until nothing is under way.

        Raises:
            SoakFailure: As :meth:`advance`.
        """
        while self._under_way:
            self.advance()
            time.sleep(_POLL_SECONDS)

    def end(self) -> None:
        """Kill what is under way. Idempotent."""
        while self._under_way:
            attempt = self._under_way.pop().attempt
            if attempt is not None:
                attempt.end()

    def form(self, span: Span) -> dict[str, str]:
        """Return the form of a run that reloads a span, from the current ledger.

        Raises:
            SoakFailure: The ledger cannot be read for too long.
        """
        deadline = time.monotonic() + _LONGEST_SECONDS
        while (committed := self._watcher.positions()) is None:
            if time.monotonic() > deadline:
                raise SoakFailure("the ledger cannot be read, and nothing is killed")
            time.sleep(_PAUSE_SECONDS)
        return reload_form(span, committed, self._started, datetime.now(UTC) - timedelta(seconds=1))

    def _begin(self, wanted: Intervention, name: str) -> None:
        run: list[str] = []
        if wanted.kind.is_run:
            form = self.form(wanted.span) if wanted.span is not None else rebuild_form(wanted.kind)
            run = reload_arguments(form)
        self._under_way.append(_UnderWay(wanted, name, run, time.monotonic()))

    def _advance(self, one: _UnderWay) -> None:
        if time.monotonic() > one.asked_at + _LONGEST_SECONDS:
            found = log_tail(one.attempt.log, 40) if one.attempt else "no command was started"
            raise SoakFailure(f"{one.name} is not done after {_LONGEST_SECONDS:.0f} s", found=found)
        if one.attempt is None:
            if time.monotonic() > one.not_before:
                self._start(one)
        elif one.attempt.is_running():
            self._kill_when_due(one, one.attempt)
        else:
            self._take_in(one, one.attempt)

    def _start(self, one: _UnderWay) -> None:
        one.attempts += 1
        log = self._world.state / "runs" / f"{one.name}.{one.attempts}.log"
        one.progress = self._progress(one)
        one.attempt = Attempt(one.arguments(), env=self._world.command_environment(), log=log)

    def _progress(self, one: _UnderWay) -> Callable[[], float]:
        if not one.wanted.kind.is_run:
            return _ChangeProgress(self._watcher)
        run = Progress(self._usual, self._watcher.look(CLI, one.name))
        return lambda: run.take_in(self._watcher.look(CLI, one.name))

    def _kill_when_due(self, one: _UnderWay, attempt: Attempt) -> None:
        value, due = one.progress(), one.wanted.kill_at
        if due is None or one.attempts > 1 or attempt.is_killed or value <= due:
            return
        attempt.is_killed = True
        for process in attempt.processes():
            send(process, signal.SIGKILL)
        self._journal.hit(f"{one.wanted.kind} command", request=one.name, progress=round(value, 3))

    def _take_in(self, one: _UnderWay, attempt: Attempt) -> None:
        code = attempt.code(also=[STOP_AND_CALL])
        attempt.require_expected_faults()
        self._journal.event("intervention", request=one.name, log=attempt.log.name, code=code)
        one.attempt, one.not_before = None, time.monotonic() + _PAUSE_SECONDS
        if one.attempts == 1 and one.wanted.kill_at is not None and not attempt.is_killed:
            self._journal.late(f"kill of {one.name}")
        if code == STOP_AND_CALL:
            self._take_in_refusal(one, attempt)
        elif code == DONE:
            self._under_way.remove(one)

    def _take_in_refusal(self, one: _UnderWay, attempt: Attempt) -> None:
        told = attempt.log.read_text(encoding="utf-8")
        if attempt.was_rolled_back() or (_OUTSTANDING in told and not one.wanted.supersede):
            return  # the same again later
        if _REFUSED not in told or one.wanted.kind is not InterventionKind.ROLL_BACK:
            raise SoakFailure(f"{one.name} was refused", found=log_tail(attempt.log, 40))
        # The refusal is right where a position change lies in between: the ledger decides, and no rows may have moved.
        self._under_way.remove(one)
        self.refused[one.wanted.kind] += 1
        if one.wanted.batches > 1:
            self._begin(replace(one.wanted, batches=one.wanted.batches - 1, kill_at=None), f"{one.name}-fewer")


class _ChangeProgress:
    """Progress of a change: the time since its first connection to the ledger."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._connected_at: float | None = None

    def __call__(self) -> float:
        if self._connected_at is None:
            self._connected_at = time.monotonic() if self._watcher.sees_change() else None
            return 0.0
        return (time.monotonic() - self._connected_at) / _CHANGE_SECONDS
