"""The frame of a schedule: how it begins, what is checked after every event, and how it ends."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant
from hypothesis.strategies._internal.featureflags import FeatureFlags

from kafka_ingest.settings import FirstRunKind, PartitionFaultPolicy
from tests.protocol_model.attempts import CLUSTER
from tests.protocol_model.finale import end_well
from tests.protocol_model.pipeline import model_settings
from tests.protocol_model.stores import FakeStore, Store
from tests.protocol_model.world import Arrivals, Stop, World

T = TypeVar("T")

#: Without these nothing would happen.
NEVER_LEFT_OUT = {"records_arrive_and_a_run_starts", "an_attempt_goes_on"}

#: How many schedules and events ran, by name of the model: for the summary.
TALLY: Counter[tuple[str, str]] = Counter()

#: Calls between which what others do matters most.
CALLS = [
    "ledger.record_plan",
    "ledger.claim",
    "task.read",
    "task.read",
    "task.read",
    "task.stage",
    "log.identity",
    "evolution.add_columns",
    "publication.lock_batch",
    "publication.insert_rows",
    "publication.commit",
    "staging.drop",
]

rarely = st.integers(0, 7).map(lambda number: number == 7)
clusters = rarely.map(lambda is_other: "other-cluster" if is_other else CLUSTER)
index = st.integers(0, 11)
#: How far an attempt goes: for so many points (a whole run has about fifty), or to the next call of that name.
stops: st.SearchStrategy[Stop] = st.sampled_from([1, 2, 3, 5, 8, 13, 21, 34, 100]) | st.sampled_from(CALLS)
#: Where an attempt stands while something happens to the log; ``None``: nobody cares where.
Meanwhile = Stop | None
meanwhile: st.SearchStrategy[Meanwhile] = st.sampled_from([None, "ledger.claim", "log.identity", 17, 19, 21, 23])
values = st.lists(
    st.sampled_from([b"good", b"good", b"bad", None, b"field:note", b"field:total"]), min_size=1, max_size=6
)
growth = st.lists(st.sampled_from([b"good", b"bad"]), max_size=12)
arrivals = st.lists(st.tuples(index, values), min_size=1, max_size=3)


class EnabledRules(FeatureFlags):
    """Which rules a schedule has: all but a few.

    Hypothesis itself leaves out half of the rules on average; then most schedules here had no run at all.
    """

    def __init__(self, left_out: set[str]) -> None:
        super().__init__()
        self._left_out = left_out

    def is_enabled(self, name: str) -> bool:
        return name not in self._left_out


class Schedule(RuleBasedStateMachine):
    """One world, and the events that happen to it. Rules come from the classes that build on this one.

    Attributes:
        calm_events: So many events come before any that only a person can put right; after one of those there is not
            much left to happen.
    """

    new_store: Callable[[], Store] = FakeStore

    def __init__(self) -> None:
        super().__init__()
        self.world: World
        self.events = 0
        self.calm_events = 0
        self.disasters = 0
        rules = self._rules_strategy
        left_out = st.sets(
            st.sampled_from(sorted({rule.function.__name__ for rule in rules.rules} - NEVER_LEFT_OUT)), max_size=8
        )
        rules.enabled_rules_strategy = st.shared(st.builds(EnabledRules, left_out), key=("enabled rules", self))
        TALLY[type(self).__name__, "schedules"] += 1

    @initialize(
        first_run=st.sampled_from([FirstRunKind.EARLIEST, FirstRunKind.EARLIEST, FirstRunKind.LATEST]),
        partitions=st.integers(1, 2),
        total_offsets=st.sampled_from([3, 100]),
        policy=st.sampled_from(PartitionFaultPolicy),
        calm_events=st.sampled_from([15, 30, 40, 45, 1_000]),
        first=arrivals,
    )
    def begin(
        self,
        first_run: FirstRunKind,
        partitions: int,
        total_offsets: int,
        policy: PartitionFaultPolicy,
        calm_events: int,
        first: Arrivals,
    ) -> None:
        self.calm_events = calm_events
        settings = model_settings(first_run, total_offsets=total_offsets, policy=policy)
        self.world = World(type(self).new_store(), settings)
        self.world.log.create_topic("orders", partitions)
        self.world.receive(first)

    @invariant()
    def the_promise_holds(self) -> None:
        TALLY[type(self).__name__, "events"] += 1
        self.events += 1
        self.world.check()

    def may_be_disastrous(self) -> bool:
        return self.events > self.calm_events and self.disasters < 2

    @contextmanager
    def attempt_under_way(self, meanwhile: Meanwhile) -> Iterator[None]:
        """Have an attempt stand where it can be disturbed, and go on with it afterwards; a new run if need be."""
        world = self.world
        if meanwhile is None:
            yield
            return
        attempt = world.attempts[0] if world.attempts else world.start_run(world.new_request("disturbed"))
        world.go_on(attempt, meanwhile)
        yield
        world.finish(attempt)

    def teardown(self) -> None:
        if sys.exc_info()[0] is None and hasattr(self, "world"):
            end_well(self.world)
        else:
            for attempt in [*getattr(self, "world", _NOBODY).attempts]:
                attempt.kill()


class _NOBODY:
    attempts: Sequence[object] = ()


def tally_of(model: type[Schedule]) -> str:
    """Say how much of a model has run."""
    name = model.__name__
    return f" {name}: {TALLY[name, 'schedules']} schedules, {TALLY[name, 'events']} events"


def newest(among: Sequence[T], number: int) -> T:
    """Pick one of the newest three."""
    return pick(among[:-4:-1], number)


def pick(among: Sequence[T], number: int) -> T:
    """Pick one of a list that changes from schedule to schedule; there must be one."""
    return among[number % len(among)]
