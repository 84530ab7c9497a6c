"""Cycles by the command line: attempts, one after another, until the run has succeeded."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.paths import log_tail
from sandbox.soak.attempts import DONE, Attempt, SoakFailure, run_arguments
from sandbox.soak.choices import Cycle, Fault, RunKind
from sandbox.soak.faults import Faults, Scene
from sandbox.soak.interventions import Intervention, reload_arguments
from sandbox.soak.journal import Journal
from sandbox.soak.operator import CLI, Operator
from sandbox.soak.processes import SeenProcess, all_processes, in_sessions
from sandbox.soak.progress import Progress, Usual, Watcher
from sandbox.soak.world import SoakWorld

_POLL_SECONDS = 0.02
_PAUSE_SECONDS = 1.0
#: Holds end within seconds and locks within a minute, so a run that needs more attempts never ends.
_MOST_ATTEMPTS = 30
_ATTEMPT_SECONDS = 600.0  # Spark on a machine that does ten other things took 90 s


@dataclass(frozen=True, slots=True)
class Waiting:
    """Faults and interventions of a run whose moments have not come yet, in order."""

    faults: list[Fault]
    interventions: list[Intervention]

    @classmethod
    def of(cls, cycle: Cycle) -> Waiting:
        """Return all faults and interventions beside the run of a cycle."""
        return cls(list(cycle.faults), [one for one in cycle.interventions if one.moment is not None])


@dataclass(slots=True)
class CommandRuns:
    """Cycles of every kind but Airflow's.

    Attributes:
        world: The servers.
        faults: Injects the faults that the seed chose.
        journal: Records what happens.
        watcher: Looks into the ledger.
        operator: Intervenes before runs and beside them.
    """

    world: SoakWorld
    faults: Faults
    journal: Journal
    watcher: Watcher
    operator: Operator
    _usual: dict[RunKind, Usual] = field(default_factory=dict)
    _beside: list[Attempt] = field(default_factory=list)
    _left: list[Attempt] = field(default_factory=list)
    #: Arguments of runs that reload. The same run again must ask for the same.
    _reloads: dict[str, list[str]] = field(default_factory=dict)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def run(self, cycle: Cycle) -> int:
        """Run a cycle until its run has succeeded; return the number of attempts, without those beside it.

        Raises:
            SoakFailure: An exit code that no fault excuses, or no success within the bounds.
        """
        run_id = f"cycle-{cycle.number}"
        if cycle.reload is not None:
            self._reloads[run_id] = reload_arguments(self.operator.form(cycle.reload))
        waiting = Waiting.of(cycle)
        try:
            for number in range(1, _MOST_ATTEMPTS + 1):
                if self._attempt(cycle, run_id, waiting) == DONE:
                    self.finish_interventions(waiting, run_id)
                    return number
                time.sleep(_PAUSE_SECONDS)
        finally:
            self.end_attempts()
            for fault in waiting.faults:
                self.journal.late(str(fault))
        raise SoakFailure(f"{run_id} did not succeed in {_MOST_ATTEMPTS} attempts", found=f"logs in {self._logs}")

    def start(self, run_id: str, kind: RunKind = RunKind.IN_PROCESS) -> Attempt:
        """Start one attempt; the caller waits for it."""
        runner = "in-process" if kind is RunKind.IN_PROCESS else "spark"
        env = self.world.command_environment(on_cluster=kind is RunKind.SPARK_CLUSTER)
        log = self._logs / f"{run_id}.{next(self._numbers)}.log"
        arguments = [*run_arguments(run_id, runner=runner), *self._reloads.get(run_id, ())]
        return Attempt(arguments, env=env, log=log)

    def start_beside(self, run_id: str) -> Attempt:
        """Start an attempt beside another one; :meth:`await_attempts` waits for it."""
        attempt = self.start(run_id)
        self._beside.append(attempt)
        return attempt

    def await_attempts(self) -> None:
        """Wait for the attempts that run beside others.

        Raises:
            SoakFailure: One hangs, or ended with an exit code that no fault excuses.
        """
        while self._beside:
            attempt = self._beside[-1]
            self._require_end(attempt)
            attempt.require_expected_faults()
            self._beside.pop()
            self.journal.event("attempt beside", log=attempt.log.name, code=attempt.code())

    def intervene_before(self, cycle: Cycle) -> None:
        """Carry out the operator's interventions before a run.

        Raises:
            SoakFailure: Something is refused that must not be, or is never done.
        """
        for one in cycle.interventions:
            if one.moment is None:
                self.operator.ask(one, f"cycle-{cycle.number}")
        self.operator.finish()

    def finish_interventions(self, waiting: Waiting, run_id: str) -> None:
        """Carry out, after a run, interventions that did not happen beside it, and await those under way.

        Raises:
            SoakFailure: As :meth:`intervene_before`.
        """
        self.operator.keep_up(waiting.interventions, run_id, progress=1.0)
        self.operator.finish()

    def end_attempts(self) -> None:
        """Kill what is left of all commands of a cycle. Idempotent."""
        self.operator.end()
        for attempts in (self._beside, self._left):
            while attempts:
                attempts.pop().end()

    @property
    def _logs(self) -> Path:
        return self.world.state / "runs"

    def _attempt(self, cycle: Cycle, run_id: str, waiting: Waiting) -> int:
        attempt = self.start(run_id, cycle.run)
        # It ends with the cycle: spark-submit outlives a killed command, and goes on beside the next attempt.
        self._left.append(attempt)
        hits_before = self.journal.kills.total()
        self._watch(attempt, cycle, run_id, waiting)
        code = attempt.code()
        # Spark reports the death of a worker or executor with a trace of its own.
        if cycle.run is RunKind.IN_PROCESS or self.journal.kills.total() == hits_before:
            attempt.require_expected_faults()
        self.journal.event("attempt", run=run_id, kind=cycle.run, log=attempt.log.name, code=code)
        self.await_attempts()
        return code

    def _watch(self, attempt: Attempt, cycle: Cycle, run_id: str, waiting: Waiting) -> None:
        usual = self._usual.setdefault(cycle.run, Usual())
        progress = Progress(usual, self.watcher.look(CLI, run_id))
        scene = Scene(run_id, lambda: self._processes(attempt, cycle.run), attempt, self.start_beside)
        deadline = time.monotonic() + _ATTEMPT_SECONDS
        while attempt.is_running():
            value = progress.take_in(self.watcher.look(CLI, run_id))
            self.operator.keep_up(waiting.interventions, run_id, progress=value)
            if waiting.faults and value >= waiting.faults[0].moment:
                self.faults.inject(waiting.faults.pop(0), scene, progress=value)
            if time.monotonic() > deadline:
                raise SoakFailure(f"{run_id} hangs", found=log_tail(attempt.log, 40))
            time.sleep(_POLL_SECONDS)

    def _processes(self, attempt: Attempt, kind: RunKind) -> Sequence[SeenProcess]:
        if kind is not RunKind.SPARK_CLUSTER:
            return attempt.processes()
        workers = [pid for process in self.world.spark.processes if (pid := process.pid()) is not None]
        return [*in_sessions(workers, all_processes()), *attempt.processes()]

    def _require_end(self, attempt: Attempt) -> None:
        if not attempt.wait(_ATTEMPT_SECONDS):
            raise SoakFailure("a run beside another one hangs", found=log_tail(attempt.log, 40))
