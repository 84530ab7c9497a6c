"""What must hold after every step: the promise, worked out from what was readable when it was read."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

from kafka_ingest.core.batch import BatchState
from kafka_ingest.core.offsets import Position
from kafka_ingest.core.settings import Tombstones
from tests.fakes.database import StoredRecord
from tests.protocol_model.observed_log import ObservedLog, Reading, Truncation
from tests.protocol_model.stores import BatchLine, Store
from tests.protocol_model.tasks import fate_of

Identity = tuple[str, int, int, int]


class Published:
    """What every COMMIT that took effect may have published, by batch: what its attempt had read.

    After a restore two attempts can hold the same claim of the same batch, and either may publish what the other
    staged: then there are several candidates.
    """

    def __init__(self) -> None:
        self._candidates: dict[str, list[list[Reading]]] = defaultdict(list)
        self._tombstones: dict[str, Tombstones] = {}

    def add(self, batch_id: str, candidates: Iterable[list[Reading]], tombstones: Tombstones) -> None:
        self._candidates[batch_id] = list(candidates)
        self._tombstones[batch_id] = tombstones

    def readings(self, batch_id: str) -> list[Reading]:
        """Gives what the batch read; nothing for a batch that had no ranges."""
        return next(iter(self._candidates[batch_id]), [])

    def choose(self, batch_id: str, found: set[Identity]) -> list[Reading]:
        """Gives the candidate that gives just these identities, or the first one."""
        for readings in self._candidates[batch_id]:
            if set(self._identities(batch_id, readings)) == found:
                self._candidates[batch_id] = [readings]
        return self.readings(batch_id)

    def fates(self, batch_id: str) -> list[tuple[Identity, str]]:
        """Gives identity and fate (``row`` or a reason) of every record that the batch stores."""
        return list(self._identities(batch_id, self.readings(batch_id)).items())

    def _identities(self, batch_id: str, readings: list[Reading]) -> dict[Identity, str]:
        return {
            (*reading.place, offset): fate
            for reading in readings
            for offset, value in reading.values.items()
            if (fate := fate_of(value, self._tombstones[batch_id])) is not None
        }


def check_store(store: Store, published: Published, log: ObservedLog) -> None:
    """Checks records, positions and batches against what was read."""
    batches = store.batches()
    committed = [batch.batch_id for batch in batches if batch.state is BatchState.COMMITTED]
    check_records(store.rows(), store.dead_letters(), committed, published)
    readings = [reading for batch_id in committed for reading in published.readings(batch_id)]
    check_chains(store.positions(), readings, log)
    check_history(readings, log.truncations)
    check_batches(batches)


def check_records(
    rows: Sequence[StoredRecord], dead_letters: Sequence[StoredRecord], committed: list[str], published: Published
) -> None:
    """Rows and dead letters are what was readable in the ranges of committed batches: each once, nothing else."""
    found: Counter[tuple[Identity, str]] = Counter()
    for record in (*rows, *dead_letters):
        identity = (record.topic, record.generation, record.partition, record.offset)
        found[identity, record.reason or "row"] += 1
    expected: Counter[tuple[Identity, str]] = Counter()
    for batch_id in committed:
        published.choose(batch_id, {_identity(r) for r in (*rows, *dead_letters) if r.batch_id == batch_id})
        expected.update(published.fates(batch_id))
    assert found == expected, f"doubled or not readable: {found - expected}; lost: {expected - found}"


def check_chains(positions: Sequence[Position], readings: list[Reading], log: ObservedLog) -> None:
    """The ranges of a position are of its own topic id, without gap or overlap, and end where it stands."""
    by_place: dict[tuple[str, int, int], list[Reading]] = defaultdict(list)
    for reading in readings:
        by_place[reading.place].append(reading)
    for position in positions:
        chain = sorted(by_place.get((position.topic, position.generation, position.partition), []), key=_start)
        logs = {(r.cluster_id, r.topic_id) for r in chain}
        assert logs <= {(position.cluster_id, position.topic_id)}, f"{position} holds records of another log: {logs}"
        for left, right in pairwise(chain):
            assert left.end == right.start, f"gap or overlap between {left} and {right}"
        begin = chain[0].start if chain else position.committed_offset
        assert position.committed_offset == (chain[-1].end if chain else begin), f"{position} does not end {chain}"
        assert log.could_begin(position, begin), f"{position} began at {begin}: never the log start"


def check_history(readings: list[Reading], truncations: list[Truncation]) -> None:
    """Nothing was published on top of records that the log had lost: one history in each partition.

    Unless retention had already deleted all that the log held in their place: then no broker tells the difference.
    """
    for truncation in truncations:
        lost, later = around(truncation, readings)
        if lost and later:
            first = min(later, key=lambda reading: reading.at)
            assert first.log_start >= max(reading.end for reading in lost), (
                f"{truncation} was not noticed: {lost} were read before it, {later} after it"
            )


def around(truncation: Truncation, readings: Iterable[Reading]) -> tuple[list[Reading], list[Reading]]:
    """Gives the readings whose records the log lost in an election, and those of what it has in their place."""
    own = [r for r in readings if (r.topic_id, r.partition) == (truncation.topic_id, truncation.partition)]
    lost = [r for r in own if r.at < truncation.at and r.end > truncation.to]
    return lost, [r for r in own if r.at > truncation.at and r.end > truncation.to]


def check_batches(batches: list[BatchLine]) -> None:
    """At most one outstanding batch, and one standing batch for each request."""
    planned = [batch for batch in batches if batch.state is BatchState.PLANNED]
    assert len(planned) <= 1, f"several outstanding batches: {planned}"
    standing = Counter(b.request for b in batches if b.state in (BatchState.PLANNED, BatchState.COMMITTED))
    assert set(standing.values()) <= {1}, f"several standing batches of one request: {standing}"


def check_forward(before: Sequence[Position], after: Sequence[Position]) -> None:
    """No position moves backwards or vanishes."""
    now = {position.topic_partition: position for position in after}
    for position in before:
        moved = now.get(position.topic_partition)
        assert moved is not None, f"{position} is gone"
        assert (moved.generation, moved.line) == (position.generation, position.line)
        assert moved.committed_offset >= position.committed_offset, f"{position} moved back to {moved}"


def _identity(record: StoredRecord) -> Identity:
    return (record.topic, record.generation, record.partition, record.offset)


def _start(reading: Reading) -> int:
    return reading.start
