"""Sharing the limit of offsets of one run over the partitions that have a backlog."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_ingest.core.offsets import TopicPartition
from kafka_ingest.core.settings import OffsetLimit


def share_limit(backlog_offsets: Mapping[TopicPartition, int], limit: OffsetLimit) -> dict[TopicPartition, int]:
    """Gives each partition its allowance: at most its backlog, at most the limits, and nobody starves.

    Every partition may take the same number of offsets; what partitions with a smaller backlog leave over goes to the
    others (max-min fairness). So small partitions are complete after every run, however large a backlog beside them.
    When there are more partitions than offsets to give, the largest backlogs go first.

    Args:
        backlog_offsets: Offsets waiting in each partition; all positive.
        limit: Total and optional limit per partition.
    """
    cap = limit.per_partition_offsets
    wanted = {tp: min(backlog, cap) if cap else backlog for tp, backlog in backlog_offsets.items()}
    left = limit.total_offsets
    shares: dict[TopicPartition, int] = {}
    by_size = sorted((backlog, tp.topic, tp.partition, tp) for tp, backlog in wanted.items())
    for place, (backlog, _, _, tp) in enumerate(by_size):
        share = min(backlog, left // (len(by_size) - place))
        shares[tp] = share
        left -= share
    return shares
