"""What the Spark job gets through its environment: the one place where secrets may travel.

Arguments and Spark properties stand on the command line and in Spark's UI; the environment of a process is readable
for its own user only (proc(5), ``/proc/pid/environ``).
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from kafka_ingest.core.errors import ConfigError
from kafka_ingest.core.settings import HoldSettings, JobSettings

JOB_VARIABLE = "KAFKA_INGEST_JOB"
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


def environment_variables(environment: JobEnvironment, outcome_file: Path) -> dict[str, str]:
    """Gives the variables for the job's process."""
    return {
        JOB_VARIABLE: msgspec.json.encode(environment).decode(),
        OUTCOME_VARIABLE: str(outcome_file),
    }


def take_environment(variables: MutableMapping[str, str]) -> tuple[JobEnvironment, Path]:
    """Reads what :func:`environment_variables` gave and removes the secrets, so that no child process inherits them.

    Raises:
        ConfigError: The variables are missing or hold something else; the message does not repeat them.
    """
    text, outcome_file = variables.pop(JOB_VARIABLE, ""), variables.get(OUTCOME_VARIABLE, "")
    if not text or not outcome_file:
        raise ConfigError(
            f"The job was started without {JOB_VARIABLE} and {OUTCOME_VARIABLE}",
            next_command="start it by its DAG, or: python -m kafka_ingest run PIPELINE",
        )
    try:
        return msgspec.json.decode(text, type=JobEnvironment), Path(outcome_file)
    except msgspec.DecodeError as error:
        raise ConfigError(
            f"{JOB_VARIABLE} cannot be read",
            expected="what the package of the same version wrote",
            found=str(error),
            next_command="install the same version of kafka-ingest where DAGs run and where jobs are submitted",
        ) from None
