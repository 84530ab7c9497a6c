"""Kafka with logins, certificates, tokens and rights, when all is right; and a load that is refused, as a whole."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from kafka_ingest.connections import connection_from_json, kafka_settings_of
from kafka_ingest.errors import STOP_AND_CALL, BrokerUnavailable
from kafka_ingest.kafka.log import KafkaGroupMirror, KafkaLog
from kafka_ingest.preflight.kafka import kafka_results
from kafka_ingest.protocol.position import TopicPartition
from kafka_ingest.protocol.staging import Split
from sandbox.airflow_settings import spark_connection
from sandbox.paths import CHECKOUT
from sandbox.spark import SparkCluster
from spark_jobs.reader import KafkaRangeReader
from tests.certificates import KEY_PASSWORD
from tests.deadlines import until
from tests.integration.pipeline_under_test import LOCAL_SPARK, PipelineUnderTest, set_connections
from tests.kafka_worlds import SETTINGS, TOPIC, KafkaWorld, extra_of, token_login
from tests.secured_broker import CLIENTS, LOGINS, SecuredBroker

PAGE = (CHECKOUT / "docs" / "secured-services.md").read_text(encoding="utf-8").partition("\n## PostgreSQL\n")[0]
DOCUMENTED = re.findall(r"```json\n(.*?)```", PAGE, re.S)
GRANTS = re.findall(r"(?m)^    kafka-acls\.sh .* --operation (\w+) --(topic|group) (\S+)$", PAGE)
OPERATIONS = {"Read": AclOperation.READ, "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS}
RESOURCES = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP}


def filled_in(broker: SecuredBroker, text: str) -> str:
    """Return a connection of the page with the host, the secrets and the certificates of the real broker."""
    document: dict[str, Any] = json.loads(text)
    extra = document["extra"]
    listener = "MTLS" if "sasl.mechanism" not in extra else "SASLS"
    listener = "OAUTH" if extra.get("sasl.mechanism") == "OAUTHBEARER" else listener
    key = "loader.enc.key" if "ssl.key.password" in extra else "loader.key"
    files = {"ssl.ca": "ca.crt", "https.ca": "ca.crt", "ssl.certificate": "loader.crt", "ssl.key": key}
    real = {
        "bootstrap.servers": broker.address(listener),
        "sasl.password": LOGINS["loader"],
        "sasl.oauthbearer.token.endpoint.url": broker.issuer.token_url,
        "sasl.oauthbearer.client.secret": CLIENTS["loader-client"].secret,
        "ssl.key.password": KEY_PASSWORD,
        **{f"{name}.location": broker.file(file) for name, file in files.items()},
        **{f"{name}.pem": Path(broker.file(file)).read_text(encoding="ascii") for name, file in files.items()},
    }
    document["extra"] = {name: real.get(name, value) for name, value in extra.items()}
    return json.dumps(document)


@pytest.mark.parametrize(
    "text", DOCUMENTED, ids=lambda text: "+".join(re.findall(r"\w+\.(?:pem|location)|[A-Z0-9-]{5,}", text)[:2])
)
def test_every_connection_of_the_page_reads_the_topic(
    secured: SecuredBroker, database: Mapping[str, Any], text: str
) -> None:
    connection = connection_from_json("shop_kafka", filled_in(secured, text))
    extra = {key: str(value) for key, value in kafka_settings_of(connection).items()}
    world = KafkaWorld(extra, database)
    for part in (world.plan, world.preflight, world.drive, world.sample, world.read):
        part()


def test_the_page_has_a_connection_of_every_kind() -> None:
    kinds = {json.loads(text)["extra"].get("sasl.mechanism", "certificate") for text in DOCUMENTED}
    assert kinds == {"SCRAM-SHA-512", "PLAIN", "OAUTHBEARER", "certificate"}


def test_the_rights_of_the_page_are_enough_and_nothing_on_the_cluster_is_needed(
    secured: SecuredBroker, database: Mapping[str, Any]
) -> None:
    assert len(GRANTS) == 3
    for operation, resource, name in GRANTS:
        secured.allow("granted", RESOURCES[resource], name, OPERATIONS[operation])
    login = {"sasl.username": "granted", "sasl.password": LOGINS["granted"]}
    world = KafkaWorld(extra_of(secured, "SASLS", "SASL_SSL") | login, database)
    for part in (world.plan, world.preflight, world.drive, world.sample, world.read):
        part()
    with world.world.kafka_probe() as probe:
        assert not any("could not be read" in result.found for result in kafka_results(SETTINGS, probe))
    until(lambda: _is_mirrored(world), "the first group of the cluster has a coordinator", 90)


def _is_mirrored(world: KafkaWorld) -> bool:
    try:
        KafkaGroupMirror(world.world.kafka_config()).store("kafka_ingest.orders", {TopicPartition(TOPIC, 0): 1})
    except BrokerUnavailable:
        return False
    return True


@pytest.mark.parametrize("listener", ["OAUTH", "REAUTH"])
def test_a_token_that_runs_out_while_a_topic_is_read_is_renewed(secured: SecuredBroker, listener: str) -> None:
    """The read goes on past the life of three tokens, and of the sessions of a broker that ends them."""
    name = f"long-{listener.lower()}"
    secured.create_topic(name, records=1)
    secured.allow("brief-client", ResourceType.TOPIC, name, AclOperation.READ)
    world = KafkaWorld(extra_of(secured, listener, "SASL_SSL") | token_login(secured.issuer, "brief-client"), {})
    config = world.world.kafka_config()
    with ThreadPoolExecutor(1) as pool, KafkaRangeReader(config) as reader, KafkaLog(config) as log:
        before = secured.issuer.issued["brief-client"]
        assert set(log.identity([name]).topic_ids) == {name}
        read = pool.submit(lambda: sum(batch.num_rows for batch in reader.read(Split(0, name, 0, 0, 0, 2))))
        # Two clients.
        until(lambda: secured.issuer.issued["brief-client"] >= before + 8, "three tokens of each have run out", 60)
        assert not read.done(), read.exception()
        secured.send(name, "last")
        assert read.result(60) == 2
        assert set(log.identity([name]).topic_ids) == {name}


@pytest.fixture
def planned(
    secured: SecuredBroker, database: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> Iterator[PipelineUnderTest]:
    """A pipeline whose run ``r1`` is planned, and whose password is wrong since then."""
    set_connections(monkeypatch, bootstrap=secured.bootstrap, database=database)
    monkeypatch.setenv("KAFKA_INGEST_PIPELINES", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", f"{CHECKOUT / 'plugins'}{os.pathsep}{CHECKOUT}")
    extra = extra_of(secured, "SASLS", "SASL_SSL")
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps({"conn_type": "kafka", "extra": extra}))
    pipeline = PipelineUnderTest("events", tmp_path, database, capfd)
    conf = {"spark.pyspark.python": sys.executable}
    pipeline.write(TOPIC, spark={"conf": conf, "executor_memory": "512m"})
    pipeline.plan_only("r1")
    wrong = {**extra, "sasl.password": "wrong"}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps({"conn_type": "kafka", "extra": wrong}))
    yield pipeline
    assert pipeline.query("SELECT state FROM kafka_ingest.batch") == [("planned",)]


@pytest.mark.parametrize("runner", ["in-process", pytest.param("spark", marks=pytest.mark.slow)])
def test_a_load_that_kafka_refuses_stops_at_once_and_spark_tries_no_task_again(
    planned: PipelineUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runner: str
) -> None:
    cluster = SparkCluster(tmp_path / "spark", workers=1, cores=2)
    if runner == "spark":  # a local master never tries a task again
        cluster.start()
    spark = spark_connection(cluster.master_url, cluster.secret) if runner == "spark" else LOCAL_SPARK
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", spark)
    try:
        code, _, said = planned.command("run", "events", "--run-id", "r1", "--runner", runner)
    finally:
        cluster.destroy()
    assert code == STOP_AND_CALL, said
    assert '"class": "ConfigError"' in said
    assert "correct sasl.username and sasl.password" in said
    assert "reading orders[0] at offset 0" in said
    assert "Lost task" not in said
