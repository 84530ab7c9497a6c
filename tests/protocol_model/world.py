"""The world of one schedule: a log, a database, and the attempts that run against them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from kafka_ingest.errors import CommitDidNotHappen, Fenced, IngestError, RetryLater
from kafka_ingest.protocol.audit import audit_batch, record_announcement
from kafka_ingest.protocol.batch import Batch, BatchState, Request
from kafka_ingest.protocol.changes import ChangePorts, apply_change
from kafka_ingest.protocol.dead_letters import DeadLetterRequest, resolve_dead_letters
from kafka_ingest.protocol.decisions import ChangeRequest
from kafka_ingest.protocol.ledger_view import PlanView
from kafka_ingest.protocol.load import LoadPorts, load_batch
from kafka_ingest.protocol.plan import PlanPorts, plan_batch
from kafka_ingest.protocol.ports import Log
from kafka_ingest.protocol.position import TopicPartition
from kafka_ingest.protocol.roll_back import RollBackPorts, RollBackRequest, roll_back
from kafka_ingest.settings import FirstRunKind, HoldSettings, PipelineSettings
from tests.fakes.loading import FakeRunStates, FakeTarget
from tests.fakes.log import FakeLog
from tests.protocol_model.attempts import CLUSTER, COMMIT, Attempt, Work
from tests.protocol_model.change_ports import GatedChanges, GatedDeadLetterLedger, GatedRollBacks
from tests.protocol_model.checks import check_store
from tests.protocol_model.gated_ports import LogOfCluster, gated
from tests.protocol_model.history import History, fits_today
from tests.protocol_model.observed_log import ObservedLog
from tests.protocol_model.situations import Happened, is_explained
from tests.protocol_model.stores import Store
from tests.protocol_model.tasks import NO_LOSERS, Losers, ModelTasks
from tests.protocol_model.transactions import Transactions

HOLD = HoldSettings()

#: Record time of the first record of a log; every record comes a millisecond after the one before.
FIRST_MS = FakeLog().now_ms

#: Lists of values, each with the number of the partition that it goes to.
Arrivals = Sequence[tuple[int, list[bytes | None]]]

#: What an operator asks for.
Asked = ChangeRequest | RollBackRequest | DeadLetterRequest

#: How far an attempt goes: for so many points, or to the next call of that name.
Stop = int | str

#: The calls that change something durable, if they succeed.
_EFFECTS = {
    "ledger.record_plan",
    "ledger.claim",
    "evolution.add_columns",
    "ledger.mark_announced",
    "changes.record_change",
}

#: Others act while the runner runs its tasks; a COMMIT whose answer is lost may have taken effect.
_UNWATCHED = {"runner.run", COMMIT, "roll_back.commit", "dead_letters.commit"}

#: More offsets than a schedule has.
_OFFSETS = range(10_000)


class World:
    """Everything that a schedule acts on; each of its methods is an event.

    Attributes:
        settings: The pipeline file, as it is now.
        attempts: Those that are alive, running or standing still.
        requests: Every request of a run so far.
        asked: Every request of a change, of a roll-back or about dead letters so far.
    """

    def __init__(self, store: Store, settings: PipelineSettings) -> None:
        self.store = store
        store.decide(rows=[offset for offset in _OFFSETS if fits_today(("", 0, 0, offset))])
        self.settings = settings
        self.log = ObservedLog(begins_anywhere=settings.plan.first_run.kind is not FirstRunKind.EARLIEST)
        self.attempts: list[Attempt] = []
        self.requests: list[Request] = []
        self.asked: list[Asked] = []
        self.runs = FakeRunStates()
        self.happened: set[Happened] = set()
        self.transactions = Transactions(store, self.log)
        self.restores = 0
        self._saved = store.save()
        self._saved_history = self.history.copy()
        self._checked: object = None

    @property
    def history(self) -> History:
        """What must be stored."""
        return self.transactions.history

    def receive(self, arrivals: Arrivals) -> None:
        """Append records, each list to the partition of that number."""
        places = self.log.places()
        for where, values in arrivals if places else []:
            self.log.append(places[where % len(places)], *values)

    # Attempts.

    def start(self, name: str, work: Work, *, cluster_id: str = CLUSTER) -> Attempt:
        """Start a process; it stands still before its first step. Its Kafka connection stays as it is."""
        if cluster_id != CLUSTER:
            self.happened.add(Happened.CLUSTER_CHANGED)
        attempt = Attempt(name, work, self._watch, cluster_id=cluster_id)
        self.attempts.append(attempt)
        return attempt

    def new_request(self, dag_id: str) -> Request:
        """Return a request that nobody has made yet."""
        return Request(dag_id, f"run-{len(self.requests) + 1}")

    def cleared(self, request: Request) -> None:
        """The scheduler forgets that a run has ended, and how it was asked for before."""
        self.runs.finished.discard(request)
        self.requests.remove(request)

    def start_run(self, request: Request, losers: Losers = NO_LOSERS, *, cluster_id: str = CLUSTER) -> Attempt:
        """Start the three steps of a run, one after the other."""
        if request not in self.requests:
            self.requests.append(request)
            self._saved = self.store.save()
            self._saved_history = self.history.copy()

        def run(attempt: Attempt) -> None:
            batch = self.plan(request, attempt)
            loaded = batch if batch.state is BatchState.COMMITTED else self.load(batch.batch_id, attempt, losers)
            self.audit(loaded.batch_id, request, attempt)

        return self.start(f"run of {request}", run, cluster_id=cluster_id)

    def start_load(self, batch_id: str, losers: Losers, *, cluster_id: str = CLUSTER) -> Attempt:
        """Start a job that knows its batch only."""
        work = partial(self.load, batch_id, losers=losers)
        return self.start(f"load of {batch_id}", work, cluster_id=cluster_id)

    def start_audit(self, batch_id: str, request: Request) -> Attempt:
        """Start an audit."""
        return self.start(f"audit of {batch_id}", lambda attempt: self.audit(batch_id, request, attempt))

    def start_asked(self, request: Asked) -> Attempt:
        """Start a position change, a roll-back, or a replay or discard of dead letters."""
        if request not in self.asked:
            self.happened.add(Happened.CHANGED)
            self.asked.append(request)

        def act(attempt: Attempt) -> None:
            if isinstance(request, ChangeRequest):
                changes = GatedChanges(self.store.changes, attempt, self.transactions)
                apply_change(self.settings, request, ChangePorts(changes, self._log_of(attempt)))
            elif isinstance(request, DeadLetterRequest):
                letters = GatedDeadLetterLedger(self.store.letters, attempt, self.transactions)
                resolve_dead_letters(self.settings, request, letters, apply=True)
            else:
                roll_backs = GatedRollBacks(self.store.roll_backs, attempt, self.transactions)
                roll_back(request, RollBackPorts(roll_backs, gated(self.log.log, "log", attempt)))

        return self.start(request.request_id, act)

    def go_on(self, attempt: Attempt, stop: Stop) -> None:
        """Let an attempt go on, to its end at most."""
        points = 0
        while stop != points and not attempt.is_over and not (points and stop == attempt.point.call):
            self.resume(attempt)
            points += 1

    def resume(self, attempt: Attempt) -> None:
        """Let an attempt go on to its next point."""
        attempt.resume()
        if attempt.is_over:
            self.bury(attempt)

    def finish(self, attempt: Attempt) -> None:
        """Let an attempt go on to its end."""
        while not attempt.is_over:
            self.resume(attempt)

    def bury(self, attempt: Attempt) -> None:
        """Judge an attempt that is over: an error must have a reason, and must have changed nothing."""
        self.attempts.remove(attempt)
        if attempt.error is not None:
            assert is_explained(attempt.error, self.happened), f"{attempt.name}: {attempt.error}"
            told = f"{attempt} committed, and then: {attempt.error}"
            assert may_have_committed(attempt.error) or not attempt.has_committed, told

    def kill(self, attempt: Attempt) -> None:
        """SIGKILL, and the server notices at once."""
        attempt.kill()
        self.attempts.remove(attempt)

    # The steps, on ports that stand still.

    def plan(self, request: Request, attempt: Attempt) -> Batch:
        ledger = gated(self.store.ledger, "ledger", attempt)
        target = gated(FakeTarget(), "target", attempt)
        settings = self.settings
        batch = plan_batch(
            settings,
            request,
            PlanPorts(ledger, self._log_of(attempt), target, self.runs),
            settings_hash=f"hash-{settings.batch.tombstones}",
        )
        assert batch.state is BatchState.COMMITTED or batch.settings == settings.batch, "planned with other settings"
        return batch

    def load(self, batch_id: str, attempt: Attempt, losers: Losers) -> Batch:
        tasks = ModelTasks(attempt, self.log, self.store, losers)
        ports = LoadPorts(
            ledger=gated(self.store.ledger, "ledger", attempt),
            log=self._log_of(attempt),
            staging=gated(self.store.staging, "staging", attempt),
            runner=gated(tasks, "runner", attempt),
            publisher=self.transactions.publisher_of(attempt, tasks),
            clock=attempt.clock,
            evolution=gated(self.store.evolution, "evolution", attempt),
        )
        batch = load_batch(batch_id, ports, hold=HOLD, report=lambda _: None)
        assert batch.state is BatchState.COMMITTED, "a load that is not committed ended as if it were"
        return batch

    def audit(self, batch_id: str, request: Request, attempt: Attempt) -> None:
        ledger = gated(self.store.ledger, "ledger", attempt)
        record_announcement(audit_batch(batch_id, request, ledger), ledger)

    def _log_of(self, attempt: Attempt) -> Log:
        return gated(LogOfCluster(self.log.log, attempt.cluster_id), "log", attempt)

    # What happens to the database.

    def crash_database(self, *, commits_took_effect: bool) -> None:
        """The server crashes and recovers: every session ends, staging is empty."""
        self.happened.add(Happened.SERVER_CRASHED)
        self.transactions.end_all(commits_took_effect=commits_took_effect)
        self.store.recover()

    def restore(self) -> None:
        """Go back to the copy of when the newest run started: rows, dead letters and positions together."""
        self.happened.add(Happened.RESTORED)
        self.restores += 1
        self.transactions.end_all(commits_took_effect=False)
        self.store.restore(self._saved)
        for attempt in self.attempts:
            attempt.has_committed = False
        self.transactions.history = self._saved_history.copy()

    # What is known.

    def view(self, request: Request) -> PlanView:
        """Read the ledger as a plan does."""
        return self.store.ledger.plan_view("orders", request, self.settings.batch.target)

    def committed_offset(self, place: TopicPartition) -> int:
        """Return the position of a partition; its log start when it has none."""
        found = {p.topic_partition: p.committed_offset for p in self.store.positions()}
        return found.get(place, self.log.log.partition(place).log_start)

    # What is checked.

    def check(self) -> None:
        """Check everything that must hold after every event."""
        check_store(self.store, self.history)
        if (ledger := (self.store.positions(), self.store.batches())) != self._checked:
            assert list(self.store.ledger.violations("orders")) == []
            self._checked = ledger

    @contextmanager
    def _watch(self, call: str) -> Iterator[None]:
        """Keep watch over a call that may change nothing durable, or nothing if it fails."""
        if call in _UNWATCHED:
            yield
            return
        before = self.store.fingerprint()
        succeeded = False
        try:
            yield
            succeeded = True
            if call == "ledger.record_plan":
                self.history.begin(self.store.positions(), self.log)
        finally:
            if not (succeeded and call in _EFFECTS):
                assert self.store.fingerprint() == before, f"{call} changed something durable"


def may_have_committed(error: IngestError) -> bool:
    """Tell whether an attempt whose COMMIT took effect may end with this error.

    An answer that was lost is asked for by a retry; and what was committed may be rolled back before it is.
    """
    is_undone = isinstance(error, Fenced) and f"state {BatchState.ROLLED_BACK.value}" in error.found
    return is_undone or (isinstance(error, RetryLater) and not isinstance(error, CommitDidNotHappen))
