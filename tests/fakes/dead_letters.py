"""Dead letters in memory: port ``DeadLetterLedger``, as strict as the one in PostgreSQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from uuid import uuid4

from kafka_ingest.errors import LockTimeout, RecordsRefused, RefusedRecord, TargetMismatch
from kafka_ingest.protocol.batch import Request
from kafka_ingest.protocol.dead_letters import (
    ChosenGroup,
    DeadLetterChoice,
    DeadLetterOutcome,
    DeadLetterPlace,
    DeadLetterRequest,
    DeadLetterView,
    RecordedDeadLetters,
    StayingGroup,
)
from kafka_ingest.settings import TargetSettings
from tests.fakes.database import FakePort, FakeSession, Identity, StoredRecord, at_once, lies_in
from tests.fakes.publisher import FakePublisher, refused_record


class FakeDeadLetterLedger(FakePort):
    """Port ``DeadLetterLedger``.

    Attributes:
        fitting: Offsets whose bytes fit today.
        counted: Offsets that are tombstones, which are only counted today.
    """

    def __init__(self, publisher: FakePublisher) -> None:
        super().__init__(publisher.database)
        self.publisher = publisher
        self.fitting: set[int] = set()
        self.counted: set[int] = set()

    def begin_dead_letters(self, request: DeadLetterRequest) -> closing[FakeDeadLetters]:
        return closing(FakeDeadLetters(self, request))


class FakeDeadLetters(FakeSession):
    """The transaction of one request."""

    def __init__(self, ledger: FakeDeadLetterLedger, request: DeadLetterRequest) -> None:
        super().__init__(ledger.database)
        self._ledger = ledger
        self._request = request
        self._chosen: list[StoredRecord] = []
        self._rows: list[StoredRecord] = []
        self._staying: list[StoredRecord] = []

    @at_once
    def lock(self) -> DeadLetterView:
        pipeline, db = self._request.pipeline, self.database
        self._lock([pipeline], LockTimeout("the pipeline is locked", pipeline=pipeline))
        view = db.plan_view(pipeline, Request("dead letters", ""), TargetSettings("shop", "orders"))
        return DeadLetterView(view, db.dead_letter_requests.get((pipeline, self._request.request_id)))

    @at_once
    def choose(self) -> Sequence[ChosenGroup]:
        choice, db = self._request.choice, self.database
        found = [d for d in db.dead_letters if d.identity not in db.resolved and _is_chosen(d, choice)]
        self._chosen = sorted(found, key=lambda letter: letter.identity)[: choice.limit]
        groups: dict[tuple[str, int, int, str | None, str], list[int]] = {}
        for letter in self._chosen:
            place = (letter.topic, letter.generation, letter.partition)
            groups.setdefault((*place, self._topic_id(letter), letter.reason or ""), []).append(letter.offset)
        return [ChosenGroup(*key, len(offsets), min(offsets), max(offsets) + 1) for key, offsets in groups.items()]

    @at_once
    def stage(self, chosen: Sequence[ChosenGroup]) -> None:
        assert sum(group.records for group in chosen) == len(self._chosen)
        replay_id = str(uuid4())
        fitting = [letter for letter in self._chosen if letter.offset in self._ledger.fitting]
        self._rows = [replace(letter, reason=None, batch_id=replay_id) for letter in fitting]
        decided = self._ledger.fitting | self._ledger.counted
        self._staying = [replace(d, reason="wrong_type") for d in self._chosen if d.offset not in decided]

    @at_once
    def insert_rows(self) -> int:
        publisher = self._ledger.publisher
        if refused := [refused_record(publisher, row) for row in self._rows if row.offset in publisher.refused_offsets]:
            raise RecordsRefused.naming(refused, target="shop.orders", pipeline=self._request.pipeline, batch_id=None)
        if swallowed := [row.offset for row in self._rows if row.offset in publisher.swallowed_offsets]:
            name = publisher.swallowed_offsets[swallowed[0]]
            raise TargetMismatch("rows are missing in the target", found=f"trigger {name}")
        self._changes.append(partial(self.database.rows.extend, list(self._rows)))
        return len(self._rows)

    @at_once
    def refuse(self, records: Sequence[RefusedRecord]) -> None:
        reasons = {(record.topic, record.partition, record.offset): record.reason.value for record in records}
        refused = {row.identity for row in self._rows if (row.topic, row.partition, row.offset) in reasons}
        self._rows = [row for row in self._rows if row.identity not in refused]
        for letter in (found for found in self._chosen if found.identity in refused):
            reason = reasons[letter.topic, letter.partition, letter.offset]
            self._staying.append(replace(letter, reason=reason))

    @at_once
    def resolve(self) -> DeadLetterOutcome:
        replayed = {row.identity for row in self._rows}
        counted = {letter.identity for letter in self._chosen if letter.offset in self._ledger.counted}
        self._changes.append(partial(self._mark, replayed | counted, stays=False))
        self._changes.append(partial(self._give_reasons, {d.identity: d for d in self._staying}))
        reasons = Counter(letter.reason or "" for letter in self._staying)
        stayed = tuple(self._group(reason, number) for reason, number in sorted(reasons.items()))
        return DeadLetterOutcome(replayed=len(replayed), counted=len(counted), stayed=stayed)

    @at_once
    def discard(self) -> DeadLetterOutcome:
        self._changes.append(partial(self._mark, {letter.identity for letter in self._chosen}, stays=True))
        return DeadLetterOutcome(discarded=len(self._chosen))

    @at_once
    def record(self, outcome: DeadLetterOutcome) -> RecordedDeadLetters:
        request, db = self._request, self.database
        recorded = RecordedDeadLetters(request.request_id, request.arguments, request.who, request.why, db.now, outcome)
        key = (request.pipeline, request.request_id)
        self._changes.append(partial(db.dead_letter_requests.__setitem__, key, recorded))
        return recorded

    def commit(self) -> None:
        self._apply()
        self.close()

    def _mark(self, identities: set[Identity], *, stays: bool) -> None:
        self.database.resolved |= identities
        if not stays:
            self.database.replayed |= identities

    def _give_reasons(self, staying: dict[Identity, StoredRecord]) -> None:
        db = self.database
        db.dead_letters = [staying.get(letter.identity, letter) for letter in db.dead_letters]

    def _group(self, reason: str, number: int) -> StayingGroup:
        first = min((d for d in self._staying if d.reason == reason), key=lambda letter: letter.identity)
        return StayingGroup(reason, number, first.topic, first.partition, first.offset, "")

    def _topic_id(self, letter: StoredRecord) -> str | None:
        parts = self.database.published.get(letter.batch_id, ())
        ranges = [
            part.range for part in parts if lies_in(letter.identity, part.range, part.range.start, part.range.end)
        ]
        return ranges[0].topic_id if ranges else None


def _is_chosen(letter: StoredRecord, choice: DeadLetterChoice) -> bool:
    return (
        (not choice.reasons or letter.reason in choice.reasons)
        and choice.batch_id in (None, letter.batch_id)
        and choice.generation in (None, letter.generation)
        and (not choice.places or any(_is_in(letter, place) for place in choice.places))
    )


def _is_in(letter: StoredRecord, place: DeadLetterPlace) -> bool:
    return (
        letter.topic == place.topic
        and place.partition in (None, letter.partition)
        and (place.start or 0) <= letter.offset
        and (place.end is None or letter.offset < place.end)
    )
