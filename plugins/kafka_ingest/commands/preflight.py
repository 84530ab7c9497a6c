"""Command ``preflight``: everything that pipelines rest on, in one table."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

from kafka_ingest.adapters.pipeline_files import find_pipeline, pipeline_paths, read_pipelines
from kafka_ingest.adapters.preflight_ports import preflight_ports
from kafka_ingest.commands.output import Output
from kafka_ingest.commands.wiring import connection
from kafka_ingest.core.errors import ConfigError
from kafka_ingest.core.exit_codes import OK, STOP_AND_CALL
from kafka_ingest.core.preflight import CheckResult, failed, is_ready
from kafka_ingest.core.settings import PipelineSettings
from kafka_ingest.steps.preflight import preflight

_COLUMNS = ("check", "pipeline", "result", "found", "fix")


def run_preflight(options: argparse.Namespace, output: Output) -> int:
    """Checks the named pipelines, or all; a broken pipeline file is a result like any other."""
    results = [(name, result) for name, checked in _checked(options, output) for result in checked]
    rows: list[dict[str, Any]] = [
        {
            "check": result.check,
            "pipeline": name,
            "result": result.result.value,
            "found": result.found,
            "fix": result.fix,
        }
        for name, result in results
    ]
    output.rows(rows, _COLUMNS, empty="no pipeline files found")
    return OK if is_ready(result for _, result in results) else STOP_AND_CALL


def _checked(options: argparse.Namespace, output: Output) -> Iterator[tuple[str, Sequence[CheckResult]]]:
    for name, found in _pipelines(options.pipelines):
        if isinstance(found, ConfigError):
            yield name, [failed("pipeline file", found)]
            continue
        output.note(f"checking {name}")
        yield name, preflight(found, preflight_ports(found, connection), submit_job=options.spark)


def _pipelines(names: Sequence[str]) -> Iterator[tuple[str, PipelineSettings | ConfigError]]:
    for name in dict.fromkeys(names):
        try:
            yield name, find_pipeline(name)
        except ConfigError as error:
            yield name, error
    if names:
        return
    loaded = read_pipelines(pipeline_paths())
    yield from ((settings.pipeline, settings) for settings in loaded.settings.values())
    yield from ((path.name, error) for path, error in loaded.errors.items())
