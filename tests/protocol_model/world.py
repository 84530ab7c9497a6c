"""The world of one schedule: a log, a database, and the attempts that run against them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from kafka_ingest.core.batch import Batch, BatchState, Request
from kafka_ingest.core.errors import RetryLater
from kafka_ingest.core.ledger_view import PlanView
from kafka_ingest.core.offsets import TopicPartition
from kafka_ingest.core.settings import (
    DeadLetterLimits,
    FirstRun,
    FirstRunKind,
    HoldSettings,
    OffsetLimit,
    PartitionFaultPolicy,
    PipelineSettings,
    Tombstones,
    TopicSelection,
)
from kafka_ingest.steps.audit_batch import audit_batch
from kafka_ingest.steps.load_batch import LoadPorts, load_batch
from kafka_ingest.steps.plan_batch import PlanPorts, plan_batch
from tests.builders import batch_settings, pipeline_settings
from tests.fakes.loading import FakeRunStates, FakeTarget
from tests.protocol_model.attempts import COMMIT, Attempt, Work
from tests.protocol_model.checks import Published, check_forward, check_store
from tests.protocol_model.gated_ports import GatedPublisher, Session, gated
from tests.protocol_model.observed_log import ObservedLog
from tests.protocol_model.situations import Happened, is_explained
from tests.protocol_model.stores import Store
from tests.protocol_model.tasks import Losers, ModelTasks

HOLD = HoldSettings()

#: Lists of values, each with the number of the partition that it goes to.
Arrivals = Sequence[tuple[int, list[bytes | None]]]

#: How far an attempt goes: for so many points, or to the next call of that name.
Stop = int | str

#: The calls that change something durable, if they succeed.
_EFFECTS = {"ledger.record_plan", "ledger.claim", "ledger.mark_announced"}

#: Others act while the runner runs its tasks; a COMMIT whose answer is lost may have taken effect.
_UNWATCHED = {"runner.run", COMMIT}


def model_settings(
    first_run: FirstRunKind = FirstRunKind.EARLIEST,
    *,
    total_offsets: int = 100,
    policy: PartitionFaultPolicy = PartitionFaultPolicy.STOP,
    tombstones: Tombstones = Tombstones.ROW,
) -> PipelineSettings:
    """Gives a pipeline that any number of dead letters does not stop, over the topics orders and returns."""
    unlimited = DeadLetterLimits(max_ratio=1.0)
    settings = pipeline_settings(batch=replace(batch_settings(), dead_letters=unlimited, tombstones=tombstones))
    plan = replace(
        settings.plan,
        topics=TopicSelection(pattern="orders|returns"),
        first_run=FirstRun(first_run),
        limit=OffsetLimit(total_offsets),
        on_partition_fault=policy,
    )
    return replace(settings, plan=plan)


class World:
    """Everything that a schedule acts on; each of its methods is an event.

    Attributes:
        settings: The pipeline file, as it is now.
        attempts: Those that are alive, running or standing still.
        requests: Every request so far.
    """

    def __init__(self, store: Store, settings: PipelineSettings) -> None:
        self.store = store
        self.settings = settings
        self.log = ObservedLog(begins_anywhere=settings.plan.first_run.kind is not FirstRunKind.EARLIEST)
        self.published = Published()
        self.attempts: list[Attempt] = []
        self.requests: list[Request] = []
        self.runs = FakeRunStates()
        self.happened: set[Happened] = set()
        self.sessions: list[Session] = []
        self.restores = 0
        self._saved = store.save()
        self._tasks: list[ModelTasks] = []
        self._positions = store.positions()
        self._checked: object = None

    def receive(self, arrivals: Arrivals) -> None:
        """Appends records, each list to the partition of that number."""
        places = self.log.places()
        for where, values in arrivals if places else []:
            self.log.append(places[where % len(places)], *values)

    # Attempts.

    def start(self, name: str, work: Work) -> Attempt:
        """Starts a process; it stands still before its first step."""
        attempt = Attempt(name, work, self._watch)
        self.attempts.append(attempt)
        return attempt

    def new_request(self, dag_id: str) -> Request:
        """Gives a request that nobody has made yet."""
        return Request(dag_id, f"run-{len(self.requests) + 1}")

    def start_run(self, request: Request, losers: Losers = Losers()) -> Attempt:  # noqa: B008 - frozen
        """Starts the three steps of a run, one after the other."""
        if request not in self.requests:
            self.requests.append(request)
            self._saved = self.store.save()

        def run(attempt: Attempt) -> None:
            batch = self.plan(request, attempt)
            loaded = batch if batch.state is BatchState.COMMITTED else self.load(batch.batch_id, attempt, losers)
            self.audit(loaded.batch_id, request, attempt)

        return self.start(f"run of {request}", run)

    def start_load(self, batch_id: str, losers: Losers) -> Attempt:
        """Starts a job that knows its batch only."""
        return self.start(f"load of {batch_id}", lambda attempt: self.load(batch_id, attempt, losers))

    def start_audit(self, batch_id: str, request: Request) -> Attempt:
        """Starts an audit."""
        return self.start(f"audit of {batch_id}", lambda attempt: self.audit(batch_id, request, attempt))

    def go_on(self, attempt: Attempt, stop: Stop) -> None:
        """Lets an attempt go on, to its end at most."""
        points = 0
        while not attempt.is_over and not (points and stop in (points, attempt.point.call)):
            self.resume(attempt)
            points += 1

    def resume(self, attempt: Attempt) -> None:
        """Lets an attempt go on to its next point."""
        attempt.resume()
        if attempt.is_over:
            self.bury(attempt)

    def finish(self, attempt: Attempt) -> None:
        """Lets an attempt go on to its end."""
        while not attempt.is_over:
            self.resume(attempt)

    def bury(self, attempt: Attempt) -> None:
        """Judges an attempt that is over: an error must have a reason, and must have changed nothing."""
        self.attempts.remove(attempt)
        if attempt.error is not None:
            assert is_explained(attempt.error, self.happened), f"{attempt.name}: {attempt.error}"
            assert not attempt.has_committed or isinstance(attempt.error, RetryLater), (
                f"{attempt.name} committed, and then: {attempt.error}"
            )

    def kill(self, attempt: Attempt) -> None:
        """SIGKILL, and the server notices at once."""
        attempt.kill()
        self.attempts.remove(attempt)

    # The steps, on ports that stand still.

    def plan(self, request: Request, attempt: Attempt) -> Batch:
        ledger = gated(self.store.ledger, "ledger", attempt)
        target = gated(FakeTarget(), "target", attempt)
        ports = PlanPorts(ledger, gated(self.log.log, "log", attempt), target, self.runs)
        settings = self.settings
        return plan_batch(settings, request, ports, settings_hash=f"hash-{settings.batch.tombstones}")

    def load(self, batch_id: str, attempt: Attempt, losers: Losers) -> Batch:
        tasks = ModelTasks(attempt, self.log, self.store, losers)
        self._tasks.append(tasks)
        ports = LoadPorts(
            ledger=gated(self.store.ledger, "ledger", attempt),
            log=gated(self.log.log, "log", attempt),
            staging=gated(self.store.staging, "staging", attempt),
            runner=gated(tasks, "runner", attempt),
            publisher=GatedPublisher(
                self.store.publisher, attempt, sessions=self.sessions, committed=self._note_commit
            ),
            clock=attempt.clock,
        )
        return load_batch(batch_id, ports, hold=HOLD, report=lambda _: None)

    def audit(self, batch_id: str, request: Request, attempt: Attempt) -> None:
        audit_batch(batch_id, request, gated(self.store.ledger, "ledger", attempt))

    # What happens to the database.

    def crash_database(self, *, commits_took_effect: bool) -> None:
        """The server crashes and recovers: every session ends, staging is empty."""
        self.happened.add(Happened.SERVER_CRASHED)
        self._end_sessions(commits_took_effect=commits_took_effect)
        self.store.recover()

    def restore(self) -> None:
        """Goes back to the copy of when the newest run started: rows, dead letters and positions together."""
        self.happened.add(Happened.RESTORED)
        self.restores += 1
        self._end_sessions(commits_took_effect=False)
        self.store.restore(self._saved)
        for attempt in self.attempts:
            attempt.has_committed = False
        self._positions = self.store.positions()

    def end_commits(self, *, took_effect: bool) -> None:
        """COMMITs that the server was still at end, long after whoever sent them stopped listening."""
        for session in [s for s in self.sessions if s.is_under_way]:
            if took_effect and session.is_open:
                session.commit()
            session.close()
        self.sessions = [s for s in self.sessions if s.is_open]

    def _end_sessions(self, *, commits_took_effect: bool) -> None:
        self.end_commits(took_effect=commits_took_effect)
        for session in self.sessions:
            session.close()
        self.sessions.clear()

    # What is known.

    def view(self, request: Request) -> PlanView:
        """Reads the ledger as a plan does."""
        return self.store.ledger.plan_view("orders", request, self.settings.batch.target)

    def committed_offset(self, place: TopicPartition) -> int:
        """Gives the position of a partition; its log start when it has none."""
        found = {p.topic_partition: p.committed_offset for p in self.store.positions()}
        return found.get(place, self.log.log.partition(place).log_start)

    # What is checked.

    def check(self) -> None:
        """Checks everything that must hold after every event."""
        positions = self.store.positions()
        check_forward(self._positions, positions)
        self._positions = positions
        check_store(self.store, self.published, self.log)
        if (ledger := (positions, self.store.batches())) != self._checked:
            assert list(self.store.ledger.violations("orders")) == []
            self._checked = ledger

    def _note_commit(self, attempt: Attempt, batch: Batch) -> None:
        attempt.has_committed = True
        claim = (batch.batch_id, batch.claim)
        same = [tasks for tasks in self._tasks if tasks.claim == claim]
        own_first = sorted(same, key=lambda tasks: tasks.attempt is not attempt)
        self.published.add(batch.batch_id, [t.readings for t in own_first], batch.settings.tombstones)

    @contextmanager
    def _watch(self, call: str) -> Iterator[None]:
        """Keeps watch over a call that may change nothing durable, or nothing if it fails."""
        if call in _UNWATCHED:
            yield
            return
        before = self.store.fingerprint()
        succeeded = False
        try:
            yield
            succeeded = True
        finally:
            if not (succeeded and call in _EFFECTS):
                assert self.store.fingerprint() == before, f"{call} changed something durable"
