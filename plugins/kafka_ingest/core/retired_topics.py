"""Retired topics: not read, not missed, and no bound of the time up to which the pipeline is complete.

One that exists all the same is told by every plan: it may be retired by mistake, or created anew under a pattern.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kafka_ingest.core.change_commands import change_command
from kafka_ingest.core.ledger_view import PlanView
from kafka_ingest.core.log_state import LogSnapshot


def retired_topics(view: PlanView) -> frozenset[str]:
    """Gives the topics that the pipeline has retired.

    Topics that it served on a former cluster or into a former table are marked in the same way, so that nobody loads
    them there again; they are retired only there.
    """
    record = view.pipeline
    if record is None:
        return frozenset()
    return frozenset(
        s.topic
        for s in view.served
        if s.is_retired and s.pipeline == record.pipeline and s.cluster_id == record.cluster_id
    )


def without_retired(view: PlanView, snapshot: LogSnapshot) -> LogSnapshot:
    """Leaves retired topics out, whether the pipeline file still selects them or not."""
    retired = retired_topics(view)
    return replace(snapshot, topics={name: state for name, state in snapshot.topics.items() if name not in retired})


def unread_topics(view: PlanView, snapshot: LogSnapshot) -> Iterator[str]:
    """Yields a text for each retired topic that the pipeline file selects and that has partitions.

    Args:
        view: The ledger.
        snapshot: The log, with retired topics.
    """
    for topic in sorted(retired_topics(view)):
        if topic in snapshot.topics and snapshot.topics[topic].partitions:
            again = change_command(view.pipeline.pipeline if view.pipeline else "", f"read-topic-again {topic}")
            yield (
                f"topic {topic} exists and is not read, because it is retired: take it out of the pipeline file's "
                f"selection, or let it be read again: {again}"
            )
