"""Every part of the product that asks Kafka, with the settings of one connection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kafka_ingest.connections import ConnectionValues
from kafka_ingest.errors import IngestError, fault_error
from kafka_ingest.full_world import FullWorld
from kafka_ingest.preflight.checks import Verdict, answered
from kafka_ingest.preflight.kafka import kafka_results
from kafka_ingest.protocol.plan import preview_plan
from kafka_ingest.protocol.staging import Split
from spark_jobs.reader import KafkaRangeReader
from tests.builders import REQUEST, batch_settings, offset_range, pipeline_settings
from tests.deadlines import until
from tests.secured_broker import CLIENTS, LOGINS, SecuredBroker
from tests.token_issuer import TokenIssuer

CONNECTION = "shop_kafka"
TOPIC, RECORDS = "orders", 3
SETTINGS = pipeline_settings(TOPIC, batch=replace(batch_settings(), kafka_connection=CONNECTION))


def extra_of(broker: SecuredBroker, listener: str, protocol: str, **settings: str) -> dict[str, str]:
    """Return the extra of a right connection to a listener, but for what the caller says; ``_`` stands for ``.``."""
    extra = {"bootstrap.servers": broker.address(listener), "security.protocol": protocol}
    if listener in ("OAUTH", "REAUTH"):
        extra |= {**token_login(broker.issuer, "loader-client"), "https.ca.location": broker.file("ca.crt")}
    elif protocol.startswith("SASL"):
        extra |= {"sasl.mechanism": "PLAIN", "sasl.username": "loader", "sasl.password": LOGINS["loader"]}
    if protocol.endswith("SSL"):
        extra |= {"ssl.ca.location": broker.file("ca.crt")}
    return extra | {name.replace("_", "."): value for name, value in settings.items()}


def token_login(issuer: TokenIssuer, client: str) -> dict[str, str]:
    """Return the settings of a client of the issuer."""
    known = CLIENTS.get(client)
    return {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": client,
        "sasl.oauthbearer.client.secret": known.secret if known else "secret",
        "sasl.oauthbearer.token.endpoint.url": issuer.token_url,
    }


@dataclass(frozen=True)
class KafkaWorld:
    """A pipeline that reads ``orders`` with one connection's settings, and each part of it that asks Kafka.

    Attributes:
        extra: The extra of its Kafka connection.
        database: Parameters of its database.
    """

    extra: Mapping[str, str]
    database: Mapping[str, Any]

    @property
    def world(self) -> FullWorld:
        return FullWorld(SETTINGS, self._connection)

    def plan(self) -> None:
        """Plan a run, which must have something to read."""
        preview = preview_plan(SETTINGS, REQUEST, self.world.plan_ports())
        if preview.choice.faults:
            raise fault_error(preview.choice.faults, SETTINGS.pipeline)
        assert preview.choice.backlog_offsets == RECORDS

    def preflight(self) -> None:
        """Check Kafka as ``preflight`` does."""
        with self.world.kafka_probe() as probe:
            results = list(answered("kafka", lambda: kafka_results(SETTINGS, probe)))
        failed = [f"{result.found}\n{result.fix}" for result in results if result.result is Verdict.FAIL]
        if failed:
            raise IngestError("\n".join(failed))

    def drive(self) -> None:
        """Ask for the log's identity, as the driver does before it publishes."""
        with self.world.log() as log:
            assert set(log.identity([TOPIC]).topic_ids) == {TOPIC}

    def sample(self) -> None:
        """Look at the size of records, one byte each, as the driver does before it cuts tasks."""
        until(lambda: self.mean_offset_bytes() == 1, "records are sampled")

    def mean_offset_bytes(self) -> int | None:
        """Return what one look at the size of records gives."""
        with self.world.log() as log:
            return log.mean_offset_bytes([replace(offset_range(0, 0, RECORDS), topic=TOPIC)])

    def read(self) -> None:
        """Read the topic as an executor does."""
        with KafkaRangeReader(self.world.kafka_config()) as reader:
            batches = list(reader.read(Split(0, TOPIC, 0, 0, 0, RECORDS)))
        assert sum(batch.num_rows for batch in batches) == RECORDS

    def _connection(self, conn_id: str, conn_type: str) -> ConnectionValues:
        if conn_type == "kafka":
            return ConnectionValues(CONNECTION, "kafka", extra=self.extra)
        found = self.database
        return ConnectionValues(
            conn_id, "postgres", found["host"], found["port"], found["user"], found["password"], found["dbname"]
        )
