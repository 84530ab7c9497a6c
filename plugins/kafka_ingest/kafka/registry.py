"""The schema registry: schemas by the id that records name, and who is to blame where there is none."""

from __future__ import annotations

import ssl
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from kafka_ingest.errors import ConfigError, IngestError, RegistryUnavailable, SchemaMissing
from kafka_ingest.secrets import scrubbed, secret_values

#: What a registry calls the schemas of each format.
SCHEMA_KINDS = {"avro": "AVRO", "protobuf": "PROTOBUF", "json_schema": "JSON"}

#: Headers in which producers may name the schema (``confluent_kafka.schema_registry``, 2.16).
KEY_SCHEMA_HEADER, VALUE_SCHEMA_HEADER = "__key_schema_id", "__value_schema_id"
#: The frame that names it, before a value or in a header: a zero and the schema's number in four bytes, or a one and
#: its GUID in sixteen.
NUMBER_FRAME, _GUID_FRAME = 5, 17

#: A registry answers within milliseconds; a load waits this long for each answer, four times, before it is retried.
_TIMEOUT_SECONDS = 10
_RETRIES = 3
_LONGEST_WAIT_MS = 4_000

#: Error codes of Confluent's API: subject, version, or schema not found.
_NOT_FOUND = frozenset({40401, 40402, 40403})
_TOO_BUSY = frozenset({408, 429})
#: No schema refers to so many others; a cycle, which no registry should hold, ends here.
_MOST_REFERENCES = 1_000

#: Loads retry by themselves; ``draft`` and ``preflight`` do not.
_WHEN_IT_ANSWERS = "for a load none, it is tried again; any other command: repeat it; when it goes on, see the registry"

#: PEM texts of the connection, by the client's own name for a file that holds them.
_FILES = {
    "ssl.ca.pem": "ssl.ca.location",
    "ssl.certificate.pem": "ssl.certificate.location",
    "ssl.key.pem": "ssl.key.location",
}


class UnusableSchema(ValueError):
    """A registered schema that no record can be read with: what is wrong with it."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of the registry, with all that it refers to.

    Attributes:
        kind: ``AVRO``, ``PROTOBUF`` or ``JSON``.
        text: The schema as it was registered.
        references: Texts of the schemas that it refers to, directly or not, by the name that it uses for them;
            each after those that it refers to itself.
    """

    kind: str
    text: str
    references: Mapping[str, str]


def frame_length(framed: bytes) -> int:
    """Return how many bytes name the schema, if any do."""
    return min(len(framed), _GUID_FRAME if framed[:1] == b"\1" else NUMBER_FRAME)


def schema_id_of(frame: bytes) -> int | str | None:
    """Return the number or GUID of a frame; ``None`` for other bytes."""
    if len(frame) == NUMBER_FRAME and frame[0] == 0:
        return int.from_bytes(frame[1:], "big")
    if len(frame) == _GUID_FRAME and frame[0] == 1:
        return str(UUID(bytes=frame[1:]))
    return None


