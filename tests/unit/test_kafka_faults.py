"""What a client's events mean: a refusal is final after some patience, and what came last counts."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection

from kafka_ingest.errors import BrokerUnavailable, ConfigError
from kafka_ingest.kafka import client, refusals
from kafka_ingest.kafka.client import CONNECTION, ClientEvents
from kafka_ingest.kafka.log import KafkaAdmin
from kafka_ingest.kafka.refusals import Reason

# As librdkafka 2.16 words them.
LOGIN = KafkaError(
    KafkaError._AUTHENTICATION,
    "sasl_plaintext://127.0.0.1:1/bootstrap: SASL authentication error: Authentication failed: Invalid username",
)
HANDSHAKE = KafkaError(KafkaError._SSL, "ssl://127.0.0.1:1/bootstrap: SSL handshake failed: wrong version number")
VERIFY = KafkaError(KafkaError._TRANSPORT, "ssl://127.0.0.1:1/bootstrap: SSL routines::certificate verify failed")
NO_TOKEN = KafkaError(KafkaError._AUTHENTICATION, "Failed to acquire SASL OAUTHBEARER token: invalid_client")
CLIENT = KafkaError(KafkaError._TRANSPORT, "ssl://127.0.0.1:1/1: tls alert certificate required: SSL alert number 116")
NO_SECOND_LOGIN = KafkaError(
    KafkaError._AUTHENTICATION,
    "sasl_ssl://127.0.0.1:1/1: SASL OAUTHBEARER mechanism handshake failed: Broker: Request not valid in current SASL "
    "state: broker's supported mechanisms: ",
)
LOST_LOGIN = KafkaError(
    KafkaError._AUTHENTICATION,
    "sasl_ssl://127.0.0.1:1/1: SASL OAUTHBEARER mechanism handshake failed: Local: Broker transport failure: broker's "
    "supported mechanisms: (n/a) (after 0ms in state DOWN)",
)
DOWN = KafkaError(KafkaError._TRANSPORT, "127.0.0.1:1/bootstrap: Connection refused")
ALL_DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(client, "time", clock)
    return clock


def events(*seen: KafkaError) -> ClientEvents:
    """Return what a client with these events knows; nothing listens where it is told to ask."""
    found = ClientEvents({"bootstrap.servers": "127.0.0.1:1", CONNECTION: "shop_kafka"})
    for error in seen:
        found(error)
    return found


@pytest.mark.usefixtures("clock")
def test_a_login_that_kafka_itself_answers_is_final_at_the_third_refusal() -> None:
    assert not events(LOGIN, ALL_DOWN, LOGIN).refused_for_good
    assert events(LOGIN, LOGIN, LOGIN).refused_for_good


@pytest.mark.usefixtures("clock")
def test_a_renewed_token_that_an_open_connection_does_not_take_is_no_refusal() -> None:
    seen = events()
    seen.forget()
    for _ in range(5):
        seen(NO_SECOND_LOGIN)
    assert not seen.refused_for_good
    assert isinstance(seen.unavailable(tried="reading", seconds=120), BrokerUnavailable)
    assert events(NO_SECOND_LOGIN, NO_SECOND_LOGIN, NO_SECOND_LOGIN).refused_for_good


def test_a_connection_that_is_lost_during_a_login_is_no_refusal(clock: Clock) -> None:
    seen = events(LOST_LOGIN, LOST_LOGIN, LOST_LOGIN)
    clock.now += 20
    assert not seen.refused_for_good
    assert isinstance(seen.unavailable(tried="planning", seconds=30), BrokerUnavailable)


@pytest.mark.parametrize("refusal", [HANDSHAKE, VERIFY, CLIENT])
def test_a_refusal_by_tls_is_final_only_when_it_has_lasted(clock: Clock, refusal: KafkaError) -> None:
    """A load balancer before a broker that starts gives three of them within a second."""
    seen = events(refusal, refusal, refusal, refusal)
    assert not seen.refused_for_good
    clock.now += 9
    assert not seen.refused_for_good
    clock.now += 2
    assert seen.refused_for_good


def test_an_answer_begins_the_patience_anew(clock: Clock) -> None:
    seen = events(HANDSHAKE, HANDSHAKE, HANDSHAKE)
    seen.forget()
    clock.now += 20
    for _ in range(3):
        seen(HANDSHAKE)
    assert not seen.refused_for_good


def test_a_broker_that_refused_before_it_went_down_is_down(clock: Clock) -> None:
    seen = events(HANDSHAKE, DOWN, ALL_DOWN)
    clock.now += 30
    error = seen.unavailable(tried="planning", seconds=30)
    assert isinstance(error, BrokerUnavailable)
    assert "Connection refused" in error.found
    assert "shop_kafka" in error.next_command


@pytest.mark.parametrize(
    ("refusal", "setting"),
    [
        (LOGIN, "correct sasl.username and sasl.password"),
        (VERIFY, "set ssl.ca.location (or ssl.ca.pem)"),
        (CLIENT, "set ssl.certificate.location and ssl.key.location"),
    ],
)
def test_a_refusal_names_its_settings_the_connection_and_the_command_that_looks_at_it(
    refusal: KafkaError, setting: str
) -> None:
    error = events(refusal).unavailable(tried="planning", seconds=30)
    assert isinstance(error, ConfigError)
    assert error.next_command.startswith(setting)
    assert "the Airflow connection shop_kafka" in error.what
    assert error.next_command.endswith('run "python -m kafka_ingest preflight PIPELINE"')


@pytest.mark.parametrize("is_outage", [False, True])
@pytest.mark.usefixtures("clock")
def test_a_token_that_does_not_come_is_final_where_its_issuer_refuses_the_client(
    monkeypatch: pytest.MonkeyPatch, *, is_outage: bool
) -> None:
    asked: list[object] = []

    def ask(config: object) -> Reason:
        asked.append(config)
        return Reason("the issuer's words", "mend this", is_outage=is_outage)

    monkeypatch.setattr(refusals, "token_fault", ask)
    seen = events(NO_TOKEN, ALL_DOWN)
    assert [seen.refused_for_good for _ in range(3)] == [not is_outage] * 3
    error = seen.unavailable(tried="planning", seconds=30)
    assert isinstance(error, BrokerUnavailable if is_outage else ConfigError)
    assert (error.found, error.next_command.startswith("mend this")) == ("the issuer's words", True)
    assert len(asked) == 1
    seen(NO_TOKEN)
    assert seen.refused_for_good != is_outage
    assert len(asked) == 2


def test_a_client_that_cannot_be_made_is_a_fault_of_configuration_without_secrets() -> None:
    config = {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SSL", "ssl.ca.location": "/not/here.pem"}
    with pytest.raises(ConfigError, match="make no Kafka client") as caught:
        KafkaAdmin({**config, "ssl.key.password": "hunter2", CONNECTION: "shop_kafka"}, timeout_seconds=1)
    assert "ssl.ca.location" in caught.value.found
    assert "hunter2" not in str(caught.value)


class OldBroker:
    """Answers as librdkafka does for a broker before 2.3, which tells no rights."""

    def __init__(self) -> None:
        self.asked: list[bool] = []

    def describe_topics(self, topics: TopicCollection, **options: Any) -> dict[str, Future[Any]]:
        self.asked.append(options["include_authorized_operations"])
        code = KafkaError._UNSUPPORTED_FEATURE if self.asked[-1] else KafkaError.UNKNOWN_TOPIC_OR_PART
        future: Future[Any] = Future()
        future.set_exception(KafkaException(KafkaError(code)))
        return {"orders": future}


def test_a_broker_that_tells_no_rights_is_asked_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_ingest.kafka.log.NEW_TOPIC_GRACE_SECONDS", 0.0)
    admin, broker = KafkaAdmin({"bootstrap.servers": "127.0.0.1:1"}, timeout_seconds=1), OldBroker()
    monkeypatch.setattr(admin, "_client", broker)
    assert admin.describe(["orders"]) == {}
    assert broker.asked[0]
    assert not any(broker.asked[1:])


class Redirecting(BaseHTTPRequestHandler):
    """Sends everybody to /elsewhere of the same server, and notes who comes there, with what."""

    authorized: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.send_response(302)
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        self.authorized.append(self.headers.get("Authorization", ""))
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        pass


def test_an_issuer_that_sends_elsewhere_gets_no_second_request_with_the_clients_secret() -> None:
    with HTTPServer(("127.0.0.1", 0), Redirecting) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        reason = refusals.token_fault(
            {
                "sasl.oauthbearer.method": "oidc",
                refusals.CLIENT_ID: "loader",
                refusals.CLIENT_SECRET: "s3cret",
                refusals.TOKEN_URL: f"http://127.0.0.1:{server.server_port}/token",
            }
        )
        server.shutdown()
    assert reason is not None
    assert reason.remedy == f"correct {refusals.TOKEN_URL}"
    assert Redirecting.authorized == []
