"""Whether a log is the one that positions and batches belong to, by the ids of topics and cluster.

The ids are compared by every plan, and once more right before publishing: a consumer that reads while its topic is
deleted and created again notices nothing (measured on Kafka 4.2).
"""

from __future__ import annotations

from dataclasses import replace

from kafka_ingest.core.batch import Batch
from kafka_ingest.core.change_commands import change_command
from kafka_ingest.core.errors import ClusterChanged, TopicRecreated
from kafka_ingest.core.ledger_view import PlanView
from kafka_ingest.core.log_state import LogIdentity, LogSnapshot, TopicState
from kafka_ingest.core.offsets import Position
from kafka_ingest.core.position_changes import PositionMove
from kafka_ingest.core.settings import TopicIdentity


def is_of_another_log(position: Position, topic: TopicState) -> bool:
    """Whether a position belongs to another topic of the same name, by its id; one without an id fits any."""
    return position.topic_id not in (None, topic.topic_id)


def adopted_ids(identity: TopicIdentity, view: PlanView, snapshot: LogSnapshot) -> tuple[PositionMove, ...]:
    """Chooses the positions that take over the broker's topic id: those that were planned under ``none``.

    Without it their ranges would carry no id, and :func:`require_same_log` would refuse every batch after it was read.
    All positions of a topic get the id in one plan, so that a later re-creation is seen whichever of them is read.

    Args:
        identity: What the pipeline file says.
        view: The ledger.
        snapshot: The log, without topics whose id differs from that of a position.
    """
    if identity is TopicIdentity.NONE:
        return ()
    known = {name: topic.topic_id for name, topic in snapshot.topics.items() if topic.topic_id}
    blind = (p for p in view.positions if p.topic_id is None and p.topic in known)
    return tuple(PositionMove(p, replace(p, topic_id=known[p.topic])) for p in blind)


def require_same_log(batch: Batch, identity: LogIdentity) -> None:
    """Compares cluster id and topic ids with those frozen in the batch.

    Raises:
        ClusterChanged: Another cluster answers.
        TopicRecreated: A topic is gone or has another id; every one is listed.
    """
    if identity.cluster_id != batch.cluster_id:
        raise ClusterChanged(
            "another Kafka cluster answered than the one that was planned; nothing was published",
            expected=f"cluster id {batch.cluster_id}",
            found=f"cluster id {identity.cluster_id}",
            next_command=(
                "point the connection at the former cluster; or "
                f"{change_command(batch.pipeline, 'accept-cluster')}; see docs/runbook.md, section ClusterChanged"
            ),
            pipeline=batch.pipeline,
            batch_id=batch.batch_id,
        )
    if batch.settings.topic_identity is TopicIdentity.NONE:
        return
    planned = {r.topic: r.topic_id for r in batch.ranges}
    changed = {topic: planned[topic] for topic in planned if identity.topic_ids.get(topic) != planned[topic]}
    if changed:
        raise TopicRecreated(
            "a topic was deleted or created again while the batch was read; nothing was published",
            expected="; ".join(f"{topic}: topic id {topic_id}" for topic, topic_id in sorted(changed.items())),
            found="; ".join(f"{topic}: {_found(identity, topic)}" for topic in sorted(changed)),
            next_command=(
                f"{change_command(batch.pipeline, 'accept-recreation')}; see docs/runbook.md, section TopicRecreated"
            ),
            pipeline=batch.pipeline,
            batch_id=batch.batch_id,
        )


def _found(identity: LogIdentity, topic: str) -> str:
    if topic not in identity.topic_ids:
        return "no such topic"
    return f"topic id {identity.topic_ids[topic]}"
