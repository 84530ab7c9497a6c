"""A Kafka broker with logins, certificates and rights: one listener for each way to get the connection wrong."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from sandbox.kafka import KafkaBroker
from tests.certificates import Authority
from tests.token_issuer import AUDIENCE, TokenClient, TokenIssuer, token_issuer

#: PLAIN and SCRAM-SHA-512 alike; passwords with what quoting, URLs, JAAS lines and properties stumble over.
LOGINS = {
    "loader": "p\"a\\s;s@w/o%r$d x'é漢",
    "noread": "{noread}=#!&pass",
    "nothing": "nothing-password",
    "granted": "granted-password",
}
#: The issuer's clients, whose ids are the users.
CLIENTS = {
    "loader-client": TokenClient('c"l\\i;e@n/t%s:e$c+r e=t'),
    "brief-client": TokenClient("brief-secret", lives_seconds=5),
    "nothing-client": TokenClient("nothing-secret"),
    "early-client": TokenClient("early-secret", issued_seconds_ago=-600),
    "late-client": TokenClient("late-secret", issued_seconds_ago=600),
    "elsewhere-client": TokenClient("elsewhere-secret", audience="elsewhere"),
}
#: How long a session of the listener REAUTH lasts.
REAUTHENTICATION_MS = 2_000

#: Security protocol by listener. BADHOST shows a certificate for another name, EXPIRED one of last year; OAUTH and
#: REAUTH take tokens, the others with SASL passwords.
_LISTENERS = {
    "SASLP": "SASL_PLAINTEXT",
    "SASLS": "SASL_SSL",
    "OAUTH": "SASL_SSL",
    "REAUTH": "SASL_SSL",
    "TLS": "SSL",
    "MTLS": "SSL",
    "BADHOST": "SSL",
    "EXPIRED": "SSL",
}


def issue_certificates(folder: Path) -> None:
    """Write the certificates of brokers, issuer and clients: NAME.crt, .key, .enc.key and .pem."""
    authority = Authority(folder, "ca")
    authority.issue("server")
    authority.issue("badhost", host="elsewhere.example")
    authority.issue("expired", until=datetime.now(UTC) - timedelta(days=30))
    authority.issue("loader")
    Authority(folder, "foreign-ca").issue("stranger")


class SecuredBroker(KafkaBroker):
    """The broker; its listener without login belongs to the super user.

    Args:
        folder: State folder.
        certificates: Folder of its certificates, from :func:`issue_certificates`.
        issuer: Whose tokens the listeners with OAUTHBEARER take; it has to run while the broker starts.
    """

    def __init__(self, folder: Path, certificates: Path, issuer: TokenIssuer) -> None:
        super().__init__(folder, for_tests=True)
        self._certificates = certificates
        self.issuer = issuer
        # Since Kafka 4.0 a broker asks for keys only at the addresses that its JVM is told to trust.
        self._jvm_options = (f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={issuer.keys_url}",)

    def start(self) -> None:
        """Start it, with its users."""
        super().start()
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        how = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4_096)
        users = [UserScramCredentialUpsertion(user, how, word.encode()) for user, word in LOGINS.items()]
        for future in admin.alter_user_scram_credentials(users).values():
            future.result(30)

    def address(self, listener: str) -> str:
        """Return ``host:port`` of a listener."""
        return self.bootstrap if listener == "PLAINTEXT" else f"127.0.0.1:{self._port(f'-{listener.lower()}')}"

    def create_topic(self, name: str, *, records: int) -> None:
        """Make a topic with one partition and as many records, ``b"0"`` first."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
        self.send(name, *(str(number) for number in range(records)))

    def send(self, topic: str, *values: str) -> None:
        """Send records to partition 0 of a topic."""
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for value in values:
            producer.produce(topic, value=value, partition=0)
        assert producer.flush(30) == 0, "records were not delivered"

    def file(self, name: str) -> str:
        """Return the path of a certificate or key."""
        return str(self._certificates / name)

    def allow(self, user: str, kind: ResourceType, name: str, *operations: AclOperation) -> None:
        """Grant rights on a topic, a group or the cluster (``kafka-cluster``)."""
        literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
        bindings = [AclBinding(kind, name, literal, f"User:{user}", "*", what, allow) for what in operations]
        admin = AdminClient({"bootstrap.servers": self.bootstrap})  # held: without it the answers never come
        for future in admin.create_acls(bindings).values():
            future.result(30)

    def _properties(self) -> str:
        base = super()._properties()
        known = dict(line.split("=", 1) for line in base.splitlines())
        ports = {name: self._ports.port_for_start(f"{self.folder.name}-{name.lower()}") for name in _LISTENERS}
        addresses = [f"{name}://127.0.0.1:{port}" for name, port in ports.items()]
        protocols = ",".join(f"{name}:{protocol}" for name, protocol in _LISTENERS.items())
        settings = {
            "listeners": ",".join([known["listeners"], *addresses]),
            "advertised.listeners": ",".join([known["advertised.listeners"], *addresses]),
            "listener.security.protocol.map": f"{known['listener.security.protocol.map']},{protocols}",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.file("server.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.file("ca.crt"),
            "listener.name.mtls.ssl.client.auth": "required",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "early.start.listeners": "CONTROLLER",
            **{key: value for name in ("badhost", "expired") for key, value in self._own_certificate(name)},
            **{key: value for name in ("saslp", "sasls") for key, value in _passwords(f"listener.name.{name}")},
            **{key: value for name in ("oauth", "reauth") for key, value in self._tokens(f"listener.name.{name}")},
            "listener.name.reauth.oauthbearer.connections.max.reauth.ms": str(REAUTHENTICATION_MS),
        }
        return base + "".join(f"{key}={_escaped(value)}\n" for key, value in settings.items())

    def _own_certificate(self, name: str) -> Iterator[tuple[str, str]]:
        yield f"listener.name.{name}.ssl.keystore.type", "PEM"
        yield f"listener.name.{name}.ssl.keystore.location", self.file(f"{name}.pem")

    def _tokens(self, listener: str) -> Iterator[tuple[str, str]]:
        # Options for TLS mean that there has to be a name, too: the broker's own as a client, which it is not here.
        trusts = f'ssl.truststore.type="PEM" ssl.truststore.location="{self.file("ca.crt")}"'
        trusts += ' unsecuredLoginStringClaim_sub="nobody"'
        mechanism, bearer = f"{listener}.oauthbearer", "org.apache.kafka.common.security.oauthbearer.OAuthBearer"
        yield f"{listener}.sasl.enabled.mechanisms", "OAUTHBEARER"
        yield f"{mechanism}.sasl.jaas.config", f"{bearer}LoginModule required {trusts};"
        yield f"{mechanism}.sasl.server.callback.handler.class", f"{bearer}ValidatorCallbackHandler"
        yield f"{mechanism}.sasl.oauthbearer.jwks.endpoint.url", self.issuer.keys_url
        yield f"{mechanism}.sasl.oauthbearer.expected.issuer", self.issuer.url
        yield f"{mechanism}.sasl.oauthbearer.expected.audience", AUDIENCE
        yield f"{mechanism}.sasl.oauthbearer.clock.skew.seconds", "0"


@contextmanager
def secured_broker(folder: Path) -> Iterator[SecuredBroker]:
    """Run a broker and its issuer, with a topic ``orders`` of three records, in a folder that is deleted afterwards.

    ``loader``, its client of the issuer, the brief one and the owner of the certificate ``loader`` may read the topic
    and have no other right; ``noread`` may describe it.
    """
    certificates = folder / "certificates"
    issue_certificates(certificates)
    with token_issuer(CLIENTS, certificate=certificates / "server.pem") as issuer:
        broker = SecuredBroker(folder / "kafka", certificates, issuer)
        try:
            broker.start()
            broker.create_topic("orders", records=3)
            for user in ("loader", "loader-client", "brief-client", "CN=loader"):
                broker.allow(user, ResourceType.TOPIC, "orders", AclOperation.READ)
            broker.allow("noread", ResourceType.TOPIC, "orders", AclOperation.DESCRIBE)
            yield broker
        finally:
            broker.destroy()
            shutil.rmtree(folder, ignore_errors=True)


def _passwords(listener: str) -> Iterator[tuple[str, str]]:
    """Yield what makes a listener take the logins as PLAIN and as SCRAM-SHA-512."""
    module = "org.apache.kafka.common.security"
    words = {user: word.replace("\\", "\\\\").replace('"', '\\"') for user, word in LOGINS.items()}
    users = " ".join(f'user_{user}="{word}"' for user, word in words.items())
    yield f"{listener}.sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-512"
    yield f"{listener}.plain.sasl.jaas.config", f"{module}.plain.PlainLoginModule required {users};"
    yield f"{listener}.scram-sha-512.sasl.jaas.config", f"{module}.scram.ScramLoginModule required;"


def _escaped(value: str) -> str:
    """Return a value as a file of properties holds it: Latin 1, and every backslash escapes (java.util.Properties)."""
    return "".join(f"\\u{ord(sign):04x}" if sign == "\\" or ord(sign) > 126 else sign for sign in value)
