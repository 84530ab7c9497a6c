"""People who change positions, roll back or resolve dead letters, while runs go on, die and come again."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from kafka_ingest.protocol.dead_letters import DeadLetterAction, DeadLetterChoice, DeadLetterRequest
from kafka_ingest.protocol.decisions import (
    AcceptLoss,
    AcceptRecreation,
    Change,
    ChangeRequest,
    LogPlace,
    ResetBy,
    ResetToPlace,
    ResetToTime,
    SkipLag,
)
from kafka_ingest.protocol.roll_back import RollBackRequest
from tests.protocol_model.schedule import Schedule, index, newest, stops
from tests.protocol_model.world import FIRST_MS, Stop

MAX_ATTEMPTS = 4

changes: st.SearchStrategy[Change] = st.one_of(
    st.builds(ResetBy, st.sampled_from([-1, -2, -3, -5, -8, 2])),
    st.builds(ResetToPlace, st.sampled_from(LogPlace)),
    st.builds(ResetToTime, st.integers(FIRST_MS, FIRST_MS + 30)),
    st.builds(SkipLag, st.integers(0, 3)),
    st.builds(AcceptLoss, st.integers(0, 1)),
    st.builds(AcceptRecreation),
)


def _has_room(schedule: Schedule) -> bool:
    return len(schedule.world.attempts) < MAX_ATTEMPTS and bool(schedule.world.history.standings)


class ChangeRules(Schedule):
    """Events of operators."""

    @precondition(_has_room)
    @rule(change=changes, supersede=st.booleans(), stop=stops)
    def positions_are_changed(self, change: Change, supersede: bool, stop: Stop) -> None:
        request = ChangeRequest("orders", self._new_id("change"), change, "somebody", "to test", supersede)
        self.world.go_on(self.world.start_asked(request), stop)

    @precondition(_has_room)
    @rule(batches=st.integers(1, 2), supersede=st.booleans(), allow_compacted=st.booleans(), stop=stops)
    def batches_are_rolled_back(self, batches: int, supersede: bool, allow_compacted: bool, stop: Stop) -> None:
        request_id = self._new_id("roll-back")
        request = RollBackRequest(request_id, "orders", batches, "somebody", "to test", supersede, allow_compacted)
        self.world.go_on(self.world.start_asked(request), stop)

    @precondition(_has_room)
    @rule(action=st.sampled_from(DeadLetterAction), limit=st.sampled_from([None, 1, 3]), stop=stops)
    def dead_letters_are_resolved(self, action: DeadLetterAction, limit: int | None, stop: Stop) -> None:
        choice, request_id = DeadLetterChoice(limit=limit), self._new_id(action.value)
        request = DeadLetterRequest(request_id, "orders", action, choice, "somebody", "to test")
        self.world.go_on(self.world.start_asked(request), stop)

    @precondition(lambda self: _has_room(self) and bool(self.world.asked))
    @rule(which=index, stop=stops)
    def somebody_asks_once_more(self, which: int, stop: Stop) -> None:
        """The same request: it took effect, or not yet, or another attempt of it is under way."""
        self.world.go_on(self.world.start_asked(newest(self.world.asked, which)), stop)

    def _new_id(self, kind: str) -> str:
        return f"{kind}-{len(self.world.asked) + 1}"
