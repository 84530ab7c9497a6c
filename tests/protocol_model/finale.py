"""How a schedule ends: the world is put right as far as it can be without a person, and everything must then be loaded.

What only a person can decide (expired offsets, a truncated log, a topic that was created again) must be said exactly.
"""

from __future__ import annotations

from dataclasses import replace

from kafka_ingest import errors
from kafka_ingest.errors import IngestError
from kafka_ingest.protocol.batch import BatchState, Request, RunOptions
from kafka_ingest.protocol.position import Position
from kafka_ingest.settings import OffsetLimit, PartitionFaultPolicy
from tests.fakes.log import Fate
from tests.protocol_model.attempts import CLUSTER
from tests.protocol_model.observed_log import ISOLATION
from tests.protocol_model.world import HOLD, World

LAST = Request("scheduled", "the last run")
VERY_LAST = Request(
    "manual", "what is left", parameters=RunOptions(reload_what_is_left=True, reason="compacted").to_parameters()
)

#: Planning cannot know them: a batch is planned and claimed before they are seen.
_SEEN_WHILE_LOADING = {errors.LogTruncated, errors.ReloadWouldLose}


def end_well(world: World) -> None:
    """Put the world right, and let one last run load what is there, or stop with the one error that is due."""
    put_right(world)
    expected = due_error(world)
    fingerprint = world.store.fingerprint()
    bound = world.view(LAST).pipeline
    attempt = world.start_run(LAST, cluster_id=bound.cluster_id if bound else CLUSTER)
    world.finish(attempt)
    if expected is not None:
        assert type(attempt.error) is expected, f"{expected.__name__} was due, found: {attempt.error}"
        assert expected in _SEEN_WHILE_LOADING or world.store.fingerprint() == fingerprint
    else:
        assert attempt.error is None, f"nothing was wrong, but: {attempt.error}"
    if expected is errors.ReloadWouldLose:
        world.check()
        _give_up_what_is_lost(world)
    if expected in (None, errors.ReloadWouldLose):
        _require_complete(world)
    world.check()


def _give_up_what_is_lost(world: World) -> None:
    world.runs.finished.add(LAST)
    attempt = world.start_run(VERY_LAST)
    world.finish(attempt)
    assert attempt.error is None, f"what is lost was given up, but: {attempt.error}"


def put_right(world: World) -> None:
    """End everything that is under way, and repair what repairs itself in time."""
    for attempt in [*world.attempts]:
        world.kill(attempt)
    world.transactions.end_commits(took_effect=True)
    for transaction in [*world.log.transactions]:
        world.log.end(transaction, Fate.COMMITTED)
    world.store.advance(HOLD.start_timeout_seconds + 1)
    plan = replace(world.settings.plan, limit=OffsetLimit(), on_partition_fault=PartitionFaultPolicy.STOP)
    world.settings = replace(world.settings, plan=plan)
    world.check()


def due_error(world: World) -> type[IngestError] | None:
    """Return the error with which a run must stop now; ``None`` when it must load everything."""
    view, topics = world.view(LAST), world.log.log.topics
    due: set[type[IngestError]] = set()
    if not topics or {served.topic for served in view.served} - set(topics):
        due.add(errors.TopicMissing)
    for position in view.positions:
        due |= _faults_of(position, world)
    if due:
        return due.pop() if len(due) == 1 else errors.PartitionsFaulty
    if any(_has_lost_history(position, world) for position in view.positions):
        return errors.LogTruncated
    return errors.ReloadWouldLose if any(_would_lose(position, world) for position in view.positions) else None


def _faults_of(position: Position, world: World) -> set[type[IngestError]]:
    topic = world.log.log.topics.get(position.topic)
    if topic is None:
        return set()
    faults: set[type[IngestError]] = set()
    if topic.topic_id != position.topic_id:
        faults.add(errors.TopicRecreated)
    partition = topic.partitions.get(position.partition)
    if partition is None:
        return faults | {errors.PartitionMissing}
    if not faults and position.committed_offset < partition.log_start:
        faults.add(errors.OffsetsExpired)
    if not faults and position.committed_offset > partition.high_watermark:
        faults.add(errors.LogTruncated)
    return faults


def _has_lost_history(position: Position, world: World) -> bool:
    """Whether there is something to read on top of records that the log has lost since they were read.

    Retention may have deleted all that the log held in their place: then no broker tells the difference.
    """
    partition = world.log.log.partition(position.topic_partition)
    is_at_end = partition.end_offset(ISOLATION) <= position.committed_offset
    epoch_at = world.history.standings[position.topic_partition].epoch_at
    if is_at_end or partition.log_start >= position.committed_offset or epoch_at is None:
        return False
    truncations = world.log.truncations_of(position.topic_id, position.partition)
    return any(epoch_at < t.at and t.to < position.committed_offset for t in truncations)


def _would_lose(position: Position, world: World) -> bool:
    """Whether something is stored above the position that is to be read again, and the log no longer holds it."""
    partition = world.log.log.partition(position.topic_partition)
    again = range(position.committed_offset, partition.end_offset(ISOLATION))
    readable = {offset for offset, entry in partition.entries.items() if entry.is_readable(ISOLATION)}
    place = (position.topic, position.generation, position.partition)
    lost = {(*place, offset) for offset in again if offset not in readable}
    return bool(lost & world.history.stored.keys() - world.history.discarded)


def _require_complete(world: World) -> None:
    """Everything up to the end of every partition is loaded, and every committed batch is announced."""
    committed = {position.topic_partition: position.committed_offset for position in world.store.positions()}
    ends = {place: world.log.log.partition(place).high_watermark for place in world.log.places()}
    assert committed == ends
    assert all(batch.is_announced for batch in world.store.batches() if batch.state is BatchState.COMMITTED)
