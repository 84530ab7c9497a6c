"""Attempts of a batch beside each other, in any order, and lost answers: the table is the fold of what was read.

Each attempt stages under its own claim, and goes on step by step: between any two of its steps others may do theirs.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Any

import pytest

from kafka_ingest.errors import Busy, CommitDidNotHappen, Fenced, ReloadWouldLose
from kafka_ingest.postgres.ledger import PostgresLedger
from kafka_ingest.postgres.publisher import PostgresPublisher
from kafka_ingest.postgres.rows import settings_hash
from kafka_ingest.postgres.staging_tables import PostgresStaging
from kafka_ingest.postgres.target import PostgresTarget
from kafka_ingest.protocol.accounting import account_for
from kafka_ingest.protocol.batch import Batch, BatchOutcome, BatchState, OffsetSpan, Request, RunMode, RunOptions
from kafka_ingest.protocol.plan import PlanPorts, plan_batch
from kafka_ingest.protocol.ports import Publication
from kafka_ingest.protocol.publish import publish_batch
from kafka_ingest.protocol.staging import cut_into_tasks
from kafka_ingest.settings import Deletes, OrderBy
from tests.crash.cutting_proxy import CuttingProxy, Session, lose_answer, lose_request
from tests.integration.test_state_properties import drawn
from tests.state_bench import TOPIC, Change, StateBench, state_settings


class Attempt:
    """One claim of a planned batch."""

    def __init__(self, bench: StateBench, batch: Batch) -> None:
        self._bench, self._ledger = bench, PostgresLedger(bench.params)
        self.batch = self._ledger.claim(batch.batch_id, 60)
        self.outcome: BatchOutcome | None = None

    def stage(self) -> Attempt:
        """Stage the whole batch."""
        PostgresStaging(self._bench.params).create(self.batch)
        tasks = cut_into_tasks(self.batch.ranges, self._bench.runner.parallelism())
        self.outcome = account_for(self.batch, tasks, self._bench.runner.run(self.batch, tasks))
        return self

    def publish(self, params: Mapping[str, Any] | None = None) -> None:
        """Publish, through another connection where one is given."""
        assert self.outcome is not None
        publish_batch(self.batch, self.outcome, PostgresPublisher(params or self._bench.params), self._ledger)

    @contextmanager
    def publishing(self) -> Iterator[Publication]:
        """Yield the transaction when the fold is written, before COMMIT."""
        assert self.outcome is not None
        with PostgresPublisher(self._bench.params).begin(self.batch) as publication:
            publication.lock_batch()
            publication.advance_positions(self.outcome)
            publication.fold(self.outcome, RunOptions())
            publication.insert_dead_letters(self.outcome)
            publication.write_newest()
            yield publication


class LivingRuns:
    """Port ``RunStates`` of a scheduler whose other runs all live."""

    def is_finished(self, request: Request) -> bool:
        return False


def bench_with_a_batch(database: Mapping[str, Any], deletes: Deletes = Deletes.REMOVE) -> StateBench:
    """Return a bench with a loaded batch, and a second one to be planned: it updates, removes and writes anew."""
    bench = StateBench(database, partial(state_settings, deletes=deletes))
    for key, note in (("a", 1), ("b", 2), ("c", 3)):
        bench.append(Change(key, (note, note)))
    bench.append(Change("c", None))
    bench.live()
    for change in (Change("a", (4, 4)), Change("b", None), Change("c", (5, 5)), Change("d", (6, 6)), Change("d", None)):
        bench.append(change)
    return bench


@pytest.fixture(params=[Deletes.REMOVE, Deletes.MARK])
def bench(database: Mapping[str, Any], request: pytest.FixtureRequest) -> StateBench:
    return bench_with_a_batch(database, request.param)


def everything(bench: StateBench) -> list[Any]:
    """Return rows, removed keys, positions, and what the ledger says of batches and ranges."""
    tables = ("shop.orders", *(f"kafka_ingest.{t}" for t in ("removed_key", "committed_offset", "batch_partition")))
    digest = "SELECT count(*), sum(hashtextextended(t::text, 0)) FROM"
    batches = "SELECT state, rows, deletes, superseded, committed_at FROM kafka_ingest.batch ORDER BY ordinal"
    return [*(bench.query(f"{digest} {table} t") for table in tables), bench.query(batches)]


def require_fold(bench: StateBench) -> None:
    """The table is the fold of what was read, and every invariant holds."""
    assert bench.table() == bench.folded()
    assert (bench.violations(), bench.state_violations()) == ([], [])


def was_read(bench: StateBench, batch: Batch, version: int = 0) -> None:
    """Note that the records of a batch are in the table."""
    for r in batch.ranges:
        entries = bench.log.topics[TOPIC].partitions[r.partition].entries
        bench.seen |= {(r.partition, offset): version for offset in range(r.start, r.end) if offset in entries}


def test_of_two_attempts_that_staged_only_the_newer_publishes(bench: StateBench) -> None:
    batch = bench.plan(RunOptions())
    older, newer = Attempt(bench, batch).stage(), Attempt(bench, batch).stage()
    before = everything(bench)
    with pytest.raises(Fenced, match="no longer owns"):
        older.publish()
    assert everything(bench) == before
    require_fold(bench)
    newer.publish()
    was_read(bench, batch)
    require_fold(bench)
    published = everything(bench)
    older.publish()  # finds it committed
    assert everything(bench) == published


def test_an_attempt_that_stages_after_a_newer_one_has_published_changes_nothing(bench: StateBench) -> None:
    batch = bench.plan(RunOptions())
    older = Attempt(bench, batch)
    Attempt(bench, batch).stage().publish()
    was_read(bench, batch)
    published = everything(bench)
    older.stage().publish()
    assert everything(bench) == published
    require_fold(bench)


def test_a_batch_that_is_published_twice_is_committed_once(bench: StateBench) -> None:
    batch = bench.plan(RunOptions())
    attempt = Attempt(bench, batch).stage()
    attempt.publish()
    was_read(bench, batch)
    published = everything(bench)
    attempt.publish()
    assert everything(bench) == published
    require_fold(bench)


def test_a_batch_that_was_superseded_changes_nothing_under_the_newer_versions(bench: StateBench) -> None:
    superseded = Attempt(bench, bench.plan(RunOptions())).stage()
    bench.append(Change("a", None))
    bench.append(Change("b", (7, 7)))
    bench.live()
    require_fold(bench)
    before = everything(bench)
    with pytest.raises(Fenced):
        superseded.publish()
    assert everything(bench) == before


def test_a_plan_beside_a_batch_that_is_held_waits_and_changes_nothing(bench: StateBench) -> None:
    batch = bench.plan(RunOptions())
    attempt = Attempt(bench, batch).stage()
    bench.append(Change("a", None))
    before = everything(bench)
    ports = PlanPorts(PostgresLedger(bench.params), bench.log, PostgresTarget(bench.params), LivingRuns())
    request = Request("test", uuid.uuid4().hex, parameters=RunOptions().to_parameters())
    with pytest.raises(Busy):
        plan_batch(bench.settings, request, ports, settings_hash=settings_hash(bench.settings.batch))
    assert everything(bench) == before
    attempt.publish()
    was_read(bench, batch)
    require_fold(bench)
    bench.live()
    require_fold(bench)


def test_while_one_attempt_publishes_no_other_claims_or_publishes(bench: StateBench) -> None:
    batch = bench.plan(RunOptions())
    attempt = Attempt(bench, batch).stage()
    with attempt.publishing():
        require_fold(bench)  # nobody sees it yet
        with pytest.raises(Busy):
            attempt.publish()
    # It ended without COMMIT: everything is as it was, and the same can be published.
    require_fold(bench)
    attempt.publish()
    was_read(bench, batch)
    require_fold(bench)


@contextmanager
def cut(bench: StateBench, on_commit: Callable[[Session, bytes], None]) -> Iterator[dict[str, Any]]:
    """Yield connection parameters of a way to the database on which the COMMIT of a publish meets this."""
    with CuttingProxy((bench.params["host"], bench.params["port"]), "kafka_ingest publish", on_commit) as proxy:
        way = {"host": "127.0.0.1", "port": proxy.port, "sslmode": "disable", "gssencmode": "disable"}
        yield {**bench.params, **way}


def test_a_commit_whose_answer_is_lost_has_happened_once(bench: StateBench) -> None:
    batch = bench.plan(RunOptions())
    attempt = Attempt(bench, batch).stage()
    with cut(bench, lose_answer) as params:
        attempt.publish(params)
    was_read(bench, batch)
    require_fold(bench)
    published = everything(bench)
    assert Attempt(bench, batch).batch.state is BatchState.COMMITTED  # as a retry finds it
    attempt.publish()
    assert everything(bench) == published


def test_a_commit_that_did_not_arrive_has_not_happened_and_the_next_attempt_publishes(bench: StateBench) -> None:
    batch = bench.plan(RunOptions())
    attempt = Attempt(bench, batch).stage()
    before = everything(bench)
    with cut(bench, lose_request) as params, pytest.raises(CommitDidNotHappen):
        attempt.publish(params)
    assert everything(bench) == before
    require_fold(bench)
    Attempt(bench, batch).stage().publish()
    was_read(bench, batch)
    require_fold(bench)


# ----------
# Any order of the steps of several attempts, of plans that supersede, of reloads and of new records.


#: So many batches are committed in one draw; how many steps that takes is a matter of luck.
COMMITS, MOST_STEPS = 8, 400


class Interleaving:
    """Attempts of one batch after another, whose steps are drawn.

    Attributes:
        attempts: The newest attempts, also of batches that are committed or superseded by now.
        done: What was done, or what stopped it.
    """

    def __init__(self, bench: StateBench, random: Random) -> None:
        self.bench, self._random = bench, random
        self.attempts: list[Attempt] = []
        self.done: list[str] = []
        self._versions: dict[str, int] = {}
        self._outstanding: Batch | None = None

    def step(self) -> None:
        """Do one thing that may happen; what a rule stops is stopped, and nothing of it is in the table."""
        weights = self._weights()
        [kind] = self._random.choices(list(weights), list(weights.values()))
        try:
            self.done.append(getattr(self, f"_{kind}")() or kind)
        except (Fenced, Busy, ReloadWouldLose, CommitDidNotHappen) as stop:
            self.done.append(f"{kind}: {type(stop).__name__}")
            if isinstance(stop, ReloadWouldLose):
                self._outstanding = None  # no attempt of it can succeed: the next plan supersedes it

    def _weights(self) -> dict[str, int]:
        is_open = self._outstanding is not None
        staged = len(self._staged)
        return {
            "append": 4,
            "version": 1,
            "plan": 1 if is_open else 20,
            "claim": 8 if is_open else 0,
            "stage": 15 if staged < len(self.attempts) else 0,
            "publish": 12 if staged else 0,
            "lose": 2 if staged else 0,
        }

    @property
    def _staged(self) -> list[Attempt]:
        return [attempt for attempt in self.attempts if attempt.outcome is not None]

    def _append(self) -> None:
        for _ in range(self._random.randrange(1, 5)):
            self.bench.append(drawn(self._random))

    def _version(self) -> None:
        self.bench.version = 1 - self.bench.version

    def _plan(self) -> str:
        """Plan the next batch, which supersedes one that is outstanding."""
        options = RunOptions(limit_offsets=self._random.choice((2, 4, 1_000)))
        if self._random.random() < 0.6:
            start = self._random.randrange(max(offset for _, offset in self.bench.seen) + 1)
            end = min(start + self._random.randrange(1, 5), self.bench.log.topics[TOPIC].partitions[0].high_watermark)
            options = RunOptions(RunMode.RELOAD, offsets=(OffsetSpan(TOPIC, 0, start, end),))
        batch = self.bench.plan(options)
        self._versions[batch.batch_id] = self.bench.version
        self._outstanding = batch if batch.state is BatchState.PLANNED else None
        self.attempts = self.attempts[-1:]  # one of an earlier batch lives on
        return f"plan {options.mode}"

    def _claim(self) -> None:
        assert self._outstanding is not None
        self.attempts = [*self.attempts[-3:], Attempt(self.bench, self._outstanding)]

    def _stage(self) -> None:
        unstaged = [attempt for attempt in self.attempts if attempt.outcome is None]
        self._random.choice((unstaged[-1], *unstaged)).stage()

    def _publish(self) -> str:
        return self._published(lambda attempt: attempt.publish())

    def _lose(self) -> str:
        """Publish, and lose COMMIT or its answer."""

        def publish(attempt: Attempt) -> None:
            with cut(self.bench, self._random.choice((lose_answer, lose_request))) as params:
                attempt.publish(params)

        return self._published(publish)

    def _published(self, publish: Callable[[Attempt], None]) -> str:
        """Publish a staged attempt of any batch; return whether that committed it."""
        staged = self._staged
        attempt = staged[-1] if self._random.random() < 0.6 else self._random.choice(staged)
        was_committed = self._is_committed(attempt)
        publish(attempt)
        if was_committed or not self._is_committed(attempt):
            return "publish: nothing to do"
        was_read(self.bench, attempt.batch, self._versions[attempt.batch.batch_id])
        self._outstanding = None
        return "publish: committed"

    def _is_committed(self, attempt: Attempt) -> bool:
        batch = PostgresLedger(self.bench.params).batch(attempt.batch.batch_id)
        return batch is not None and batch.state is BatchState.COMMITTED


@pytest.mark.parametrize("deletes", [Deletes.REMOVE, Deletes.MARK])
@pytest.mark.parametrize("order", [OrderBy.OFFSET, OrderBy.RECORD_TIME, OrderBy.COLUMN])
def test_in_any_order_of_steps_the_table_is_the_fold_of_what_was_published(
    database: Mapping[str, Any], order: OrderBy, deletes: Deletes
) -> None:
    bench = StateBench(database, partial(state_settings, order=order, deletes=deletes))
    bench.append(Change("a"))
    bench.live()
    interleaving = Interleaving(bench, Random(f"attempts {order} {deletes}"))
    while interleaving.done.count("publish: committed") < COMMITS:
        assert len(interleaving.done) < MOST_STEPS, interleaving.done
        interleaving.step()
        if interleaving.done[-1].startswith(("plan", "publish", "lose")):
            assert bench.table() == bench.folded(), interleaving.done
            assert bench.violations() == [], interleaving.done
    bench.live()
    require_fold(bench)
    # Without these the draw would prove little.
    assert {"plan live", "plan reload", "publish: Fenced"} <= set(interleaving.done)
