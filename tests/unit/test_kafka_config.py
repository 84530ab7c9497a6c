"""The settings that planner and reader share: what is fixed, what is refused, and that no secret is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_ingest.errors import ConfigError
from kafka_ingest.kafka.client import client_config, librdkafka_settings
from kafka_ingest.settings import IsolationLevel
from tests.certificates import Authority

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
        ("queued.max.messages.kbytes", 65536),
        ("auto.commit.enable", "true"),
        ("session.timeout.ms", 600_000),
        ("group.protocol", "consumer"),
        ("partition.assignment.strategy", "cooperative-sticky"),
    ],
)
def test_what_a_shared_connection_says_for_other_consumers_is_left_out(key: str, value: object) -> None:
    assert config_of({key: value}) == config_of({})


def test_what_is_left_out_is_noted_once(caplog: pytest.LogCaptureFixture) -> None:
    shared = {**BOOTSTRAP, "auto.offset.reset": "earliest", "session.timeout.ms": 6_000, "enable.auto.commit": "false"}
    with caplog.at_level("INFO", logger="kafka_ingest.kafka.client"):
        for _ in range(2):
            client_config(shared, IsolationLevel.READ_COMMITTED, client_id="orders", connection="shared_by_many")
    [note] = [record.getMessage() for record in caplog.records]
    assert "the Airflow connection shared_by_many" in note
    assert note.endswith(": auto.offset.reset, session.timeout.ms")


def test_another_isolation_level_is_refused() -> None:
    text = refusal_of({**BOOTSTRAP, "isolation.level": "read_uncommitted"})
    assert "isolation.level: expected read_committed" in text
    assert "found read_uncommitted" in text


def test_a_refusal_names_the_connection_and_the_command_that_looks_at_it() -> None:
    with pytest.raises(ConfigError, match="The Airflow connection shop_kafka cannot be used") as caught:
        client_config({}, IsolationLevel.READ_COMMITTED, client_id="orders", connection="shop_kafka")
    assert caught.value.next_command == (
        'edit the extra of the Airflow connection shop_kafka, then run "python -m kafka_ingest preflight PIPELINE"'
    )


def test_librdkafka_is_not_told_the_connections_id() -> None:
    config = client_config(BOOTSTRAP, IsolationLevel.READ_COMMITTED, client_id="orders", connection="shop_kafka")
    assert set(config) - set(librdkafka_settings(config)) == {"kafka_ingest.connection"}
    assert "kafka_ingest.connection" not in config_of({})


@pytest.mark.parametrize("servers", [["a:1", "b:2"], "a:1,b:2", ("a:1", "b:2")])
def test_bootstrap_servers_may_be_a_list(servers: object) -> None:
    assert config_of({"bootstrap.servers": servers})["bootstrap.servers"] == "a:1,b:2"


@pytest.mark.parametrize("missing", ["sasl.username", "sasl.password"])
def test_half_a_login_is_told_once_and_by_the_half_that_is_missing(missing: str) -> None:
    login = {"sasl.username": "app", "sasl.password": SECRET}
    del login[missing]
    text = refusal_of({**BOOTSTRAP, "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", **login})
    assert f"{missing}: expected one beside sasl.mechanism, found nothing" in text
    assert text.count("sasl.username") + text.count("sasl.password") == 1


def test_every_missing_part_of_a_login_with_tokens_is_told_at_once() -> None:
    tokens = {"security.protocol": "SASL_SSL", "sasl.mechanisms": "OAUTHBEARER"}
    assert "sasl.oauthbearer.method: expected oidc beside sasl.mechanism" in refusal_of({**BOOTSTRAP, **tokens})
    text = refusal_of({**BOOTSTRAP, **tokens, "sasl.oauthbearer.method": "oidc"})
    for key in ("client.id", "client.secret", "token.endpoint.url"):
        assert f"sasl.oauthbearer.{key}: expected one beside sasl.mechanism, found nothing" in text


@pytest.mark.parametrize(("between", "is_right"), [("\n", True), ("\\n", False), (" ", False)])
def test_a_certificate_in_one_line_is_told_as_that(tmp_path: Path, between: str, *, is_right: bool) -> None:
    """JSON keeps line breaks that are spelled ``\\n``: what loses them is a second quoting, or a copy from a form."""
    pem = Authority(tmp_path, "ca").location.read_text(encoding="ascii").replace("\n", between)
    extra: dict[str, object] = {"security.protocol": "SSL", "ssl.ca.pem": pem}
    if is_right:
        assert config_of(extra)["ssl.ca.pem"] == pem
    else:
        assert "ssl.ca.pem: expected PEM with its line breaks, which JSON spells \\n" in refusal_of(
            {**BOOTSTRAP, **extra}
        )


@pytest.mark.parametrize("password", [{}, {"ssl.key.password": SECRET}])
def test_a_key_that_its_password_does_not_open_is_told_as_that(tmp_path: Path, password: dict[str, str]) -> None:
    Authority(tmp_path, "ca").issue("app")
    files = {"ssl.certificate.location": str(tmp_path / "app.crt"), "ssl.key.location": str(tmp_path / "app.enc.key")}
    text = refusal_of({**BOOTSTRAP, "security.protocol": "SSL", **files, **password})
    assert "ssl.key.password: expected the password of the encrypted key, found another or none" in text


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
            "isolation.level": "read_uncommitted",
            "no.such.key": "1",
            "another.one": "1",
            "security.protocol": "TELEPATHY",
            "socket.timeout.ms": "soon",
        }
    )
    for part in (
        "bootstrap.servers",
        "error_cb",
        "isolation.level",
        '"no.such.key"',
        '"another.one"',
        "TELEPATHY",
        '"socket.timeout.ms"',
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


def test_one_name_of_a_fetch_size_is_used_so_that_a_sample_can_set_it() -> None:
    config = client_config({**BOOTSTRAP, "max.partition.fetch.bytes": 5}, IsolationLevel.READ_COMMITTED, client_id="x")
    assert config["fetch.message.max.bytes"] == "5"
    assert "max.partition.fetch.bytes" not in config


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
