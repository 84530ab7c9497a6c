"""A Kafka broker with logins, certificates and rights: one listener for each way to get the connection wrong."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from sandbox.kafka import KafkaBroker
from tests.certificates import Authority

LOGINS = {"loader": "loader-password", "noread": "noread-password"}

#: Security protocol by listener. BADHOST shows a certificate for another name, EXPIRED one of last year.
_LISTENERS = {
    "SASLP": "SASL_PLAINTEXT",
    "SASLS": "SASL_SSL",
    "TLS": "SSL",
    "MTLS": "SSL",
    "BADHOST": "SSL",
    "EXPIRED": "SSL",
}


class SecuredBroker(KafkaBroker):
    """The broker; its listener without login belongs to the super user."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, for_tests=True)
        self.certificates = folder.parent / f"{folder.name}-certificates"

    def start(self) -> None:
        """Start it, with certificates of its own the first time."""
        if not self.certificates.exists():
            authority = Authority(self.certificates, "ca")
            authority.issue("server")
            authority.issue("badhost", host="elsewhere.example")
            authority.issue("expired", until=datetime.now(UTC) - timedelta(days=30))
            authority.issue("loader")
            Authority(self.certificates, "foreign-ca").issue("stranger")
        super().start()

    def address(self, listener: str) -> str:
        """Return ``host:port`` of a listener."""
        return f"127.0.0.1:{self._port(f'-{listener.lower()}')}"

    def file(self, name: str) -> str:
        """Return the path of a certificate or key."""
        return str(self.certificates / name)

    def allow(self, user: str, kind: ResourceType, name: str, *operations: AclOperation) -> None:
        """Grant rights on a topic or on the cluster (``kafka-cluster``)."""
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
        users = " ".join(f'user_{name}="{password}"' for name, password in LOGINS.items())
        login = f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
        protocols = ",".join(f"{name}:{protocol}" for name, protocol in _LISTENERS.items())
        settings = {
            "listeners": ",".join([known["listeners"], *addresses]),
            "advertised.listeners": ",".join([known["advertised.listeners"], *addresses]),
            "listener.security.protocol.map": f"{known['listener.security.protocol.map']},{protocols}",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.saslp.plain.sasl.jaas.config": login,
            "listener.name.sasls.plain.sasl.jaas.config": login,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.file("server.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.file("ca.crt"),
            "listener.name.mtls.ssl.client.auth": "required",
            "listener.name.badhost.ssl.keystore.type": "PEM",
            "listener.name.badhost.ssl.keystore.location": self.file("badhost.pem"),
            "listener.name.expired.ssl.keystore.type": "PEM",
            "listener.name.expired.ssl.keystore.location": self.file("expired.pem"),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "early.start.listeners": "CONTROLLER",
        }
        return base + "".join(f"{key}={value}\n" for key, value in settings.items())
