"""Sharing the limit of offsets of one run over the partitions that have a backlog."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from kafka_ingest.core.offsets import TopicPartition
from kafka_ingest.core.settings import OffsetLimit

_NEVER = datetime.min.replace(tzinfo=UTC)


def share_limit(
    backlog_offsets: Mapping[TopicPartition, int],
    limit: OffsetLimit,
    last_read: Mapping[TopicPartition, datetime | None],
) -> dict[TopicPartition, int]:
    """Give each partition its allowance: at most its backlog, at most the limits, and nobody starves.

    Every partition may take the same number of offsets; what partitions with a smaller backlog leave over goes to the
    others (max-min fairness). So small partitions are complete after every run, however large a backlog beside them.
    Where there are more partitions than offsets to give, those go first that have waited longest since they were read:
    whatever is written to the others, each has its turn after as many runs as it takes to give everybody one. Record
    times would not do for that order: producers choose them.

    Args:
        backlog_offsets: Offsets waiting in each partition; all positive.
        limit: Total and optional limit per partition.
        last_read: When each partition was last read, by one clock; missing or ``None``: never.
    """
    cap = limit.per_partition_offsets
    wanted = {tp: min(backlog, cap) if cap else backlog for tp, backlog in backlog_offsets.items()}
    waiting = sorted(wanted, key=lambda tp: (last_read.get(tp) or _NEVER, tp))
    shares = dict.fromkeys(wanted, 0)
    left = limit.total_offsets
    by_size = sorted((wanted[tp], tp) for tp in waiting[: limit.total_offsets])
    for place, (backlog, tp) in enumerate(by_size):
        shares[tp] = min(backlog, left // (len(by_size) - place))
        left -= shares[tp]
    return shares
