"""Gives the runners what their tasks need besides subranges."""

from __future__ import annotations

from kafka_ingest.adapters.job_environment import JobEnvironment
from kafka_ingest.adapters.postgres_target import PostgresTarget
from kafka_ingest.core.batch import Batch
from spark_jobs.stage_context import StageContext


def stage_context(batch: Batch, environment: JobEnvironment) -> StageContext:
    """Builds the context of a batch's attempt; asks the database for the target's columns and CHECKs.

    Raises:
        DatabaseUnavailable: It cannot be asked.
        TargetMismatch: The target is not there.
    """
    return StageContext(
        batch_id=batch.batch_id,
        claim=batch.claim,
        settings=batch.settings,
        target=PostgresTarget(environment.postgres).shape(batch.settings),
        kafka=environment.kafka,
        postgres=environment.postgres,
        no_progress_timeout_seconds=environment.job.no_progress_timeout_seconds,
    )
