"""Certificates of a test's own: authorities, and what they sign, as PEM files in a folder."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

KEY_PASSWORD = "key-password"


class Authority:
    """A certificate authority that writes PEM files into a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        certificate = _certificate(self._name, self._name, self._key.public_key())
        signed = certificate.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.location = folder / f"{name}.crt"
        self.location.write_bytes(signed.sign(self._key, SHA256()).public_bytes(Encoding.PEM))

    def issue(self, name: str, *, host: str = "localhost", until: datetime | None = None) -> None:
        """Write NAME.crt, NAME.key, NAME.enc.key (encrypted) and NAME.pem (key and certificate)."""
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [x509.DNSName(host)]
        if host == "localhost":
            names.append(x509.IPAddress(ip_address("127.0.0.1")))
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = _certificate(subject, self._name, key.public_key(), until)
        signed = certificate.add_extension(x509.SubjectAlternativeName(names), critical=False)
        chain = signed.sign(self._key, SHA256()).public_bytes(Encoding.PEM)
        plain = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(KEY_PASSWORD.encode()))
        for ending, content in ((".crt", chain), (".key", plain), (".enc.key", secret), (".pem", plain + chain)):
            (self._folder / f"{name}{ending}").write_bytes(content)


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, until: datetime | None = None
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=400))
        .not_valid_after(until or now + timedelta(days=30))
    )
