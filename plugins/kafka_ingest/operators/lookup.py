"""What Airflow knows of the world: its connections, with their secrets masked, and the states of its runs."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook
from airflow.sdk.exceptions import AirflowRuntimeError
from airflow.sdk.log import mask_secret

from kafka_ingest.connections import ConnectionValues, connection_values, environment_variable
from kafka_ingest.errors import ConfigError
from kafka_ingest.protocol.batch import Request
from kafka_ingest.secrets import secret_values, spellings

if TYPE_CHECKING:
    from airflow.sdk.types import RuntimeTaskInstanceProtocol

log = logging.getLogger(__name__)

#: States in which a DAG run does nothing more (Airflow's ``DagRunState``, whose values equal these texts).
FINISHED_STATES = frozenset({"success", "failed"})


@dataclass(frozen=True, slots=True)
class AirflowRunStates:
    """Port ``RunStates``: asks Airflow's API server through the task instance.

    A run that Airflow does not know (started from the command line, or deleted) counts as not finished: its hold ends
    by itself when it gives no sign of life.
    """

    task_instance: RuntimeTaskInstanceProtocol

    def is_finished(self, request: Request) -> bool:
        """Whether the DAG run has ended."""
        try:
            return self.task_instance.get_dagrun_state(request.dag_id, request.run_id) in FINISHED_STATES
        except AirflowRuntimeError as fault:
            log.info("Airflow does not tell the state of %s: %s", request, fault)
            return False


# Airflow masks passwords and values of keys that look sensitive, but no JAAS lines or PEM keys (seen on Airflow 3.3.2),
# and no password in the spelling that JSON or a URL gives it. So every secret is registered here, in every spelling
# that a log line could show, before anyone else gets it.
#
# The fewer texts the better: Airflow compiles one pattern of all texts anew for each (``SecretsMasker.add_mask``,
# 3.3.2). So a private key is registered whole; ``secrets.scrubbed`` hides its lines one by one.

_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')

_EXAMPLES = {
    "kafka": """--conn-type kafka --conn-extra '{"bootstrap.servers": "HOST:9092"}'""",
    "postgres": "--conn-type postgres --conn-host HOST --conn-login USER --conn-password ... --conn-schema DATABASE",
    "spark": "--conn-type spark --conn-host 'local[*]'",
}


def airflow_connection(conn_id: str, conn_type: str) -> ConnectionValues:
    """Return an Airflow connection; its secrets are masked.

    Args:
        conn_id: Connection id.
        conn_type: ``kafka``, ``postgres`` or ``spark``.

    Raises:
        ConfigError: There is no such connection.
    """
    try:
        values = connection_values(_hook(conn_id, conn_type).get_connection(conn_id))
    except AirflowNotFoundException:
        raise ConfigError(
            f"There is no Airflow connection {conn_id}",
            expected=f"a connection of type {conn_type}",
            next_command=(
                f"airflow connections add {conn_id} {_EXAMPLES[conn_type]}, or set {environment_variable(conn_id)}"
            ),
        ) from None
    if secrets := secrets_of(values):
        # One call is one message to the task's supervisor.
        mask_secret([*secrets])
    return values


def _hook(conn_id: str, conn_type: str) -> BaseHook:
    """Return what looks a connection up: for Kafka as its provider does it, which only tasks that ask Kafka import."""
    if conn_type != "kafka":
        return BaseHook()
    from airflow.providers.apache.kafka.hooks.base import KafkaBaseHook

    return KafkaBaseHook(kafka_config_id=conn_id)  # type: ignore[no-untyped-call]


def secrets_of(values: ConnectionValues) -> list[str]:
    """List the texts to mask: the secrets, the passwords in JAAS lines, and each in all its spellings."""
    whole = [values.password or "", *secret_values(values.extra)]
    parts = [part for secret in whole if secret for part in (secret, *_quoted(secret))]
    return list(dict.fromkeys(spelling for part in parts for spelling in spellings(part)))


def _quoted(secret: str) -> Iterator[str]:
    """Yield what stands in quotes: the password inside a JAAS line may be shown alone."""
    yield from (re.sub(r"\\(.)", r"\1", quoted) for quoted in _QUOTED.findall(secret) if quoted)
