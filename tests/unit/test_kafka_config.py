"""The settings that planner and reader share: what is fixed, what is refused, and that no secret is shown."""

from __future__ import annotations

import pytest

from kafka_ingest.adapters.kafka_config import client_config
from kafka_ingest.core.errors import ConfigError
from kafka_ingest.core.settings import IsolationLevel

SECRET = "hunter2-9f3"
BOOTSTRAP = {"bootstrap.servers": "broker:9092"}


def config_of(extra: dict[str, object], isolation: IsolationLevel = IsolationLevel.READ_COMMITTED) -> dict[str, str]:
    return client_config({**BOOTSTRAP, **extra}, isolation, client_id="orders")


def refusal_of(extra: dict[str, object]) -> str:
    with pytest.raises(ConfigError) as caught:
        client_config(extra, IsolationLevel.READ_COMMITTED, client_id="orders")
    return str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("enable.auto.commit", "false"),
        ("enable.auto.offset.store", "false"),
        ("auto.offset.reset", "error"),
        ("enable.partition.eof", "true"),
        ("allow.auto.create.topics", "false"),
        ("isolation.level", "read_committed"),
    ],
)
def test_what_exactly_once_rests_on_is_always_set(key: str, value: str) -> None:
    assert config_of({})[key] == value


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("enable.auto.commit", True),
        ("enable.auto.offset.store", "true"),
        ("auto.offset.reset", "earliest"),
        ("auto.offset.reset", "beginning"),
        ("enable.partition.eof", False),
        ("allow.auto.create.topics", "true"),
        ("isolation.level", "read_uncommitted"),
        ("queued.max.messages.kbytes", 65536),
        ("auto.commit.enable", "true"),
    ],
)
def test_a_connection_that_changes_it_is_refused(key: str, value: object) -> None:
    text = refusal_of({**BOOTSTRAP, key: value})
    assert str(value).lower() in text
    assert "expected" in text
    assert "edit the extra of the Airflow connection" in text


@pytest.mark.parametrize("value", [False, "false", "FALSE"])
def test_a_connection_that_says_the_same_is_accepted(value: object) -> None:
    assert config_of({"enable.auto.commit": value})["enable.auto.commit"] == "false"


def test_the_isolation_level_is_the_pipelines() -> None:
    """C01: the same level goes to the planner and to the reader."""
    assert config_of({}, IsolationLevel.READ_UNCOMMITTED)["isolation.level"] == "read_uncommitted"


def test_every_fault_is_told_at_once() -> None:
    text = refusal_of(
        {
            "error_cb": "my_module.on_error",
            "enable.auto.commit": "true",
            "no.such.key": "1",
            "another.one": "1",
            "security.protocol": "TELEPATHY",
            "session.timeout.ms": "soon",
        }
    )
    for part in (
        "bootstrap.servers",
        "error_cb",
        "enable.auto.commit",
        '"no.such.key"',
        '"another.one"',
        "TELEPATHY",
        '"session.timeout.ms"',
    ):
        assert part in text


@pytest.mark.parametrize("key", ["error_cb", "stats_cb", "oauth_cb", "log_cb", "throttle_cb", "on_commit"])
def test_python_callbacks_of_the_kafka_provider_are_refused(key: str) -> None:
    assert f"{key}: expected nothing, found a Python callback" in refusal_of({**BOOTSTRAP, key: "module.function"})


@pytest.mark.parametrize("servers", [None, "", "  "])
def test_bootstrap_servers_are_required(servers: object) -> None:
    assert "bootstrap.servers: expected host:port" in refusal_of({"bootstrap.servers": servers})


def test_the_old_name_of_bootstrap_servers_is_understood() -> None:
    config = client_config({"metadata.broker.list": "broker:9092"}, IsolationLevel.READ_COMMITTED, client_id="orders")
    assert config["bootstrap.servers"] == "broker:9092"


def test_keys_of_the_java_client_are_refused_by_name_with_librdkafkas_advice() -> None:
    text = refusal_of({**BOOTSTRAP, "ssl.truststore.location": "/etc/trust.jks"})
    assert "ssl.truststore.location:" in text
    assert "ssl.ca.location" in text


def test_a_missing_certificate_file_is_told_by_key() -> None:
    text = refusal_of({**BOOTSTRAP, "security.protocol": "SSL", "ssl.ca.location": "/does/not/exist.pem"})
    assert "ssl.ca.location:" in text


@pytest.mark.parametrize(
    "extra",
    [
        {"sasl.jaas.config": f'username="app" password="{SECRET}";'},
        {"security.protocol": "SSL", "ssl.key.pem": SECRET},
        {"sasl.password": SECRET, "security.protocol": SECRET},
        {"sasl.oauthbearer.client.secret": SECRET, "no.such.key": SECRET},
        {"my.token": SECRET},
    ],
)
def test_no_secret_is_in_the_message(extra: dict[str, object]) -> None:
    assert SECRET not in refusal_of({**BOOTSTRAP, **extra})


def test_a_connection_may_set_what_is_not_fixed() -> None:
    config = config_of({"group.id": "loaders", "client.id": "mine", "fetch.wait.max.ms": 200, "check.crcs": False})
    assert (config["group.id"], config["client.id"]) == ("loaders", "mine")
    assert (config["fetch.wait.max.ms"], config["check.crcs"]) == ("200", "false")


def test_without_a_client_id_in_the_connection_brokers_see_ours() -> None:
    assert config_of({})["client.id"] == "orders"


def test_all_values_are_texts_so_that_they_can_travel_in_the_environment() -> None:
    config = config_of({"session.timeout.ms": 9000, "check.crcs": True, "sasl.username": None})
    assert all(isinstance(value, str) for value in config.values())
    assert "sasl.username" not in config
