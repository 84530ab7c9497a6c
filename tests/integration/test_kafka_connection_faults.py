"""Wrong settings of a Kafka connection, on a broker with logins and certificates: told as such, with the setting."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic, ResourceType

from kafka_ingest.draft.topic import DraftRequest, draft_of_topic
from kafka_ingest.errors import BrokerUnavailable, ConfigError
from kafka_ingest.kafka.client import client_config
from kafka_ingest.kafka.log import KafkaLog
from kafka_ingest.kafka.sample import TopicSampler, Window
from kafka_ingest.protocol.staging import Split
from kafka_ingest.settings import IsolationLevel, TopicSelection
from spark_jobs.reader import KafkaRangeReader
from tests.certificates import KEY_PASSWORD
from tests.secured_broker import LOGINS, SecuredBroker
from tests.services import services_of_one_test

COMMITTED = IsolationLevel.READ_COMMITTED
ORDERS = TopicSelection(names=("orders",))


@pytest.fixture(scope="module")
def broker() -> Iterator[SecuredBroker]:
    services = services_of_one_test()
    broker = SecuredBroker(services.folder / "kafka")
    broker.start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic("orders", 1, 1)]).values():
        future.result(30)
    broker.allow("loader", ResourceType.TOPIC, "orders", AclOperation.READ)
    broker.allow("noread", ResourceType.TOPIC, "orders", AclOperation.DESCRIBE)
    yield broker
    broker.destroy()
    services.remove()


def config_of(broker: SecuredBroker, listener: str, protocol: str, **settings: str) -> dict[str, str]:
    """Return settings that fit, but for what the caller says; ``_`` stands for ``.`` in names of settings."""
    address = broker.bootstrap if listener == "PLAINTEXT" else broker.address(listener)
    extra = {"bootstrap.servers": address, "security.protocol": protocol}
    if protocol.startswith("SASL"):
        extra |= {"sasl.mechanism": "PLAIN", "sasl.username": "loader", "sasl.password": LOGINS["loader"]}
    if protocol.endswith("SSL"):
        extra |= {"ssl.ca.location": broker.file("ca.crt")}
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return client_config(extra | given, COMMITTED, client_id="test", connection="shop_kafka")


def plan_fault(config: dict[str, str], seconds: float = 30) -> ConfigError:
    with KafkaLog(config, timeout_seconds=seconds) as log, pytest.raises(ConfigError) as caught:
        log.snapshot(ORDERS, COMMITTED)
    assert "shop_kafka" in str(caught.value)
    assert "python -m kafka_ingest preflight PIPELINE" in caught.value.next_command
    return caught.value


@pytest.mark.parametrize(
    ("listener", "protocol", "spoken"),
    [
        ("SASLP", "PLAINTEXT", "SASL_PLAINTEXT"),
        ("SASLS", "PLAINTEXT", "SASL_SSL"),
        ("TLS", "PLAINTEXT", "SSL"),
        ("SASLS", "SASL_PLAINTEXT", "SASL_SSL"),
        ("PLAINTEXT", "SSL", "PLAINTEXT"),
        ("SASLP", "SASL_SSL", "SASL_PLAINTEXT"),
        ("SASLS", "SSL", "SASL_SSL"),
    ],
)
def test_a_protocol_that_the_listener_does_not_speak_is_a_fault_of_configuration(
    broker: SecuredBroker, listener: str, protocol: str, spoken: str
) -> None:
    fault = plan_fault(config_of(broker, listener, protocol))
    assert fault.expected == f"security.protocol: {spoken}, which the listener speaks"
    assert fault.found == f"security.protocol: {protocol}"


def test_a_login_to_a_listener_without_logins_names_the_protocol(broker: SecuredBroker) -> None:
    fault = plan_fault(config_of(broker, "PLAINTEXT", "SASL_PLAINTEXT"))
    assert "security.protocol to PLAINTEXT or SSL" in fault.next_command


@pytest.mark.parametrize("stranger", [False, True])
def test_a_client_certificate_that_is_missing_or_foreign_names_its_settings(
    broker: SecuredBroker, *, stranger: bool
) -> None:
    files = {"ssl_certificate_location": broker.file("stranger.crt"), "ssl_key_location": broker.file("stranger.key")}
    fault = plan_fault(config_of(broker, "MTLS", "SSL", **(files if stranger else {})))
    assert "ssl.certificate.location and ssl.key.location" in fault.next_command


@pytest.mark.parametrize(
    ("listener", "authority", "reason", "remedy"),
    [
        ("BADHOST", "ca.crt", "mismatch", "ssl.endpoint.identification.algorithm"),
        ("EXPIRED", "ca.crt", "expired", "renew the broker's certificate"),
        ("TLS", "foreign-ca.crt", "issuer", "set ssl.ca.location (or ssl.ca.pem)"),
    ],
)
def test_three_reasons_to_refuse_a_brokers_certificate_are_told_apart(
    broker: SecuredBroker, listener: str, authority: str, reason: str, remedy: str
) -> None:
    fault = plan_fault(config_of(broker, listener, "SSL", ssl_ca_location=broker.file(authority)), seconds=5)
    assert reason in fault.found
    assert remedy in fault.next_command


@pytest.mark.parametrize(
    ("settings", "remedy"),
    [
        ({"sasl_password": "wrong"}, "correct sasl.username and sasl.password"),
        ({"sasl_mechanism": "SCRAM-SHA-512"}, "set sasl.mechanism"),
    ],
)
def test_a_refused_login_names_what_is_wrong_with_it(
    broker: SecuredBroker, settings: dict[str, str], remedy: str
) -> None:
    fault = plan_fault(config_of(broker, "SASLP", "SASL_PLAINTEXT", **settings))
    assert remedy in fault.next_command
    assert LOGINS["loader"] not in str(fault)


def test_the_reader_tells_the_same(broker: SecuredBroker) -> None:
    with (
        KafkaRangeReader(config_of(broker, "TLS", "PLAINTEXT")) as reader,
        pytest.raises(ConfigError, match="shop_kafka"),
    ):
        list(reader.read(Split(0, "orders", 0, 0, 0, 1)))


def test_right_settings_are_right(broker: SecuredBroker) -> None:
    key = {
        "ssl_certificate_location": broker.file("loader.crt"),
        "ssl_key_location": broker.file("loader.enc.key"),
        "ssl_key_password": KEY_PASSWORD,
    }
    broker.allow("CN=loader", ResourceType.TOPIC, "orders", AclOperation.READ)
    for config in (config_of(broker, "SASLS", "SASL_SSL"), config_of(broker, "MTLS", "SSL", **key)):
        with KafkaLog(config) as log:
            assert log.snapshot(ORDERS, COMMITTED).topics["orders"].may_read


def test_a_missing_right_to_read_is_known_before_anything_is_read(broker: SecuredBroker) -> None:
    login = {"sasl_username": "noread", "sasl_password": LOGINS["noread"]}
    with KafkaLog(config_of(broker, "SASLP", "SASL_PLAINTEXT", **login)) as log:
        assert log.snapshot(ORDERS, COMMITTED).topics["orders"].may_read is False


def test_a_draft_without_the_right_to_read_names_the_right(broker: SecuredBroker) -> None:
    login = {"sasl_username": "noread", "sasl_password": LOGINS["noread"]}
    config = config_of(broker, "SASLP", "SASL_PLAINTEXT", **login)
    request = DraftRequest("orders", "shop_kafka", "postgres_default", 10)
    with pytest.raises(ConfigError) as before:
        draft_of_topic(request, config, lambda _: None)
    with pytest.raises(ConfigError) as meanwhile:
        TopicSampler(config, "orders", lambda _: None).read([[Window(0, 0, 10, 10)]])
    for caught in (before, meanwhile):
        assert caught.value.expected == "the right READ"
        assert "--operation Read --topic orders" in caught.value.next_command


def test_a_sample_of_a_listener_that_has_gone_is_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_ingest.kafka.sample._QUIET_SECONDS", 1.0)
    config = client_config({"bootstrap.servers": "127.0.0.1:1"}, COMMITTED, client_id="test", connection="shop_kafka")
    with pytest.raises(BrokerUnavailable):
        TopicSampler(config, "orders", lambda _: None).read([[Window(0, 0, 10, 10)]])


def test_a_listener_that_is_not_there_is_an_outage() -> None:
    config = client_config({"bootstrap.servers": "127.0.0.1:1"}, COMMITTED, client_id="test", connection="shop_kafka")
    with KafkaLog(config, timeout_seconds=7) as log, pytest.raises(BrokerUnavailable) as caught:
        log.snapshot(ORDERS, COMMITTED)
    assert "security.protocol" in caught.value.next_command
    assert "shop_kafka" in caught.value.next_command
