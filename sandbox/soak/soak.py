"""One soak, from the first start to the comparison."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from sandbox.ledger_history import count_interventions, read_history
from sandbox.soak.airflow_runs import AirflowRuns
from sandbox.soak.attempts import AUDIT_FOUND, DONE, Attempt, SoakFailure
from sandbox.soak.choices import Cycle, RunKind, SoakOptions, choose_cycles
from sandbox.soak.command_runs import CommandRuns
from sandbox.soak.faults import Faults
from sandbox.soak.journal import Journal
from sandbox.soak.operator import Operator
from sandbox.soak.pipeline import PIPELINE, TABLE, TOPIC, SoakMode
from sandbox.soak.progress import Watcher
from sandbox.soak.report import SoakResult
from sandbox.soak.traffic import PARTITIONS
from sandbox.soak.world import SoakWorld
from sandbox.state_verification import StateComparison, compare_state
from sandbox.verification import Comparison, compare_orders

_AUDIT_EVERY = 5  # cycles
_NEW_RECORDS = 300  # a run without anything to read would prove nothing
_WAIT_SECONDS = 120.0
_MOST_LAST_RUNS = 10


class Soak:
    """A soak in a world of its own. The caller starts and stops the world.

    Args:
        options: What decides the choices.
        world: The servers, started.
        journal: Records what happens.
    """

    def __init__(self, options: SoakOptions, world: SoakWorld, journal: Journal) -> None:
        self._options = options
        self._world = world
        self._journal = journal
        self._watcher = Watcher(world.warehouse)
        self._operator = Operator(world, journal, self._watcher)
        self._commands = CommandRuns(world, Faults(world, journal), journal, self._watcher, self._operator)
        self._airflow = AirflowRuns(self._commands)
        self._acknowledged = 0
        self._audits = self._violations = 0

    def run(self) -> SoakResult:
        """Run all cycles, let the producer end, load what is left, and compare.

        Raises:
            SoakFailure: The system did what it must not do.
            SandboxError: A part of the sandbox did not start.
        """
        cycles = choose_cycles(self._options)
        self._journal.choices(cycles)
        self._command("migrate", [])
        try:
            attempts = sum(self._run(cycle) for cycle in cycles)
            sent = self._end_of_traffic()
            self._load_the_rest()
            self._audit()
        finally:
            self._watcher.close()
        self._journal.say("comparing the topic with the database, record by record")
        warehouse = self._world.warehouse()
        return SoakResult(
            options=self._options,
            runs=Counter(str(cycle.run) for cycle in cycles),
            attempts=attempts,
            kills=self._journal.kills,
            late_faults=self._journal.late_faults,
            interventions=count_interventions(warehouse),
            refused=self._operator.refused,
            sent=sent,
            comparison=self._compared(),
            violations=self._violations,
            audits=self._audits,
            seconds=self._journal.seconds,
        )

    def _compared(self) -> Comparison | StateComparison:
        compare = compare_state if self._options.mode is SoakMode.UPSERT else compare_orders
        warehouse = self._world.warehouse()
        history = read_history(warehouse, TOPIC)
        return compare(self._world.kafka.bootstrap, TOPIC, warehouse, TABLE, history=history)

    def _run(self, cycle: Cycle) -> int:
        self._await_new_records()
        started = time.monotonic()
        self._commands.intervene_before(cycle)
        runs = self._airflow if cycle.run is RunKind.AIRFLOW else self._commands
        attempts = runs.run(cycle)
        seconds = time.monotonic() - started
        happened = ", ".join(map(str, (*cycle.faults, *cycle.interventions)))
        kind = f"{cycle.run}{' reload' if cycle.reload else ''}"
        self._journal.say(
            f"cycle {cycle.number:>3}/{self._options.cycles}  {kind:<20} {seconds:>6.1f} s"
            f"  attempts {attempts}  rows {self._watcher.rows() or 0:>9,}  {happened}"
        )
        if cycle.number % _AUDIT_EVERY == 0:
            self._audit()
        return attempts

    def _audit(self) -> None:
        """Check every invariant; a violation fails the soak at once, while the state is fresh."""
        found = self._command("audit", [PIPELINE, "--json"])
        self._audits += 1
        self._violations += len(found)
        self._journal.event("audit", violations=found)
        if found:
            raise SoakFailure("an invariant does not hold", found=json.dumps(found[:20], indent=1))

    def _command(self, name: str, arguments: list[str]) -> Any:
        log = self._world.state / "runs" / f"{name}.{self._audits}.log"
        attempt = Attempt([name, *arguments], env=self._world.command_environment(), log=log)
        try:
            if attempt.wait(_WAIT_SECONDS) and attempt.code(also=[AUDIT_FOUND]) in (DONE, AUDIT_FOUND):
                return attempt.document() if "--json" in arguments else None
        finally:
            attempt.end()
        raise SoakFailure(f"{name} did not succeed, and nothing was killed", found=log.read_text(encoding="utf-8"))

    def _await_new_records(self) -> None:
        wanted = self._acknowledged + _NEW_RECORDS
        self._until(lambda: self._tally().get("acknowledged", 0) >= wanted, "the producer gets on")
        self._acknowledged = self._tally()["acknowledged"]

    def _end_of_traffic(self) -> dict[str, int]:
        self._journal.say("telling the producer to end, and loading what is left")
        self._world.producer.stop(grace_seconds=_WAIT_SECONDS)
        self._until(self._is_readable_to_the_end, "no transaction is open")
        return self._tally()

    def _load_the_rest(self) -> None:
        for number in range(1, _MOST_LAST_RUNS + 1):
            attempt = self._commands.start(f"last-{number}")
            try:
                attempt.wait(_WAIT_SECONDS)
                if attempt.code() == DONE and not attempt.document()["ranges"]:
                    return
            finally:
                attempt.end()
            time.sleep(1)
        raise SoakFailure(f"after {_MOST_LAST_RUNS} runs there was still something to load", found="see the runs' logs")

    def _tally(self) -> dict[str, int]:
        path: Path = self._world.tally_file
        tally: dict[str, int] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        return tally

    def _is_readable_to_the_end(self) -> bool:
        return self._ends(IsolationLevel.READ_COMMITTED) == self._ends(IsolationLevel.READ_UNCOMMITTED)

    def _ends(self, level: IsolationLevel) -> list[int]:
        admin = AdminClient({"bootstrap.servers": self._world.kafka.bootstrap, "log_level": 0})
        wanted = {TopicPartition(TOPIC, number): OffsetSpec.latest() for number in range(PARTITIONS)}
        answers = admin.list_offsets(wanted, isolation_level=level)
        return [answers[partition].result(30).offset for partition in sorted(answers, key=lambda p: p.partition)]

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _WAIT_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise SoakFailure(f"after {_WAIT_SECONDS:.0f} s it is not true that {what}")
            time.sleep(0.1)
