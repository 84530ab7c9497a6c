"""Retired topics: not read, not missed, and no bound of the time up to which the pipeline is complete."""

from __future__ import annotations

from dataclasses import replace

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
