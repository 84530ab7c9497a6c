"""Settings and rights of a Kafka connection, each wrong once: every part that asks Kafka tells it, soon and by name."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kafka_ingest.draft.topic import DraftRequest, draft_of_topic
from kafka_ingest.errors import BrokerUnavailable, ConfigError, IngestError
from kafka_ingest.kafka.client import client_config
from kafka_ingest.kafka.log import KafkaGroupMirror, KafkaLog
from kafka_ingest.kafka.refusals import token_fault
from kafka_ingest.kafka.sample import TopicSampler, Window
from kafka_ingest.protocol.position import TopicPartition
from kafka_ingest.protocol.staging import Split
from kafka_ingest.settings import IsolationLevel, TopicSelection
from sandbox.postgres import PostgresServer
from spark_jobs.reader import KafkaRangeReader
from tests.certificates import Authority
from tests.kafka_worlds import CONNECTION, TOPIC, KafkaWorld, extra_of, token_login
from tests.secured_broker import CLIENTS, LOGINS, SecuredBroker
from tests.services import fresh_database
from tests.token_issuer import TokenIssuer, token_issuer

COMMITTED = IsolationLevel.READ_COMMITTED
#: What the product promises, and how much longer this busy machine may take.
SECONDS, BUSY = 15, 3

PARTS: dict[str, Callable[[KafkaWorld], None]] = {
    "plan": KafkaWorld.plan,
    "preflight": KafkaWorld.preflight,
    "driver": KafkaWorld.drive,
    "executor": KafkaWorld.read,
}
EVERY = frozenset(PARTS)
#: Who may describe a topic gets its identity.
WHERE_RECORDS_ARE_READ = EVERY - {"driver"}

LOGIN = "correct sasl.username and sasl.password"
GRANT = "kafka-acls.sh --bootstrap-server BROKER --add --allow-principal User:NAME --operation Read --topic orders"
CLIENT = "correct sasl.oauthbearer.client.id and sasl.oauthbearer.client.secret"
ENDPOINT = "correct sasl.oauthbearer.token.endpoint.url"
CLOCK = "set the clock of this machine"


@dataclass(frozen=True)
class Row:
    """One way to get a connection wrong.

    Attributes:
        what: What is wrong.
        listener: Listener of the broker.
        protocol: ``security.protocol`` of the connection.
        words: What each message must say.
        settings: What else is in the connection; ``_`` stands for ``.``.
        client: Client of the issuer, where it is another one.
        files: Settings that name a certificate or key.
        parts: Who is refused; the others work.
    """

    what: str
    listener: str
    protocol: str
    words: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    client: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    parts: frozenset[str] = EVERY

    def extra(self, broker: SecuredBroker) -> dict[str, str]:
        """Return the extra of the connection."""
        files = {name: broker.file(file) for name, file in self.files.items()}
        login = token_login(broker.issuer, self.client) if self.client else {}
        return extra_of(broker, self.listener, self.protocol) | login | files | dict(self.settings)


def speaks(protocol: str) -> tuple[str, ...]:
    return (f"set security.protocol to {protocol}, or correct the port in bootstrap.servers",)


def secret(value: str) -> dict[str, str]:
    return {"sasl.oauthbearer.client.secret": value}


SCRAM = {"sasl.mechanism": "SCRAM-SHA-512"}
STRANGER = {"ssl.certificate.location": "stranger.crt", "ssl.key.location": "stranger.key"}
FOREIGN = {"ssl.ca.location": "foreign-ca.crt"}
NO_READ = {"sasl.username": "noread", "sasl.password": LOGINS["noread"]}
NOTHING = {"sasl.username": "nothing", "sasl.password": LOGINS["nothing"]}

ROWS = (
    Row("wrong password", "SASLP", "SASL_PLAINTEXT", (LOGIN,), {"sasl.password": "wrong"}),
    Row("unknown user", "SASLS", "SASL_SSL", (LOGIN,), {"sasl.username": "nobody"}),
    Row("wrong password of SCRAM", "SASLS", "SASL_SSL", (LOGIN,), {**SCRAM, "sasl.password": "wrong"}),
    Row("unknown user of SCRAM", "SASLP", "SASL_PLAINTEXT", (LOGIN,), {**SCRAM, "sasl.username": "nobody"}),
    Row(
        "mechanism not offered",
        "SASLP",
        "SASL_PLAINTEXT",
        ("set sasl.mechanism", "PLAIN,SCRAM-SHA-512"),
        {"sasl.mechanism": "SCRAM-SHA-256"},
    ),
    Row(
        "token for a listener of passwords",
        "SASLS",
        "SASL_SSL",
        ("set sasl.mechanism",),
        client="loader-client",
        files={"https.ca.location": "ca.crt"},
    ),
    Row("plaintext against SASL", "SASLP", "PLAINTEXT", speaks("SASL_PLAINTEXT")),
    Row("plaintext against SASL and TLS", "SASLS", "PLAINTEXT", speaks("SASL_SSL")),
    Row("plaintext against TLS", "TLS", "PLAINTEXT", speaks("SSL")),
    Row("no TLS against SASL and TLS", "SASLS", "SASL_PLAINTEXT", speaks("SASL_SSL")),
    Row("TLS against plaintext", "PLAINTEXT", "SSL", speaks("PLAINTEXT")),
    Row("TLS against SASL without", "SASLP", "SASL_SSL", speaks("SASL_PLAINTEXT")),
    Row("no login against SASL", "SASLS", "SSL", speaks("SASL_SSL")),
    Row("login against none", "PLAINTEXT", "SASL_PLAINTEXT", ("set security.protocol to PLAINTEXT or SSL",)),
    Row(
        "unknown CA", "TLS", "SSL", ("unable to get local issuer", "set ssl.ca.location (or ssl.ca.pem)"), files=FOREIGN
    ),
    Row("expired certificate", "EXPIRED", "SSL", ("expired", "renew the broker's certificate")),
    Row("wrong host name", "BADHOST", "SSL", ("mismatch", "name the broker in bootstrap.servers")),
    Row("no client certificate", "MTLS", "SSL", ("set ssl.certificate.location and ssl.key.location",)),
    Row(
        "foreign client certificate",
        "MTLS",
        "SSL",
        ("set ssl.certificate.location and ssl.key.location",),
        files=STRANGER,
    ),
    Row("no file", "TLS", "SSL", ("ssl.ca.location",), {"ssl.ca.location": "/not/on/this/machine.pem"}),
    Row("wrong client secret", "OAUTH", "SASL_SSL", (CLIENT, "401"), secret("wrong")),
    Row("unknown client", "OAUTH", "SASL_SSL", (CLIENT, "401"), client="nobody"),
    Row(
        "scope that the issuer refuses",
        "OAUTH",
        "SASL_SSL",
        ("correct sasl.oauthbearer.scope",),
        {"sasl.oauthbearer.scope": "all"},
    ),
    Row(
        "unknown CA of the issuer",
        "OAUTH",
        "SASL_SSL",
        ("set https.ca.location",),
        files={"https.ca.location": "foreign-ca.crt"},
    ),
    Row("token of the future", "OAUTH", "SASL_SSL", ("invalid_token", CLOCK), client="early-client"),
    Row("token that has run out", "OAUTH", "SASL_SSL", (CLOCK,), client="late-client"),
    Row(
        "token for somebody else",
        "OAUTH",
        "SASL_SSL",
        ("invalid_token", ENDPOINT, "audience"),
        client="elsewhere-client",
    ),
    Row("no right", "SASLP", "SASL_PLAINTEXT", (GRANT, CONNECTION), NOTHING),
    Row("no right of a token's owner", "OAUTH", "SASL_SSL", (GRANT, CONNECTION), client="nothing-client"),
    Row("Describe without Read", "SASLP", "SASL_PLAINTEXT", ("READ", GRANT), NO_READ, parts=WHERE_RECORDS_ARE_READ),
)


@dataclass(frozen=True)
class Outcome:
    """How a part ended: its error, or none, after so many seconds."""

    error: IngestError | None
    seconds: float


@pytest.fixture(scope="module")
def database(postgres_server: PostgresServer) -> Iterator[Mapping[str, Any]]:
    with fresh_database(postgres_server) as params:
        yield params


@pytest.fixture(scope="module")
def outcomes(secured: SecuredBroker, database: Mapping[str, Any]) -> Iterator[dict[tuple[str, str], Future[Outcome]]]:
    """Every part with every row, all begun: most of the time they wait."""
    with ThreadPoolExecutor(12) as pool:
        yield {
            (row.what, part): pool.submit(_outcome, part, KafkaWorld(row.extra(secured), database))
            for row in ROWS
            for part in PARTS
        }


def _outcome(part: str, world: KafkaWorld) -> Outcome:
    begun = time.monotonic()
    error: IngestError | None = None
    try:
        PARTS[part](world)
    except IngestError as refused:
        error = refused
    return Outcome(error, time.monotonic() - begun)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.what)
def test_what_is_wrong_is_told_by_every_part_in_time_with_its_name_and_without_a_retry(
    row: Row, part: str, outcomes: Mapping[tuple[str, str], Future[Outcome]]
) -> None:
    outcome = outcomes[row.what, part].result(SECONDS * BUSY * 2)
    assert (outcome.error is not None) == (part in row.parts)
    if outcome.error is None:
        return
    said = str(outcome.error)
    assert [word for word in row.words if word not in said] == [], said
    assert not any(value in said for key, value in row.settings.items() if key.endswith(("password", "secret")))
    assert part == "preflight" or isinstance(outcome.error, ConfigError)
    assert outcome.seconds < SECONDS * BUSY


@pytest.mark.parametrize("login", [NO_READ, NOTHING], ids=["Describe without Read", "no right"])
def test_records_that_may_not_be_read_have_no_size_and_are_no_fault(
    secured: SecuredBroker, database: Mapping[str, Any], login: dict[str, str]
) -> None:
    world = KafkaWorld(extra_of(secured, "SASLP", "SASL_PLAINTEXT") | login, database)
    assert world.mean_offset_bytes() is None


def config_of(extra: Mapping[str, str]) -> dict[str, str]:
    return client_config(extra, COMMITTED, client_id="test", connection=CONNECTION)


def test_a_file_that_another_machine_lacks_is_told_with_its_setting_and_that_machine(
    secured: SecuredBroker, tmp_path: Path
) -> None:
    """The planner had the file, and the driver or an executor has not."""
    authority = tmp_path / "ca.crt"
    authority.write_bytes(Path(secured.file("ca.crt")).read_bytes())
    config = config_of(extra_of(secured, "TLS", "SSL") | {"ssl.ca.location": str(authority)})
    authority.unlink()
    for make in (KafkaLog, KafkaRangeReader):
        with pytest.raises(ConfigError, match=f"make no Kafka client on {socket.gethostname()}") as caught:
            make(config)
        assert "ssl.ca.location" in caught.value.found


@pytest.fixture
def issuer(tmp_path: Path) -> Iterator[TokenIssuer]:
    """An issuer of the test's own; ``ca.crt`` is in the test's folder."""
    Authority(tmp_path, "ca").issue("server")
    with token_issuer(CLIENTS, certificate=tmp_path / "server.pem") as issuer:
        yield issuer


@pytest.mark.parametrize(
    ("answer", "remedy", "is_outage"),
    [
        ((503, b"out of order"), "wait for the issuer", True),
        ((429, b"too many"), "wait for the issuer", True),
        (None, "check that the issuer of tokens runs", True),
        ((403, b"no"), CLIENT, False),
        ((400, b'{"error": "unauthorized_client"}'), CLIENT, False),
        ((404, b"no such page"), ENDPOINT, False),
        ((200, b"<html>Please log in</html>"), ENDPOINT, False),
        ((200, b'{"access_token": "opaque"}'), ENDPOINT, False),
    ],
)
def test_what_an_issuer_answers_tells_an_outage_from_a_setting(
    issuer: TokenIssuer, tmp_path: Path, answer: tuple[int, bytes] | None, remedy: str, *, is_outage: bool
) -> None:
    issuer.answer, issuer.is_silent = answer, answer is None
    reason = token_fault({**token_login(issuer, "loader-client"), "https.ca.location": str(tmp_path / "ca.crt")})
    assert reason is not None
    assert (reason.remedy.startswith(remedy), reason.is_outage) == (True, is_outage)
    assert CLIENTS["loader-client"].secret not in reason.found


def test_looking_at_the_settings_of_tokens_asks_nobody_for_one(issuer: TokenIssuer, tmp_path: Path) -> None:
    """Each part looks at them, and an issuer that hangs would hold each of them for 20 seconds."""
    login = {**token_login(issuer, "loader-client"), "https.ca.location": str(tmp_path / "ca.crt")}
    config_of({"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SASL_SSL", **login})
    assert issuer.requests == {}


def test_a_group_that_may_not_be_written_is_told_with_the_command_that_grants_it(secured: SecuredBroker) -> None:
    config = config_of(extra_of(secured, "SASLS", "SASL_SSL"))
    with pytest.raises(ConfigError) as caught:
        KafkaGroupMirror(config).store("kafka_ingest.orders", {TopicPartition(TOPIC, 0): 1})
    assert "--operation Read --group kafka_ingest.orders" in caught.value.next_command
    assert CONNECTION in caught.value.next_command


@pytest.mark.parametrize(
    ("make", "ask"),
    [
        (lambda config: KafkaLog(config, timeout_seconds=3), lambda log: log.identity([TOPIC])),
        (
            lambda config: KafkaRangeReader(config, no_progress_timeout_seconds=3),
            lambda reader: list(reader.read(Split(0, TOPIC, 0, 0, 0, 1))),
        ),
    ],
    ids=["planner and driver", "executor"],
)
def test_an_issuer_that_is_away_is_an_outage_with_the_name_of_its_setting(
    secured: SecuredBroker, make: Callable[[Mapping[str, str]], Any], ask: Callable[[Any], object]
) -> None:
    away = {"sasl.oauthbearer.token.endpoint.url": "https://127.0.0.1:1/token"}
    with (
        make(config_of(extra_of(secured, "OAUTH", "SASL_SSL") | away)) as client,
        pytest.raises(BrokerUnavailable) as caught,
    ):
        ask(client)
    assert "sasl.oauthbearer.token.endpoint.url" in caught.value.next_command
    assert "the task tries again" in caught.value.next_command


def test_a_draft_without_the_right_to_read_names_the_right(secured: SecuredBroker) -> None:
    config = config_of(extra_of(secured, "SASLP", "SASL_PLAINTEXT") | NO_READ)
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
    config = config_of({"bootstrap.servers": "127.0.0.1:1"})
    with pytest.raises(BrokerUnavailable):
        TopicSampler(config, "orders", lambda _: None).read([[Window(0, 0, 10, 10)]])


def test_a_listener_that_is_not_there_is_an_outage() -> None:
    config = config_of({"bootstrap.servers": "127.0.0.1:1"})
    with KafkaLog(config, timeout_seconds=7) as log, pytest.raises(BrokerUnavailable) as caught:
        log.snapshot(TopicSelection(names=(TOPIC,)), COMMITTED)
    assert "security.protocol" in caught.value.next_command
    assert "shop_kafka" in caught.value.next_command
