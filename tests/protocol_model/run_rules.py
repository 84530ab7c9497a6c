"""What happens to runs and attempts: started, going on, killed, cut off, alive too long."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from kafka_ingest.protocol.batch import RunOptions
from kafka_ingest.settings import Tombstones
from tests.protocol_model.attempts import CommitAnswer, LostConnection
from tests.protocol_model.schedule import Schedule, arrivals, clusters, index, newest, pick, rarely, stops
from tests.protocol_model.situations import Happened
from tests.protocol_model.tasks import Losers
from tests.protocol_model.world import Arrivals, Stop

losers = st.builds(Losers, before=st.integers(0, 1), after=st.integers(0, 1))
MAX_ATTEMPTS = 4


def _has_room(schedule: Schedule) -> bool:
    return len(schedule.world.attempts) < MAX_ATTEMPTS


def _has_attempts(schedule: Schedule) -> bool:
    return bool(schedule.world.attempts)


def _has_run(schedule: Schedule) -> bool:
    return bool(schedule.world.requests)


class RunRules(Schedule):
    """Events of the scheduler."""

    @precondition(_has_room)
    @rule(arrivals=arrivals, stop=stops, losers=losers, dag=st.sampled_from(["scheduled", "manual"]), cluster=clusters)
    def records_arrive_and_a_run_starts(
        self, arrivals: Arrivals, stop: Stop, losers: Losers, dag: str, cluster: str
    ) -> None:
        world = self.world
        world.receive(arrivals)
        world.go_on(world.start_run(world.new_request(dag), losers, cluster_id=cluster), stop)

    @precondition(_has_room)
    @rule(arrivals=arrivals, stop=stops, losers=losers, is_killed=st.booleans())
    def records_arrive_and_a_second_attempt_loads_them(
        self, arrivals: Arrivals, stop: Stop, losers: Losers, is_killed: bool
    ) -> None:
        """The first attempt came as far as it came; killed or standing still, it is no longer heard of."""
        world = self.world
        world.receive(arrivals)
        request = world.new_request("scheduled")
        first = world.start_run(request, losers)
        world.go_on(first, stop)
        if is_killed and not first.is_over:
            world.kill(first)
        world.finish(world.start_run(request, losers))

    @precondition(lambda self: _has_room(self) and _has_run(self))
    @rule(which=index, stop=stops, losers=losers, other_parameters=rarely, cluster=clusters)
    def a_run_is_cleared(self, which: int, stop: Stop, losers: Losers, other_parameters: bool, cluster: str) -> None:
        """Its tasks run again, whether or not the attempt of before is still alive."""
        world = self.world
        request = newest(world.requests, which)
        if other_parameters:
            world.happened.add(Happened.OTHER_PARAMETERS)
            request = replace(request, parameters=RunOptions(limit_offsets=1).to_parameters())
        world.runs.finished.discard(request)
        world.go_on(world.start_run(request, losers, cluster_id=cluster), stop)

    @precondition(_has_run)
    @rule(which=index)
    def the_scheduler_says_that_a_run_has_ended(self, which: int) -> None:
        """True or not: an attempt of it may still be alive."""
        self.world.runs.finished.add(newest(self.world.requests, which))

    @precondition(lambda self: _has_room(self) and bool(self.world.store.batches()))
    @rule(which=index, stop=stops, losers=losers, cluster=clusters)
    def a_batch_is_loaded_again(self, which: int, stop: Stop, losers: Losers, cluster: str) -> None:
        """A job that knows its batch only, however old: what Spark or a person starts without a plan step."""
        world = self.world
        batch_id = newest(world.store.batches(), which).batch_id
        world.go_on(world.start_load(batch_id, losers, cluster_id=cluster), stop)

    @precondition(lambda self: _has_run(self) and bool(self.world.store.batches()))
    @rule(run=index, which=index)
    def a_batch_is_audited(self, run: int, which: int) -> None:
        world = self.world
        batch_id = newest(world.store.batches(), which).batch_id
        world.finish(world.start_audit(batch_id, newest(world.requests, run)))

    @rule(tombstones=st.sampled_from(Tombstones))
    def the_pipeline_file_is_changed(self, tombstones: Tombstones) -> None:
        settings = self.world.settings
        self.world.settings = replace(settings, batch=replace(settings.batch, tombstones=tombstones))


class AttemptRules(Schedule):
    """Events of attempts."""

    @precondition(_has_attempts)
    @rule(which=index, stop=stops)
    def an_attempt_goes_on(self, which: int, stop: Stop) -> None:
        self.world.go_on(pick(self.world.attempts, which), stop)

    @precondition(_has_attempts)
    @rule(which=index)
    def an_attempt_goes_on_to_its_end(self, which: int) -> None:
        self.world.finish(pick(self.world.attempts, which))

    @precondition(_has_attempts)
    @rule(which=index)
    def an_attempt_is_killed(self, which: int) -> None:
        self.world.kill(pick(self.world.attempts, which))

    @precondition(lambda self: _has_attempts(self) and _has_run(self))
    @rule(which=index, stop=stops, losers=losers)
    def an_attempt_is_killed_and_its_run_tried_again(self, which: int, stop: Stop, losers: Losers) -> None:
        world = self.world
        world.kill(pick(world.attempts, which))
        world.go_on(world.start_run(world.requests[-1], losers), stop)

    @precondition(_has_attempts)
    @rule(which=index, when=st.sampled_from(LostConnection), stop=stops)
    def an_attempt_loses_its_connection(self, which: int, when: LostConnection, stop: Stop) -> None:
        self.world.happened.add(Happened.CONNECTION_LOST)
        attempt = pick(self.world.attempts, which)
        attempt.connection = when
        self.world.go_on(attempt, stop)

    @precondition(_has_attempts)
    @rule(which=index, answer=st.sampled_from(CommitAnswer))
    def the_answer_to_its_commit_will_be_lost(self, which: int, answer: CommitAnswer) -> None:
        self.world.happened.add(Happened.COMMIT_ANSWER_LOST)
        pick(self.world.attempts, which).commit_answer = answer

    @precondition(lambda self: any(attempt.beat for attempt in self.world.attempts))
    @rule(which=index)
    def an_attempt_gives_a_sign_of_life(self, which: int) -> None:
        beat = pick([attempt.beat for attempt in self.world.attempts if attempt.beat], which)
        beat()

    @precondition(lambda self: _has_attempts(self) and bool(self.world.log.log.topics))
    @rule(which=index, stop=stops, where=index)
    def an_attempt_goes_on_while_a_partition_has_no_leader(self, which: int, stop: Stop, where: int) -> None:
        world = self.world
        world.happened.add(Happened.LEADER_LOST)
        partition = world.log.log.partition(pick(world.log.places(), where))
        partition.has_leader = False
        world.go_on(pick(world.attempts, which), stop)
        partition.has_leader = True
