"""Airflow's connections as values, and what is masked of them."""

from __future__ import annotations

import json
from unittest.mock import create_autospec

import airflow
import pytest
from airflow.sdk import Connection
from airflow.sdk.log import mask_secret

from kafka_ingest.connections import ConnectionValues, postgres_params_of
from kafka_ingest.errors import ConfigError
from kafka_ingest.operators import lookup
from kafka_ingest.spark.master import spark_master_of

PASSWORD = 'p"a\\s;s@w/o%r$d x'


@pytest.fixture
def masked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    seen: list[str] = []
    monkeypatch.setattr(lookup, "mask_secret", create_autospec(mask_secret, side_effect=seen.extend))
    return seen


def test_a_postgres_connection_becomes_parameters_unchanged(monkeypatch: pytest.MonkeyPatch, masked: list[str]) -> None:
    monkeypatch.setenv(
        "AIRFLOW_CONN_WAREHOUSE",
        Connection(
            conn_id="warehouse",
            conn_type="postgres",
            host="db",
            port=5433,
            login="loader",
            password=PASSWORD,
            schema="shop",
            extra='{"sslmode": "verify-full"}',
        ).get_uri(),
    )
    assert postgres_params_of(lookup.airflow_connection("warehouse", "postgres")) == {
        "host": "db",
        "port": "5433",
        "user": "loader",
        "password": PASSWORD,
        "dbname": "shop",
        "fallback_application_name": "warehouse",
        "sslmode": "verify-full",
    }
    assert PASSWORD in masked


def test_a_kafka_connection_is_its_extra(monkeypatch: pytest.MonkeyPatch, masked: list[str]) -> None:
    monkeypatch.setenv(
        "AIRFLOW_CONN_LOG",
        '{"conn_type": "kafka", "extra": {"bootstrap.servers": "b:9092", "sasl.password": "s3cret-of-kafka"}}',
    )
    assert lookup.airflow_connection("log", "kafka").extra == {
        "bootstrap.servers": "b:9092",
        "sasl.password": "s3cret-of-kafka",
    }
    assert masked == ["s3cret-of-kafka"]


@pytest.mark.skipif(
    airflow.__version__.startswith("3.1."), reason="Airflow 3.1 asks the supervisor of a task, which is not here"
)
def test_a_missing_connection_is_named_with_the_command_that_adds_it() -> None:
    with pytest.raises(ConfigError) as caught:
        lookup.airflow_connection("nowhere", "postgres")
    assert str(caught.value) == (
        "ConfigError: There is no Airflow connection nowhere\n"
        "  expected: a connection of type postgres\n"
        "  next: airflow connections add nowhere --conn-type postgres --conn-host HOST --conn-login USER "
        "--conn-password ... --conn-schema DATABASE, or set AIRFLOW_CONN_NOWHERE"
    )


def test_cluster_deploy_mode_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "AIRFLOW_CONN_SPARK_CLUSTER",
        '{"conn_type": "spark", "host": "spark://m", "port": 7077, "extra": {"deploy-mode": "cluster"}}',
    )
    with pytest.raises(ConfigError, match="deploy-mode cluster"):
        spark_master_of(lookup.airflow_connection("spark_cluster", "spark"))


def test_a_password_is_masked_in_every_spelling_that_a_log_can_show() -> None:
    secrets = lookup.secrets_of(ConnectionValues("c", "postgres", password=PASSWORD))
    assert secrets == [
        'p"a\\s;s@w/o%r$d x',  # as it is
        'p\\"a\\\\s;s@w/o%r$d x',  # in JSON, as the job's environment holds it
        'p"a\\\\s;s@w/o%r$d x',  # in a repr
        "p%22a%5Cs%3Bs%40w%2Fo%25r%24d%20x",  # in a URL
        "p%22a%5Cs%3Bs%40w/o%25r%24d%20x",  # in a URL whose writer lets the slash be
    ]


LINE = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8c/j"


def pem(what: str, lines: int) -> str:
    return f"-----BEGIN {what}-----\n" + f"{LINE}\n" * lines + f"-----END {what}-----\n"


def test_a_pem_key_is_masked_whole_in_a_few_texts(masked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    key = pem("PRIVATE KEY", 2)
    connection = {"conn_type": "kafka", "extra": {"bootstrap.servers": "b:9092", "ssl.key.pem": key}}
    monkeypatch.setenv("AIRFLOW_CONN_LOG", json.dumps(connection))
    lookup.airflow_connection("log", "kafka")
    assert masked == [
        f"{LINE}\n{LINE}",
        f"{LINE}\\n{LINE}",  # in JSON and in a repr
        f"{LINE}%0A{LINE}".replace("/", "%2F"),
        f"{LINE}%0A{LINE}",
    ]


def test_certificates_are_not_masked_so_that_mtls_costs_few_texts() -> None:
    bundle = pem("CERTIFICATE", 26) * 130
    assert len(bundle) > 220_000
    extra = {
        "ssl.ca.pem": bundle,
        "ssl.certificate.pem": pem("CERTIFICATE", 26),
        "ssl.key.pem": pem("ENCRYPTED PRIVATE KEY", 50),
        "ssl.key.password": PASSWORD,
    }
    secrets = lookup.secrets_of(ConnectionValues("c", "kafka", extra=extra))
    assert len(secrets) == 4 + 5
    assert not any("CERTIFICATE" in text for text in secrets)


def test_a_key_that_stands_beside_its_certificate_is_masked() -> None:
    both = pem("CERTIFICATE", 3) + pem("RSA PRIVATE KEY", 2)
    secrets = lookup.secrets_of(ConnectionValues("c", "kafka", extra={"ssl.certificate.pem": both}))
    assert secrets[0] == f"{LINE}\n{LINE}"
    assert len(secrets) == 4


def test_the_password_inside_a_jaas_line_is_masked_by_itself() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="app" password="in\\"side";'
    secrets = lookup.secrets_of(ConnectionValues("c", "kafka", extra={"sasl.jaas.config": jaas}))
    assert jaas in secrets
    assert 'in"side' in secrets


def test_places_and_names_are_not_masked() -> None:
    extra = {"bootstrap.servers": "b:9092", "ssl.key.location": "/etc/kafka/key.pem", "security.protocol": "SASL_SSL"}
    assert lookup.secrets_of(ConnectionValues("c", "kafka", login="app", extra=extra)) == []
