"""Every pipeline of a deployment: those that make DAGs, and the faults of those that do not."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from kafka_ingest.adapters.pipeline_files import FOLDERS_VARIABLE, find_pipeline, pipeline_paths, read_pipelines
from kafka_ingest.core.errors import ConfigError
from kafka_ingest.core.settings import PipelineSettings


@dataclass(frozen=True, slots=True)
class PipelineCatalog:
    """Sound pipelines, and one error for each broken file and for folders that are not there."""

    pipelines: tuple[PipelineSettings, ...]
    errors: tuple[ConfigError, ...]


def read_catalog(folder: Path) -> PipelineCatalog:
    """Reads all pipeline files. What is broken or missing never hides what is sound.

    Args:
        folder: ``pipelines`` beside the DAG file; those of ``KAFKA_INGEST_PIPELINES`` are read as well.
    """
    try:
        paths, errors = pipeline_paths(folder), []
    except ConfigError as error:
        paths, errors = pipeline_paths(folder, environment={FOLDERS_VARIABLE: _folders_that_are_there()}), [error]
    loaded = read_pipelines(paths)
    return PipelineCatalog(tuple(loaded.settings.values()), (*errors, *loaded.errors.values()))


def one_pipeline(name: str, folder: Path) -> PipelineSettings:
    """Reads one pipeline, as a worker does that is about to run a task of it.

    Args:
        name: The pipeline.
        folder: As for :func:`read_catalog`.

    Raises:
        ConfigError: Its file is broken or gone.
    """
    try:
        return find_pipeline(name, folder)
    except ConfigError:
        # A missing folder of other pipelines must not fail this one.
        for pipeline in read_catalog(folder).pipelines:
            if pipeline.pipeline == name:
                return pipeline
        raise


def require_no_errors(catalog: PipelineCatalog) -> None:
    """Stops when a file is broken or a folder is missing.

    Raises:
        ConfigError: With every fault of every file, one a line.
    """
    if catalog.errors:
        raise ConfigError(
            "pipelines without a DAG: files have faults, or folders are missing",
            expected="files as docs/configuration.md describes them",
            found="\n".join(f"{error.what}\n{error.found}" for error in catalog.errors),
            next_command="correct the files, then: python -m kafka_ingest check-config",
        )


def _folders_that_are_there() -> str:
    named = os.environ.get(FOLDERS_VARIABLE, "").split(os.pathsep)
    return os.pathsep.join(text for text in named if text and Path(text).is_absolute() and Path(text).is_dir())
