"""The log that was read must be the log that was planned: asked once more right before publishing.

A consumer that reads while its topic is deleted and created again notices nothing (measured on Kafka 4.2).
"""

from __future__ import annotations

from kafka_ingest.core.batch import Batch
from kafka_ingest.core.change_commands import change_command
from kafka_ingest.core.errors import ClusterChanged, TopicRecreated
from kafka_ingest.core.log_state import LogIdentity
from kafka_ingest.core.settings import TopicIdentity


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
