"""What the Spark job gets from its submitter, secrets included: a file that the driver reads and deletes at once.

Arguments and Spark properties stand on the command line and in Spark's UI. Variables are inherited by the JVM, by its
Python workers and by whatever they start, can be read in ``/proc/pid/environ`` as long as any of them lives, and hold
128 KB at most (execve(2)). So the environment holds no more than the paths of the file and of the outcome.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from kafka_ingest.core.errors import ConfigError
from kafka_ingest.core.settings import HoldSettings, JobSettings

JOB_FILE_VARIABLE = "KAFKA_INGEST_JOB_FILE"
SPARK_SECRET_FILE_VARIABLE = "KAFKA_INGEST_SPARK_SECRET_FILE"  # noqa: S105 (a name)
OUTCOME_VARIABLE = "KAFKA_INGEST_OUTCOME_FILE"


@dataclass(frozen=True, slots=True)
class JobEnvironment:
    """Connections and settings of one submission.

    Attributes:
        kafka: librdkafka configuration, complete, with secrets.
        postgres: libpq parameters, with secrets.
        job: How the job is run.
        hold: Time-outs of the hold.
    """

    kafka: Mapping[str, str] = field(repr=False)
    postgres: Mapping[str, str] = field(repr=False)
    job: JobSettings
    hold: HoldSettings


def hand_over(environment: JobEnvironment, outcome_file: Path) -> dict[str, str]:
    """Write the job's file, mode 0600, beside its outcome file; give the variables that tell the job of both.

    Args:
        environment: What the job is to get.
        outcome_file: A path in a folder that only this user can enter (``adapters/job_folder.py``).
    """
    job_file = _secret_file(outcome_file.parent, "settings_", msgspec.json.encode(environment))
    return {JOB_FILE_VARIABLE: job_file, OUTCOME_VARIABLE: str(outcome_file)}


def take_environment(variables: Mapping[str, str]) -> tuple[JobEnvironment, Path]:
    """Read what :func:`hand_over` wrote, and delete it: it can be taken once.

    Raises:
        ConfigError: There is no such file, or it holds something else; the message does not repeat it.
    """
    job_file, outcome_file = variables.get(JOB_FILE_VARIABLE, ""), variables.get(OUTCOME_VARIABLE, "")
    if not job_file or not outcome_file:
        raise ConfigError(
            f"The job was started without {JOB_FILE_VARIABLE} and {OUTCOME_VARIABLE}",
            next_command="start it by its DAG, or: python -m kafka_ingest run PIPELINE",
        )
    try:
        return msgspec.json.decode(_taken(Path(job_file)), type=JobEnvironment), Path(outcome_file)
    except msgspec.DecodeError as error:
        raise ConfigError(
            f"{JOB_FILE_VARIABLE} cannot be read",
            expected="what the package of the same version wrote",
            found=str(error),
            next_command="install the same version of kafka-ingest where DAGs run and where jobs are submitted",
        ) from None


def hand_over_spark_secret(secret: str, folder: Path) -> dict[str, str]:
    """Write the secret that a Spark cluster asks for, as above; give the variable that tells the driver of it."""
    return {SPARK_SECRET_FILE_VARIABLE: _secret_file(folder, "spark_", secret.encode())} if secret else {}


def take_spark_secret(variables: Mapping[str, str]) -> str:
    """Read what :func:`hand_over_spark_secret` wrote, and delete it; empty where the cluster asks for none.

    Raises:
        ConfigError: The file is not there.
    """
    path = variables.get(SPARK_SECRET_FILE_VARIABLE, "")
    return _taken(Path(path)).decode() if path else ""


def _secret_file(folder: Path, prefix: str, content: bytes) -> str:
    handle, name = tempfile.mkstemp(dir=folder, prefix=prefix)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    return name


def _taken(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        path.unlink()
    except OSError as error:
        raise ConfigError(
            "The job cannot take the settings that its submitter wrote for it",
            expected="a file that nobody has read before",
            found=str(error),
            next_command="start it by its DAG, or: python -m kafka_ingest run PIPELINE",
        ) from None
    return content
