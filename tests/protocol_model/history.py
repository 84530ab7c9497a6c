"""What a schedule must have come to: worked out from what was readable when it was read, never from the product.

Every COMMIT is played again by the rules of the promise. What the newest batch read of an offset decides what is stored
of it; positions move with batches, and backwards only by a change that was asked for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from kafka_ingest.protocol.dead_letters import DeadLetterAction, DeadLetterRequest
from kafka_ingest.protocol.ledger_view import PositionMove
from kafka_ingest.protocol.position import Position, TopicPartition
from kafka_ingest.protocol.roll_back import RollBackRecord
from kafka_ingest.settings import Tombstones
from tests.protocol_model.observed_log import ObservedLog, Reading, Truncation
from tests.protocol_model.tasks import fate_of

Identity = tuple[str, int, int, int]

#: In place of the batch that wrote it, of a row that a replay wrote.
REPLAY = "a replay"


def fits_today(identity: Identity) -> bool:
    """Whether the bytes of a dead letter fit the pipeline file as it is when they are replayed."""
    return identity[-1] % 3 != 0


@dataclass(frozen=True)
class Standing:
    """Where a position must stand.

    Attributes:
        epoch_at: When the read was made that gave the position its leader epoch, in events of the log; ``None`` when it
            has none.
    """

    committed_offset: int
    generation: int
    timeline: int
    topic_id: str | None
    cluster_id: str
    epoch_at: int | None = None


@dataclass(frozen=True)
class Published:
    """What the COMMIT of a batch made visible.

    Attributes:
        readings: What its winning tasks read.
        tombstones: What its frozen settings make of them.
        may_lose: The request says that records which the log no longer holds are given up.
    """

    batch_id: str
    readings: Sequence[Reading]
    tombstones: Tombstones
    may_lose: bool

    def fates(self, reading: Reading) -> dict[Identity, str]:
        """Return identity and fate (``row`` or a reason) of every record of a reading that is stored."""
        return {
            (*reading.place, offset): fate
            for offset, value in reading.values.items()
            if (fate := fate_of(value, self.tombstones)) is not None
        }

    @property
    def identities(self) -> set[Identity]:
        """Identities of all that is stored."""
        return {identity for reading in self.readings for identity in self.fates(reading)}


@dataclass
class History:
    """What must be stored now.

    Attributes:
        stored: Fate and batch of every record that must be there, by identity.
        read_at: When an offset was read last by a batch that was published, in events of the log, by identity.
        standings: Where every position must stand.
        moves: Batches that must be committed, in the order of their COMMITs, without those that had no ranges; with the
            positions that each moved, and where they stood before: ``None`` once a change came after it.
        changes: Request ids of the changes, roll-backs and requests about dead letters that took effect.
        discarded: Records that are dead letters for good, whatever is read of them.
    """

    stored: dict[Identity, tuple[str, str]] = field(default_factory=dict)
    read_at: dict[Identity, int] = field(default_factory=dict)
    standings: dict[TopicPartition, Standing] = field(default_factory=dict)
    moves: dict[str, dict[TopicPartition, Standing | None]] = field(default_factory=dict)
    changes: frozenset[str] = frozenset()
    discarded: frozenset[Identity] = frozenset()

    def copy(self) -> History:
        moves = {batch_id: dict(before) for batch_id, before in self.moves.items()}
        parts = (dict(self.stored), dict(self.read_at), dict(self.standings))
        return History(*parts, moves, self.changes, self.discarded)

    def begin(self, positions: Iterable[Position], log: ObservedLog) -> None:
        """Positions that a plan has begun: nothing of the log was left out."""
        for position in positions:
            if position.topic_partition not in self.standings:
                begin = position.committed_offset
                assert log.could_begin(position, begin), f"{position} began at {begin}: never the log start"
                self.standings[position.topic_partition] = standing_of(position)

    def publish(self, published: Published, log: ObservedLog) -> None:
        """Play a COMMIT. Ranges begin at or below their position, and all of one partition are one history."""
        by_place: dict[tuple[str, int, int], list[Reading]] = defaultdict(list)
        for reading in published.readings:
            by_place[reading.place].append(reading)
        self.moves[published.batch_id] = {}
        for readings in by_place.values():
            self._publish_partition(published, sorted(readings, key=_start), log)

    def change(self, request_id: str, moves: Iterable[PositionMove]) -> None:
        """Play a position change: compare-and-set; forwards in the same line, backwards in the next, once."""
        self._once(request_id)
        for move in moves:
            before = self.standings.pop(move.place, None)
            after = None if move.after is None else standing_of(move.after)
            seen = None if move.before is None else standing_of(move.before)
            assert seen == (before and replace(before, epoch_at=None)), f"{move} is of another position than {before}"
            if before is not None and after is not None:
                assert _timeline_after(before, after) == after.timeline, f"{move} is on the wrong timeline"
                skipped = (before.committed_offset, after.committed_offset)
                is_forwards = before.generation == after.generation and skipped[0] < skipped[1]
                assert move.given_up == skipped or not is_forwards, f"{move} does not tell what it gives up"
            if after is not None:
                self.standings[move.place] = after
            for places in self.moves.values():
                places.update({move.place: None} if move.place in places else {})

    def roll_back(self, record: RollBackRecord) -> None:
        """Play a roll-back: the newest batches that moved positions, with all that lies between, and no change."""
        self._once(record.request_id)
        movers = [batch_id for batch_id, places in self.moves.items() if places]
        assert list(record.batch_ids) == movers[: -record.batches - 1 : -1], f"{record} undoes others than the newest"
        lowered: dict[TopicPartition, Standing | None] = {}
        for batch_id in record.batch_ids:
            lowered |= self.moves.pop(batch_id)
        assert {span.topic_partition for span in record.spans} == set(lowered)
        for place, before in lowered.items():
            assert before is not None, f"{record} passes a position change of {place}"
            self._lower(place, before)

    def resolve(self, request: DeadLetterRequest) -> None:
        """Play a replay or a discard: of dead letters that nobody has discarded, in the order of their identities."""
        self._once(request.request_id)
        dead = sorted(i for i, (fate, _) in self.stored.items() if fate != "row" and i not in self.discarded)
        chosen = dead[: request.choice.limit]
        if request.action is DeadLetterAction.DISCARD:
            self.discarded |= set(chosen)
            return
        for identity in chosen:
            standing = self.standings.get(TopicPartition(identity[0], identity[2]))
            assert standing is not None, f"{identity} is replayed although its partition has no position"
            assert standing.generation == identity[1], f"{identity} is replayed, of another log"
            batch_id = self.stored[identity][1]
            self.stored[identity] = ("row", REPLAY) if fits_today(identity) else ("wrong_type", batch_id)

    def _lower(self, place: TopicPartition, to: Standing) -> None:
        now = self.standings[place]
        for offset in range(to.committed_offset, now.committed_offset):
            identity = (place.topic, now.generation, place.partition, offset)
            self.stored.pop(identity, None)
            self.read_at.pop(identity, None)
            self.discarded -= {identity}
        self.standings[place] = replace(to, timeline=now.timeline + 1)

    def _once(self, request_id: str) -> None:
        assert request_id not in self.changes, f"{request_id} took effect twice"
        self.changes |= {request_id}

    def _publish_partition(self, published: Published, readings: list[Reading], log: ObservedLog) -> None:
        place = TopicPartition(readings[0].topic, readings[0].partition)
        standing = self.standings[place]
        for reading in readings:
            of_log = (reading.generation, reading.topic_id, reading.cluster_id)
            assert of_log == (standing.generation, standing.topic_id, standing.cluster_id), f"{reading}: another log"
        for left, right in pairwise(readings):
            assert left.end == right.start, f"gap or overlap between {left} and {right}"
        before = standing.committed_offset
        assert readings[0].start <= before, f"{readings[0]} leaves a gap above {before}"
        for reading in readings:
            self._replace(published, reading)
        last = readings[-1]
        if last.end > before:
            self.moves[published.batch_id][place] = standing
            self.standings[place] = replace(standing, committed_offset=last.end, epoch_at=last.at)
        self._require_one_history(readings, standing, log)

    def _replace(self, published: Published, reading: Reading) -> None:
        read = [(*reading.place, offset) for offset in range(reading.start, reading.end)]
        identities = [identity for identity in read if identity not in self.discarded]
        lost = [i for i in identities if i in self.stored and i[-1] not in reading.values]
        assert published.may_lose or not lost, f"{published.batch_id} loses what the log no longer holds: {lost}"
        for identity in identities:
            self.stored.pop(identity, None)
        self.read_at.update(dict.fromkeys(read, reading.at))
        fates = published.fates(reading)
        new = {identity: (fate, published.batch_id) for identity, fate in fates.items()}
        self.stored.update({identity: of for identity, of in new.items() if identity not in self.discarded})

    def _require_one_history(self, readings: list[Reading], standing: Standing, log: ObservedLog) -> None:
        """Nothing is published on top of records that the log had lost: not in a batch, not above a position.

        A position that was put where it stands by a change says nothing of what lies below it. And retention may have
        deleted all that the log held in the place of what it lost: then no broker tells the difference.
        """
        for truncation in log.truncations_of(standing.topic_id, readings[0].partition):
            later = [r for r in readings if r.at > truncation.at and r.end > truncation.to]
            if not later:
                continue
            is_above = max(r.end for r in later) > standing.committed_offset
            knows = standing.epoch_at is not None and standing.epoch_at < truncation.at
            from_offset = truncation.to if is_above and knows else max(truncation.to, readings[0].start)
            to_offset = max(readings[-1].end, standing.committed_offset if is_above and knows else 0)
            lost = self._lost(readings[0].place, truncation, range(from_offset, to_offset))
            assert not lost or min(r.log_start for r in later) > max(lost), (
                f"{truncation} was not noticed: {lost} were read before it, {later} after it"
            )

    def _lost(self, place: tuple[str, int, int], truncation: Truncation, offsets: range) -> list[int]:
        return [o for o in offsets if self.read_at.get((*place, o), truncation.at) < truncation.at]


def _timeline_after(before: Standing, after: Standing) -> int:
    if after.generation != before.generation:
        assert after.generation == before.generation + 1
        return 0
    assert (after.topic_id, after.cluster_id) == (before.topic_id, before.cluster_id), "another log, same generation"
    return before.timeline + (after.committed_offset < before.committed_offset)


def standing_of(position: Position) -> Standing:
    """Return what a position shows, without the history of its epoch."""
    return Standing(
        position.committed_offset, position.generation, position.timeline, position.topic_id, position.cluster_id
    )


def _start(reading: Reading) -> int:
    return reading.start
