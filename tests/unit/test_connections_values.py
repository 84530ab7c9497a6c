"""Connections as plain values: both spellings of ``AIRFLOW_CONN_<ID>``, and what is refused."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest

from kafka_ingest.connections import (
    ConnectionValues,
    connection_from_environment,
    connection_from_uri,
    kafka_settings_of,
    postgres_params_of,
    registry_config_of,
)
from kafka_ingest.errors import ConfigError

PASSWORD = 'p"a\\s;s@w/o%r$d x:?#é'


def postgres(**changes: object) -> ConnectionValues:
    values: dict[str, object] = {"host": "db", "port": 5433, "login": "me", "password": PASSWORD, "schema": "shop"}
    return ConnectionValues("pg", "postgres", **(values | changes))  # type: ignore[arg-type]


def test_json_and_uri_spell_the_same_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    document = {"conn_type": "postgres", "host": "db", "port": 5433, "login": "me", "password": PASSWORD}
    monkeypatch.setenv("AIRFLOW_CONN_PG", json.dumps(document | {"schema": "shop", "extra": {"sslmode": "require"}}))
    from_json = connection_from_environment("pg")
    password = quote(PASSWORD, safe="")
    monkeypatch.setenv("AIRFLOW_CONN_PG", f"postgresql://me:{password}@db:5433/shop?sslmode=require")
    assert from_json == connection_from_environment("pg") == postgres(extra={"sslmode": "require"})


def test_an_extra_may_be_a_json_text(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"bootstrap.servers": "broker:9092"}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA", json.dumps({"conn_type": "kafka", "extra": json.dumps(extra)}))
    values = connection_from_environment("kafka")
    assert values is not None
    assert kafka_settings_of(values) == extra


def test_a_uri_may_carry_its_extra_as_one_json_text() -> None:
    extra = {"bootstrap.servers": "broker:9092", "sasl.password": PASSWORD}
    values = connection_from_uri("kafka", f"kafka://?__extra__={quote(json.dumps(extra), safe='')}")
    assert kafka_settings_of(values) == extra


def test_a_connection_that_is_not_set_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_NOWHERE", raising=False)
    assert connection_from_environment("nowhere") is None


@pytest.mark.parametrize("text", ["{broken", "[1]", '{"conn_type": "kafka", "extra": "[]"}', "host:9092", "a://b:x/c"])
def test_an_unreadable_connection_is_refused_without_repeating_it(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SECRET", text)
    with pytest.raises(ConfigError) as caught:
        connection_from_environment("secret")
    assert "AIRFLOW_CONN_SECRET" in str(caught.value)
    assert text not in str(caught.value)


def test_hosts_keep_their_case_and_brackets_go() -> None:
    assert connection_from_uri("a", "postgres://u@%2FVar%2Frun/db").host == "/Var/run"
    assert connection_from_uri("a", "postgres://u@[::1]:5432/db").host == "::1"


def test_neither_password_nor_extra_stand_in_the_repr() -> None:
    text = repr(postgres(extra={"sslpassword": "hidden"}))
    assert PASSWORD not in text
    assert repr(PASSWORD) not in text
    assert "hidden" not in text


def test_libpq_gets_fields_and_extra_as_text() -> None:
    assert postgres_params_of(postgres(extra={"sslmode": "verify-full", "keepalives_idle": 5})) == {
        "host": "db",
        "port": "5433",
        "user": "me",
        "password": PASSWORD,
        "dbname": "shop",
        "fallback_application_name": "pg",
        "sslmode": "verify-full",
        "keepalives_idle": "5",
    }


def test_every_fault_of_a_database_connection_is_told_at_once() -> None:
    extra = {"password": "x", "iam": True, "sslmode": ["require"], "application_name": "mine"}
    with pytest.raises(ConfigError) as caught:
        postgres_params_of(postgres(schema=None, extra=extra))
    assert caught.value.found == (
        "schema is missing; password stands in the extra; put it in the field password; "
        "iam is not a connection parameter that can be used here; sslmode must be a string or an integer; "
        "application_name is not a connection parameter that can be used here"
    )


CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN EC PRIVATE KEY-----\nMHcC\n-----END EC PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("extra", "fault"),
    [
        ({"sslrootcert": "/etc/ca.crt", "sslcert": CERTIFICATE, "sslkey": KEY}, ""),
        ({"sslkey": KEY.replace("EC ", "ENCRYPTED "), "sslcert": KEY + "\n" + CERTIFICATE}, ""),
        ({"sslkey": KEY.replace("\n", "\r\n"), "sslrootcert": "system"}, ""),
        ({"sslkey": CERTIFICATE}, "sslkey is no PEM text of PRIVATE KEY"),
        ({"sslcert": KEY}, "sslcert is no PEM text of CERTIFICATE"),
        ({"sslcrl": CERTIFICATE}, "sslcrl is no PEM text of X509 CRL"),
        ({"sslrootcert": CERTIFICATE.replace("\n", " ")}, "sslrootcert is no PEM text of CERTIFICATE"),
        ({"sslrootcert": CERTIFICATE.replace("\n", "\\n")}, "each of its lines on a line of its own"),
        ({"sslkey": KEY[:40]}, "sslkey is no PEM text of PRIVATE KEY"),
    ],
)
def test_a_text_that_is_no_certificate_or_key_is_told_without_showing_it(extra: dict[str, str], fault: str) -> None:
    if not fault:
        params = postgres_params_of(postgres(extra=extra))
        assert {name: params[name] for name in extra} == extra
        return
    with pytest.raises(ConfigError) as caught:
        postgres_params_of(postgres(extra=extra))
    assert fault in caught.value.found
    assert "MHcC" not in str(caught.value)


def test_a_connection_of_another_type_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be used") as caught:
        kafka_settings_of(postgres())
    assert caught.value.found == "it is of type postgres"


def test_a_kafka_connection_without_servers_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        kafka_settings_of(ConnectionValues("kafka", "kafka", extra={"security.protocol": "SSL"}))
    assert caught.value.found == "the extra has no bootstrap.servers"


@pytest.mark.parametrize(
    ("values", "url"),
    [
        ({"host": "https://registry:8081"}, "https://registry:8081"),
        ({"host": "https://registry/apis/ccompat/v7"}, "https://registry/apis/ccompat/v7"),
        ({"host": "registry"}, "http://registry"),
        ({"host": "registry", "port": 8081, "schema": "https"}, "https://registry:8081"),
        ({"host": "http://registry/path", "port": 8081}, "http://registry:8081/path"),
    ],
)
def test_a_registrys_url_is_its_host_or_made_of_the_fields(values: dict[str, object], url: str) -> None:
    found = registry_config_of(ConnectionValues("reg", "http", **values))  # type: ignore[arg-type]
    assert found == {"connection": "reg", "url": url}


def test_a_registrys_user_and_extra_are_kept_apart_so_that_each_is_hidden() -> None:
    extra = {"bearer.auth.token": "t", "ssl.ca.pem": "-----BEGIN CERTIFICATE-----"}
    values = ConnectionValues("reg", "http", host="registry", login="me", password=PASSWORD, extra=extra)
    assert registry_config_of(values) == {
        "connection": "reg",
        "url": "http://registry",
        "username": "me",
        "password": PASSWORD,
        **extra,
    }


def test_every_fault_of_a_registrys_connection_is_listed_and_no_value_of_it() -> None:
    extra = {"timeout": 3, "ssl.ca.pem": 7}
    values = ConnectionValues("reg", "http", host=f"ftp://me:{PASSWORD}@registry", extra=extra)
    with pytest.raises(ConfigError) as raised:
        registry_config_of(values)
    assert raised.value.found == (
        "its URL begins with ftp; its URL holds a user, whose fields are login and password; timeout is not a setting "
        "of a schema registry that can be used here; ssl.ca.pem must be a text"
    )


def test_a_registrys_connection_has_the_type_http() -> None:
    with pytest.raises(ConfigError, match="Connection pg cannot be used"):
        registry_config_of(postgres())
