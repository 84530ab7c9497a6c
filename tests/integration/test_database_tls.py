"""What libpq says of certificates is told as the setting to correct; what a restart does to a handshake is retried."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kafka_ingest.errors import ConfigError, DatabaseUnavailable, IngestError
from kafka_ingest.postgres.database import connect

NOW = datetime.now(UTC)


class Certificates:
    """Self-signed certificates for ``localhost``, each its own authority, as files in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def make(self, name: str, *, host: str = "localhost", valid_days: int = 1) -> str:
        """Writes ``<name>.crt`` and ``<name>.key``; gives the path of the first."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW - timedelta(days=9))
            .not_valid_after(NOW + timedelta(days=valid_days))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
            .sign(key, hashes.SHA256())
        )
        path = self._folder / f"{name}.crt"
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        secret = self._folder / f"{name}.key"
        secret.touch(mode=0o600)
        secret.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return str(path)


@contextmanager
def server(certificate: str, *, asks_for: str = "", resets: bool = False) -> Iterator[int]:
    """Speaks the protocol up to the end of the TLS handshake, as PostgreSQL does; gives its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.replace(".crt", ".key"))
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # an alert about the client's certificate ends the handshake
    if asks_for:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(asks_for)
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                with client, suppress(OSError):
                    client.recv(8)  # SSLRequest
                    if not resets:
                        client.sendall(b"S")
                        context.wrap_socket(client, server_side=True).close()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def fault(port: int, **params: str) -> IngestError:
    wanted = {
        "host": "localhost",
        "hostaddr": "127.0.0.1",
        "port": str(port),
        "user": "u",
        "dbname": "d",
        "sslmode": "verify-full",
        "gssencmode": "disable",
    }
    with pytest.raises(IngestError) as raised:
        connect({**wanted, **params}, application_name="test")
    return raised.value


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


def test_a_root_certificate_that_is_not_there_names_its_setting(certificates: Certificates, tmp_path: Path) -> None:
    with server(certificates.make("server")) as port:
        error = fault(port, sslrootcert=str(tmp_path / "none.crt"))
    assert type(error) is ConfigError
    assert "none.crt" in error.found
    assert error.next_command.startswith("set sslrootcert to a file that exists")


@pytest.mark.parametrize("valid_days", [1, -1], ids=["another authority", "expired"])
def test_a_server_that_is_not_trusted_names_both_causes(certificates: Certificates, valid_days: int) -> None:
    own = certificates.make("server", valid_days=valid_days)
    root = own if valid_days < 0 else certificates.make("other")
    with server(own) as port:
        error = fault(port, sslrootcert=root)
    assert type(error) is ConfigError
    assert "has expired, or is not of the authority in sslrootcert" in error.next_command


def test_another_host_name_is_told_apart(certificates: Certificates) -> None:
    own = certificates.make("server", host="db.example")
    with server(own) as port:
        error = fault(port, sslrootcert=own)
    assert type(error) is ConfigError
    assert error.next_command.startswith("set host to a name that the server's certificate holds")


@pytest.mark.parametrize("has_certificate", [True, False])
def test_a_client_certificate_that_the_server_refuses_names_its_setting(
    certificates: Certificates, has_certificate: bool
) -> None:
    own, foreign = certificates.make("server"), certificates.make("foreign")
    mine = {"sslcert": foreign, "sslkey": foreign.replace(".crt", ".key")} if has_certificate else {}
    with server(own, asks_for=own) as port:
        error = fault(port, sslrootcert=own, **mine)
    assert type(error) is ConfigError, str(error)
    assert "sslcert" in error.next_command


def test_a_handshake_that_is_cut_off_is_an_unavailable_database(certificates: Certificates) -> None:
    with server(own := certificates.make("server"), resets=True) as port:
        assert type(fault(port, sslrootcert=own)) is DatabaseUnavailable