class SchemaRegistry:
    """A registry with Confluent's API. It remembers the schemas that it was asked for.

    Every method raises ``RegistryUnavailable`` where the registry does not answer or is too busy, ``ConfigError``
    where it refuses this client or is none, and ``SchemaMissing`` where it does not know what was asked for.

    Args:
        config: What ``connections.registry_config_of`` returned.

    Raises:
        ConfigError: The client library is missing, or cannot use the configuration.
    """

    def __init__(self, config: Mapping[str, str]) -> None:
        self._config = config
        self._client = _client(config)
        # Whoever keeps it for a whole process need not close it.
        weakref.finalize(self, self._client.close)

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def schema(self, schema_id: int | str) -> RegisteredSchema:
        """Return the schema of a number, or of a GUID.

        Args:
            schema_id: What records name.
        """
        with self._faults(f"schema {schema_id}"):
            if isinstance(schema_id, int):
                return self._with_references(self._client.get_schema(schema_id))
            return self._with_references(self._client.get_schema_by_guid(schema_id))

    def is_registered(self, schema_id: int | str, subject: str) -> bool:
        """Tell whether a schema is, or was, registered under a subject: records outlive deleted versions."""
        with self._faults(f"subjects of schema {schema_id}"):
            if isinstance(schema_id, int):
                return subject in self._client.get_subjects_by_schema_id(schema_id, deleted=True)
            schema = self._client.get_schema_by_guid(schema_id)
        try:
            with self._faults(f"subject {subject}"):
                self._client.lookup_schema(subject, schema)
        except SchemaMissing:
            return False
        return True

    def latest(self, subject: str) -> RegisteredSchema:
        """Return the newest schema of a subject."""
        with self._faults(f"subject {subject}"):
            return self._with_references(self._client.get_latest_version(subject).schema)

    def kinds(self) -> Sequence[str]:
        """Return the kinds of schemas that the registry takes: a question that costs it nothing."""
        with self._faults("the registry"):
            kinds: list[str] = self._client.get_schema_types()
            return kinds

    def _with_references(self, schema: Any) -> RegisteredSchema:
        found: dict[str, str] = {}
        self._collect(schema, found, [])
        return RegisteredSchema(schema.schema_type or "AVRO", schema.schema_str, found)

    def _collect(self, schema: Any, found: dict[str, str], above: Sequence[tuple[str, int]]) -> None:
        for reference in schema.references or ():
            place = (reference.subject, reference.version)
            if reference.name in found or place in above or len(found) >= _MOST_REFERENCES:
                continue
            referenced = self._client.get_version(*place).schema
            self._collect(referenced, found, [*above, place])
            found[reference.name] = referenced.schema_str

    @contextmanager
    def _faults(self, asked_for: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            fault = self._fault(asked_for, error)
            if fault is None:
                raise
            raise fault from None

    def _fault(self, asked_for: str, error: Exception) -> IngestError | None:
        """Say who is to blame; ``None`` for an error of this program."""
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        if isinstance(error, SchemaRegistryError):
            return self._refusal(asked_for, error.http_status_code, error.error_code, str(error.error_message))
        words = scrubbed(f"{type(error).__name__}: {error}", secret_values(self._config))
        if isinstance(error, ValueError | TypeError | AttributeError | KeyError):  # the client trusts what it gets
            return self._no_registry(asked_for, f"another answer ({words})")
        if not isinstance(error, _transport_errors()):
            return None
        if _is_certificate_fault(error):
            return self._config_error("cannot be trusted", "a certificate of a CA in ssl.ca.pem", words)
        return RegistryUnavailable(
            f"the schema registry {self._name} does not answer",
            expected=f"an answer within {_TIMEOUT_SECONDS} s",
            found=words,
            next_command=_WHEN_IT_ANSWERS,
        )

    def _refusal(self, asked_for: str, status: int, code: int | None, message: str) -> IngestError:
        found = scrubbed(f"HTTP status {status} for {asked_for}: {message[:300]}", secret_values(self._config))
        if code in _NOT_FOUND:
            return SchemaMissing(
                f"the schema registry {self._name} does not know what a record or the pipeline names",
                expected=f"{asked_for}, in the registry that the topic's producers use",
                found=found,
                next_command=f"correct the Airflow connection {self._config['connection']}, or register the schema; "
                "see docs/runbook.md, section SchemaMissing",
            )
        if status in _TOO_BUSY or status >= 500:
            return RegistryUnavailable(
                f"the schema registry {self._name} cannot answer now",
                expected=asked_for,
                found=found,
                next_command=_WHEN_IT_ANSWERS,
            )
        if status in (401, 403):
            return self._config_error("refuses this client", "a user or token that may read schemas", found)
        return self._no_registry(asked_for, found)

    def _no_registry(self, asked_for: str, found: str) -> ConfigError:
        expected = f"the base URL of Confluent's API, below which {asked_for} can be asked for"
        return self._config_error("does not speak Confluent's API", expected, found)

    def _config_error(self, what: str, expected: str, found: str) -> ConfigError:
        return ConfigError(
            f"the schema registry {self._name} {what}",
            expected=expected,
            found=found,
            next_command=f"correct the Airflow connection {self._config['connection']}",
        )

    @property
    def _name(self) -> str:
        return f"at {self._config['url']}"


def missing_package(error: ImportError) -> ConfigError:
    """Return the fault of a machine without the packages that registry formats need."""
    return ConfigError(
        "A package that schema registries need is not installed here",
        expected="the extra of pip install 'kafka-ingest[registry]', on Airflow's workers and on every Spark executor",
        found=str(error),
        next_command="install it, or the packages of requirements.txt",
    )


def _client(config: Mapping[str, str]) -> Any:
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise missing_package(error) from None
    with tempfile.TemporaryDirectory(prefix="kafka_ingest_") as folder:  # mode 0700; read once, here
        try:
            return SchemaRegistryClient(_properties(config, Path(folder)))
        except (ValueError, OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"Connection {config['connection']} cannot be used",
                expected="a URL, and certificates and a key as PEM texts",
                found=scrubbed(f"{type(error).__name__}: {error}", secret_values(config)),
                next_command=f"correct the Airflow connection {config['connection']}",
            ) from None


def _properties(config: Mapping[str, str], folder: Path) -> dict[str, object]:
    properties: dict[str, object] = {
        "url": config["url"],
        "timeout": _TIMEOUT_SECONDS,
        "max.retries": _RETRIES,
        "retries.max.wait.ms": _LONGEST_WAIT_MS,
    }
    if "username" in config:
        properties["basic.auth.user.info"] = f"{config['username']}:{config.get('password', '')}"
    if "bearer.auth.token" in config:
        properties["bearer.auth.credentials.source"] = "STATIC_TOKEN"
        properties["bearer.auth.logical.cluster"] = ""
    given = (key for key in config if key.startswith("bearer.") or key == "ssl.key.password")
    properties |= {key: config[key] for key in given}
    for key, location in _FILES.items():
        if key in config:
            path = folder / key
            path.write_text(config[key], encoding="utf-8")
            properties[location] = str(path)
    return properties


def _transport_errors() -> type[Exception]:
    try:
        import httpx2 as httpx
    except ImportError:  # confluent-kafka before 2.16
        import httpx  # type: ignore[no-redef]
    errors: type[Exception] = httpx.HTTPError
    return errors


def _is_certificate_fault(error: BaseException) -> bool:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY_FAILED" in str(cause):
            return True
        cause = cause.__cause__ or cause.__context__
    return False
