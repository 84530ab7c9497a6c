"""What must hold after every step: the database holds what the history says, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from kafka_ingest.protocol.batch import BatchState
from kafka_ingest.protocol.position import Position
from tests.fakes.database import StoredRecord
from tests.protocol_model.history import REPLAY, History, Identity, standing_of
from tests.protocol_model.stores import BatchLine, Store


def check_store(store: Store, history: History) -> None:
    """Check records, positions and batches."""
    batches = {batch.batch_id for batch in store.batches()}
    rows = (row if row.batch_id in batches else replace(row, batch_id=REPLAY) for row in store.rows())
    check_records((*rows, *store.standing_dead_letters()), history)
    check_positions(store.positions(), history)
    check_batches(store.batches(), history)


def check_records(records: Iterable[StoredRecord], history: History) -> None:
    """Rows and dead letters are what was readable, of the newest batch that read it: each once, nothing else."""
    found = Counter((identity_of(record), (record.reason or "row", record.batch_id)) for record in records)
    expected = Counter(history.stored.items())
    assert found == expected, f"doubled or not readable: {found - expected}; lost: {expected - found}"


def check_positions(positions: Sequence[Position], history: History) -> None:
    """Every position stands where batches and changes brought it, and nothing is stored above ``loaded_to``."""
    expected = {place: replace(standing, epoch_at=None) for place, standing in history.standings.items()}
    assert {p.topic_partition: standing_of(p) for p in positions} == expected
    loaded_to = {(p.topic, p.generation, p.partition): p.loaded_to for p in positions}
    above = [i for i in history.stored if i[-1] >= loaded_to.get(i[:-1], i[-1] + 1)]
    assert not above, f"no reload would replace these: {above}"


def check_batches(batches: list[BatchLine], history: History) -> None:
    """At most one outstanding batch, one standing batch for each request, and no COMMIT is forgotten."""
    planned = [batch for batch in batches if batch.state is BatchState.PLANNED]
    assert len(planned) <= 1, f"several outstanding batches: {planned}"
    standing = Counter(b.request for b in batches if b.state in (BatchState.PLANNED, BatchState.COMMITTED))
    assert set(standing.values()) <= {1}, f"several standing batches of one request: {standing}"
    committed = {batch.batch_id for batch in batches if batch.state is BatchState.COMMITTED}
    assert set(history.moves) <= committed, "a batch that was committed no longer is"


def identity_of(record: StoredRecord) -> Identity:
    """Return the identity of a row or dead letter."""
    return (record.topic, record.generation, record.partition, record.offset)
