"""What happens to the database: time, crashes, a COMMIT that ends late, a restore, another version of the package."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from kafka_ingest.protocol.batch import BatchState
from tests.protocol_model.schedule import Schedule
from tests.protocol_model.situations import Happened

#: It takes away what was loaded: with more of them a schedule never gets far.
MAX_RESTORES = 1


class DatabaseRules(Schedule):
    """Events of the database."""

    @rule(seconds=st.sampled_from([5, 61, 1_801]))
    def time_passes(self, seconds: int) -> None:
        """A missed heartbeat, a hold of a claim that passes, and one of a plan."""
        self.world.store.advance(seconds)

    @precondition(lambda self: self.world.transactions.has_commits_under_way)
    @rule(took_effect=st.booleans())
    def a_commit_under_way_ends(self, took_effect: bool) -> None:
        self.world.transactions.end_commits(took_effect=took_effect)

    @rule(commits_took_effect=st.booleans())
    def the_server_crashes(self, commits_took_effect: bool) -> None:
        self.world.crash_database(commits_took_effect=commits_took_effect)

    @precondition(lambda self: self.world.requests and self.world.restores < MAX_RESTORES)
    @rule()
    def the_database_is_restored(self) -> None:
        """From the copy that was taken when the newest run started."""
        self.world.restore()

    @rule()
    def the_outstanding_batch_was_planned_by_another_version(self) -> None:
        for batch in self.world.store.batches():
            if batch.state is BatchState.PLANNED:
                self.world.happened.add(Happened.OTHER_VERSION)
                self.world.store.plan_was_of_another_version(batch.batch_id)
