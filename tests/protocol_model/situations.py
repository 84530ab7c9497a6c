"""Which errors a schedule may see: each error class needs something that has happened."""

from __future__ import annotations

from enum import Enum, auto

from kafka_ingest import errors
from kafka_ingest.errors import IngestError


class Happened(Enum):
    """What a schedule has done so far, as far as it explains errors."""

    CHANGED = auto()
    CLUSTER_CHANGED = auto()
    COMMIT_ANSWER_LOST = auto()
    COMPACTED = auto()
    CONNECTION_LOST = auto()
    LEADER_LOST = auto()
    OTHER_PARAMETERS = auto()
    OTHER_VERSION = auto()
    RECORDS_DELETED = auto()
    RELOADED = auto()
    RESTORED = auto()
    SERVER_CRASHED = auto()
    TOPIC_DELETED = auto()
    TRUNCATED = auto()


H = Happened

#: Attempts at the same time are enough for these; the model always has them.
ALWAYS = {
    errors.BatchNotCommitted,
    errors.Busy,
    errors.Fenced,
    errors.LedgerMoved,
    errors.LockTimeout,
    errors.RetryLater,  # no sign of life of the newer claim
    errors.StagingLost,  # a newer claim dropped the staging tables
}

NEEDS: dict[type[IngestError], set[Happened]] = {
    # Two attempts hold the same claim after a restore, and their tasks have the same numbers: refused, never doubled.
    errors.AccountingMismatch: {H.RESTORED},
    errors.BatchOutstanding: {H.CHANGED},
    # No offsets for a time of a partition that the log no longer has, or that has no leader.
    errors.BrokerUnavailable: {H.CONNECTION_LOST, H.LEADER_LOST, H.TOPIC_DELETED},
    errors.ClusterChanged: {H.CLUSTER_CHANGED},
    errors.CommitDidNotHappen: {H.COMMIT_ANSWER_LOST, H.CONNECTION_LOST, H.RESTORED, H.SERVER_CRASHED},
    # Whoever asks for the fate of a COMMIT may find the batch locked, by a newer claim or a roll-back.
    errors.CommitStateUnknown: {H.COMMIT_ANSWER_LOST, H.CONNECTION_LOST, H.RESTORED, H.SERVER_CRASHED},
    # The ledger has no such batch; the log no longer reaches the end of a span.
    errors.ConfigError: {H.RESTORED, H.RELOADED},
    errors.DatabaseUnavailable: {H.CONNECTION_LOST, H.RESTORED, H.SERVER_CRASHED},
    errors.LeaderMissing: {H.LEADER_LOST},
    errors.LogTruncated: {H.TRUNCATED, H.TOPIC_DELETED},
    errors.OffsetsExpired: {H.RECORDS_DELETED},
    errors.PartitionMissing: {H.TOPIC_DELETED},
    errors.PartitionsFaulty: {H.CHANGED, H.LEADER_LOST, H.RECORDS_DELETED, H.RELOADED, H.TOPIC_DELETED, H.TRUNCATED},
    errors.ReloadWouldLose: {H.COMPACTED, H.TRUNCATED},
    errors.RequestChanged: {H.OTHER_PARAMETERS},
    errors.RollBackRefused: {H.CHANGED},
    errors.TopicMissing: {H.TOPIC_DELETED},
    errors.TopicRecreated: {H.TOPIC_DELETED},
    errors.VersionSkew: {H.OTHER_VERSION},
}


def is_explained(error: IngestError, happened: set[Happened]) -> bool:
    """Whether something that has happened explains the error."""
    cls = type(error)
    return cls in ALWAYS or bool(NEEDS.get(cls, set()) & happened)
