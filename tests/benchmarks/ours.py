"""The product as a contender: the ``spark-submit`` of a batch that was planned before."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from kafka_ingest.cli.command import world_of
from kafka_ingest.pipeline_files.files import find_pipeline
from kafka_ingest.postgres.rows import settings_hash
from kafka_ingest.protocol.batch import Request
from kafka_ingest.protocol.plan import plan_batch
from kafka_ingest.settings import PipelineSettings
from kafka_ingest.spark.submission import read_phases, spark_submit_command
from sandbox.airflow_settings import (
    connection_variables,
    kafka_connection,
    postgres_connection,
    schema_registry_connection,
    spark_connection,
)
from tests.benchmarks.load import Load
from tests.benchmarks.measure import Command
from tests.benchmarks.workloads import WORKLOADS

_OUTCOME = "outcome.json"


def planned_load(load: Load, params: Mapping[str, Any], **sections: Any) -> Command:
    """Plans the whole topic as one batch; gives the command that loads it.

    Args:
        load: What to load; its table is made by the plan.
        params: Parameters of the database.
        sections: Sections of the pipeline file that differ from :func:`written_pipeline`.
    """
    folder = Path(load.folder)
    settings = written_pipeline(load, folder, **sections)
    with environment_of(load, params, folder):
        world, request = world_of(settings), Request("bench", "bench")
        batch = plan_batch(settings, request, world.plan_ports(), settings_hash=settings_hash(settings.batch))
        submission = world.submission(batch.batch_id, folder / _OUTCOME)
    return Command(spark_submit_command(submission), submission.env_vars)


def phases_of(load: Load) -> dict[str, Any]:
    """Return what the job said of its phases: seconds by the clock, task-seconds, and the rate of staging alone."""
    phases = read_phases(Path(load.folder) / _OUTCOME)
    if phases is None:
        raise ValueError("the job did not say how long its phases took")
    return {"phases": asdict(phases), "staging_per_second": load.records / phases.stage}


def written_pipeline(load: Load, folder: Path, **sections: Any) -> PipelineSettings:
    """Writes the pipeline file of a load and reads it back."""
    workload = WORKLOADS[load.workload]
    registry = {"registry": "schema_registry_default"} if load.registry_url else {}
    document = {
        "pipeline": "bench",
        "schedule": None,
        "kafka": {"topics": [load.topic], **registry},
        "first_run": "earliest",
        "limit": {"offsets_per_run": max(1, load.records)},
        "value": {
            "format": workload.format,
            "columns": [{"name": name, "type": kind} for name, kind in workload.columns.items()],
        },
        "target": {"table": f"public.{load.table}", "create_table": True},
        **sections,
    }
    (folder / "bench.yaml").write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    with _variables({"KAFKA_INGEST_PIPELINES": str(folder)}):
        return find_pipeline("bench")


@contextmanager
def environment_of(load: Load, params: Mapping[str, Any], folder: Path) -> Iterator[None]:
    """Sets the connections of the pipeline in this process, as Airflow or the command line would find them."""
    own = {**connections(load.bootstrap, params), **_registry_connection(load)}
    with _variables({**own, "KAFKA_INGEST_PIPELINES": str(folder)}):
        yield


def connections(bootstrap: str, params: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables with the three connections that pipelines use by default."""
    return connection_variables(
        {
            "kafka_default": kafka_connection(bootstrap),
            "postgres_default": postgres_connection(params),
            "spark_default": spark_connection("local[2]"),
        }
    )


def _registry_connection(load: Load) -> dict[str, str]:
    url = load.registry_url
    return connection_variables({"schema_registry_default": schema_registry_connection(url)} if url else {})


@contextmanager
def _variables(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
