"""What every staging task gets besides its subranges; travels to the executors inside the task, never in arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kafka_ingest.core.settings import BatchSettings
from kafka_ingest.core.target_shape import TargetShape


@dataclass(frozen=True, slots=True)
class StageContext:
    """One attempt's settings.

    Attributes:
        batch_id: The batch.
        claim: The attempt's claim; with the batch it names the staging tables.
        settings: Frozen settings.
        target: The target's columns and CHECKs.
        kafka: librdkafka configuration, complete, with secrets.
        postgres: Keyword arguments for ``psycopg2.connect``, with secrets.
        no_progress_timeout_seconds: After this long without a sign of progress the broker counts as unavailable.
    """

    batch_id: str
    claim: int
    settings: BatchSettings
    target: TargetShape
    kafka: Mapping[str, str] = field(repr=False)
    postgres: Mapping[str, str] = field(repr=False)
    no_progress_timeout_seconds: int = 120
