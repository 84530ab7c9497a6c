"""Airflow connections as plain values, and what Kafka, PostgreSQL and a schema registry make of them.

The operators get the values from Airflow's own lookup (``operators/context.py``). :func:`connection_from_environment`
reads the same ``AIRFLOW_CONN_<ID>`` variables without Airflow, in both spellings that Airflow knows: JSON and URI.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from kafka_ingest.errors import ConfigError

#: Keywords of libpq (PostgreSQL 18, "Parameter Key Words") that a connection's extra may hold. The five that the
#: connection has fields for, ``application_name`` (set by us) and files of local services are left out.
_LIBPQ_EXTRA = """
channel_binding client_encoding connect_timeout gssencmode gssdelegation hostaddr keepalives keepalives_count
keepalives_idle keepalives_interval krbsrvname load_balance_hosts max_protocol_version min_protocol_version options
passfile require_auth requirepeer ssl_max_protocol_version ssl_min_protocol_version sslcert sslcertmode sslcompression
sslcrl sslcrldir sslkey sslmode sslnegotiation sslpassword sslrootcert sslsni target_session_attrs tcp_user_timeout
"""
#: Parameters that name a file in libpq. Here each takes the PEM text itself, too: what the text must hold (RFC 7468).
PEM_PARAMETERS = {
    "sslrootcert": "CERTIFICATE",
    "sslcert": "CERTIFICATE",
    "sslkey": "PRIVATE KEY",
    "sslcrl": "X509 CRL",
}
_PEM_BLOCK = r"-----BEGIN [A-Z0-9 ]*{label}-----\r?\n.+\n-----END [A-Z0-9 ]*{label}-----"
#: What a schema registry's connection may hold beside the URL and the user; named as librdkafka names its own.
_REGISTRY_EXTRA = (
    "bearer.auth.token",
    "bearer.auth.logical.cluster",
    "bearer.auth.identity.pool.id",
    "ssl.ca.pem",
    "ssl.certificate.pem",
    "ssl.key.pem",
    "ssl.key.password",
)
#: Written as ``{"password": ...}`` in an extra, each of these would silently override the connection's field.
_FIELD_OF = {"host": "host", "port": "port", "user": "login", "password": "password", "dbname": "schema"}


@dataclass(frozen=True, slots=True)
class ConnectionValues:
    """One Airflow connection. Its ``repr`` shows neither password nor extra, so that a trace can show it.

    Attributes:
        conn_id: Connection id.
        conn_type: Type, with underscores: ``kafka``, ``postgres``, ``spark``.
        host: Host, or a whole Spark master.
        port: Port.
        login: User.
        password: Password.
        schema: Database, for PostgreSQL.
        extra: The extra as a JSON object.
    """

    conn_id: str
    conn_type: str
    host: str | None = None
    port: int | None = None
    login: str | None = None
    password: str | None = field(default=None, repr=False)
    schema: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)


class AirflowConnection(Protocol):
    """What Airflow hands out for a connection id: one class in tasks, another one in its API server."""

    conn_id: str
    conn_type: str | None
    host: str | None
    port: int | None
    login: str | None
    password: str | None
    schema: str | None

    @property
    def extra_dejson(self) -> Any:
        """The extra, read as JSON."""


def connection_values(connection: AirflowConnection) -> ConnectionValues:
    """Return a connection of Airflow's as plain values.

    Raises:
        ConfigError: The extra is JSON, but no object.
    """
    extra = connection.extra_dejson
    if not isinstance(extra, Mapping):
        raise ConfigError(
            f"Connection {connection.conn_id} cannot be used",
            expected="an extra that is a JSON object",
            found=f"JSON of type {type(extra).__name__}",
            next_command=f"airflow connections delete {connection.conn_id}, and add it again",
        )
    return ConnectionValues(
        conn_id=connection.conn_id,
        conn_type=connection.conn_type or "",
        host=connection.host,
        port=connection.port,
        login=connection.login,
        password=connection.password,
        schema=connection.schema,
        extra=extra,
    )


def environment_variable(conn_id: str) -> str:
    """Return the name of the variable in which Airflow looks for a connection."""
    return f"AIRFLOW_CONN_{conn_id.upper()}"


def connection_from_environment(conn_id: str) -> ConnectionValues | None:
    """Read ``AIRFLOW_CONN_<ID>``; ``None`` when it is not set.

    Raises:
        ConfigError: The variable holds neither a JSON object nor a URI that Airflow would accept. The message never
            repeats the value.
    """
    text = os.environ.get(environment_variable(conn_id), "").strip()
    if not text:
        return None
    return connection_from_json(conn_id, text) if text.startswith("{") else connection_from_uri(conn_id, text)


def connection_from_json(conn_id: str, text: str) -> ConnectionValues:
    """Read Airflow's JSON form: ``conn_type``, ``host``, ``port``, ``login``, ``password``, ``schema``, ``extra``.

    Raises:
        ConfigError: Not such an object.
    """
    document = _json_object(conn_id, text, "the connection")
    extra = document.get("extra") or {}
    if isinstance(extra, str):
        extra = _json_object(conn_id, extra, "its extra")
    if not isinstance(extra, Mapping):
        _refuse(conn_id, "the extra is not a JSON object", "a JSON object, or a string that holds one")
    return ConnectionValues(
        conn_id,
        _connection_type(str(document.get("conn_type") or "")),
        host=document.get("host"),
        port=_port(conn_id, document.get("port")),
        login=document.get("login"),
        password=document.get("password"),
        schema=document.get("schema"),
        extra=extra,
    )


def connection_from_uri(conn_id: str, text: str) -> ConnectionValues:
    """Read Airflow's URI form ``type://login:password@host:port/schema?key=value``, percent-decoded.

    The extra is the query, or the JSON text of its key ``__extra__``. A second protocol belongs to the host:
    ``spark://spark%3A%2F%2Fhost`` and ``spark://spark://host`` both name the host ``spark://host``.

    Raises:
        ConfigError: Not such a URI.
    """
    scheme, separator, rest = text.partition("://")
    if not separator or not scheme:
        _refuse(
            conn_id, "the text is neither a JSON object nor a URI", "JSON, or type://login:password@host:port/schema"
        )
    protocol, nested, after = rest.partition("://")
    try:
        parts = urlsplit(f"//{after if nested else rest}")
        port = parts.port
    except ValueError:
        _refuse(conn_id, "the URI's host or port cannot be read", "login, password and host percent-encoded")
    host = _host(parts)
    return ConnectionValues(
        conn_id,
        _connection_type(scheme),
        host=f"{protocol}://{host}" if nested else host,
        port=port,
        login=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        schema=unquote(parts.path[1:]) or None,
        extra=_query_extra(conn_id, parts.query),
    )


def is_pem(value: object) -> bool:
    """Tell whether the value of one of :data:`PEM_PARAMETERS` is a PEM text, and not the path of a file."""
    return isinstance(value, str) and "-----BEGIN" in value


def kafka_settings_of(values: ConnectionValues) -> Mapping[str, object]:
    """Return the librdkafka settings of a connection of type ``kafka``: its extra.

    What the protocol fixes is checked later, by ``kafka/client.py``.

    Raises:
        ConfigError: Another type, or no ``bootstrap.servers``.
    """
    _require_type(values, "kafka")
    if not values.extra.get("bootstrap.servers"):
        _refuse(values.conn_id, "the extra has no bootstrap.servers", '{"bootstrap.servers": "host:9092", ...}')
    return dict(values.extra)


def registry_config_of(values: ConnectionValues) -> dict[str, str]:
    """Return the configuration of a schema registry, for ``kafka/registry.py``, of a connection of type ``http``.

    Host, port and schema (``http`` or ``https``) are the URL, or the host is the whole of it; login and password are
    for basic authentication. The extra may hold a token and, as text, what TLS needs.

    Raises:
        ConfigError: Another type, no URL, or an extra that cannot be used; all faults at once.
    """
    _require_type(values, "http")
    scheme, url = values.schema or "http", values.host or ""
    if url and "://" not in url:
        url = f"{scheme}://{url}"
    if values.port and url.count(":") < 2:
        protocol, _, rest = url.partition("://")
        host, slash, path = rest.partition("/")
        url = f"{protocol}://{host}:{values.port}{slash}{path}"
    protocol = url.partition("://")[0]
    faults = [] if protocol in ("http", "https") else [f"its URL begins with {protocol or 'nothing'}"]
    faults += ["its URL holds a user, whose fields are login and password"] if "@" in url else []
    faults += [fault for key, value in values.extra.items() if (fault := _registry_extra_fault(key, value))]
    if faults:
        extra = ", ".join(_REGISTRY_EXTRA)
        _refuse(
            values.conn_id, "; ".join(faults), f"a host or an http(s):// URL, login, password, and as extra {extra}"
        )
    own = {"connection": values.conn_id, "url": url, "username": values.login, "password": values.password}
    return {key: value for key, value in {**own, **values.extra}.items() if value}


def postgres_params_of(values: ConnectionValues) -> dict[str, str]:
    """Return libpq's keyword parameters for a connection of type ``postgres``; the extra may hold further ones.

    Certificates and keys stay what the connection says: texts, which ``postgres/database.py`` gives to libpq, or paths.

    Raises:
        ConfigError: Another type, no host or database, keys of the extra that are not libpq's, or texts that are no
            certificates or keys; all at once.
    """
    _require_type(values, "postgres")
    faults = [f"{name} is missing" for name in ("host", "schema", "login") if not getattr(values, name)]
    faults += [fault for key, value in values.extra.items() if (fault := _extra_fault(key, value))]
    if faults:
        _refuse(
            values.conn_id, "; ".join(faults), "host, port, login, password, schema (the database), libpq's keywords"
        )
    params = {
        "host": values.host,
        "port": values.port,
        "user": values.login,
        "password": values.password,
        "dbname": values.schema,
        # libpq uses it where application_name is empty, which it never is here: messages name the connection by it.
        "fallback_application_name": values.conn_id,
        **values.extra,
    }
    return {key: str(value) for key, value in params.items() if value is not None}


def _registry_extra_fault(key: str, value: object) -> str:
    if key not in _REGISTRY_EXTRA:
        return f"{key} is not a setting of a schema registry that can be used here"
    return "" if isinstance(value, str) else f"{key} must be a text"


def _extra_fault(key: str, value: object) -> str:
    if key in _FIELD_OF:
        return f"{key} stands in the extra; put it in the field {_FIELD_OF[key]}"
    if key not in _LIBPQ_EXTRA.split():
        return f"{key} is not a connection parameter that can be used here"
    if isinstance(value, bool) or not isinstance(value, str | int):
        return f"{key} must be a string or an integer"
    if is_pem(value) and key in PEM_PARAMETERS:
        label = PEM_PARAMETERS[key]
        if not re.search(_PEM_BLOCK.format(label=label), str(value), re.DOTALL):
            return f"{key} is no PEM text of {label}, each of its lines on a line of its own"
    return ""


def _require_type(values: ConnectionValues, conn_type: str) -> None:
    if values.conn_type != conn_type:
        _refuse(values.conn_id, f"it is of type {values.conn_type or '(none)'}", f"a connection of type {conn_type}")


def _connection_type(text: str) -> str:
    return "postgres" if text == "postgresql" else text.replace("-", "_")


def _host(parts: SplitResult) -> str | None:
    # Not urlsplit().hostname: it is in lower case, and paths of sockets must keep theirs.
    address = parts.netloc.rpartition("@")[2]
    if address.startswith("["):
        return address[1:].partition("]")[0] or None
    return unquote(address.partition(":")[0]) or None


def _query_extra(conn_id: str, query: str) -> Mapping[str, Any]:
    pairs = dict(parse_qsl(query, keep_blank_values=True))
    if "__extra__" in pairs:
        return _json_object(conn_id, pairs["__extra__"] or "{}", "__extra__")
    return {key: _json_or_text(value) for key, value in pairs.items()}


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value


def _json_object(conn_id: str, text: str, what: str) -> Mapping[str, Any]:
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        _refuse(conn_id, f"{what} is not a JSON object", "a JSON object")
    return document


def _port(conn_id: str, value: object) -> int | None:
    if value in (None, ""):
        return None
    try:
        return int(str(value))
    except ValueError:
        _refuse(conn_id, f"port is {value!r}", "a number")


def _refuse(conn_id: str, found: str, expected: str) -> NoReturn:
    raise ConfigError(
        f"Connection {conn_id} cannot be used",
        expected=expected,
        found=found,
        next_command=f"correct {environment_variable(conn_id)}, or: airflow connections add {conn_id} ...",
    ) from None
