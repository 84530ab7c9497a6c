"""Step *mirror*: copy the position to a Kafka consumer group, where lag tools look.

A copy and no more: the position is in the ledger, nothing ever reads the group, and a failure is a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from kafka_ingest.core.batch import Request
from kafka_ingest.core.errors import IngestError
from kafka_ingest.core.ledger_view import PlanView
from kafka_ingest.core.offsets import TopicPartition
from kafka_ingest.core.ports import GroupMirror, Ledger
from kafka_ingest.core.retired_topics import retired_topics
from kafka_ingest.core.settings import PipelineSettings

_log = logging.getLogger(__name__)


def group_of(pipeline: str) -> str:
    """Gives the name of a pipeline's consumer group."""
    return f"kafka_ingest.{pipeline}"


def mirror_group(
    settings: PipelineSettings, request: Request, ledger: Ledger, open_mirror: Callable[[], GroupMirror]
) -> bool:
    """Copies the committed offsets of all topics that are not retired.

    They are those of this moment, not of the run's own batch: another may have moved the position since. Runs that end
    at the same time may store theirs in any order; the next run mends it.

    Args:
        settings: The pipeline; without ``mirror_group`` nothing happens.
        request: Who asks.
        ledger: The ledger.
        open_mirror: Gives access to the groups; an unusable connection is a warning, too.

    Returns:
        Whether the group now has the position.
    """
    if not settings.watch.mirror_group:
        return False
    try:
        view = ledger.plan_view(settings.pipeline, request, settings.batch.target)
        open_mirror().store(group_of(settings.pipeline), _offsets(view))
    except IngestError as error:
        _log.warning("The position was not copied to consumer group %s: %s", group_of(settings.pipeline), error)
        return False
    return True


def _offsets(view: PlanView) -> Mapping[TopicPartition, int]:
    retired = retired_topics(view)
    return {p.topic_partition: p.committed_offset for p in view.positions if p.topic not in retired}
