"""What commands are made of: arguments, from the forms' fields where they have them, output, worlds of pipelines."""

from __future__ import annotations

import argparse
import base64
import json
import re
import secrets
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias

from kafka_ingest.connections import (
    ConnectionValues,
    connection_from_environment,
    connection_from_json,
    environment_variable,
    postgres_params_of,
)
from kafka_ingest.errors import ConfigError, IngestError
from kafka_ingest.forms.values import GREATEST_NUMBER, Choice, Field, Flag, Number, Value
from kafka_ingest.report import Row, table, vertical
from kafka_ingest.settings import PipelineSettings

if TYPE_CHECKING:
    from kafka_ingest.full_world import FullWorld

# ----------
# What commands print: aligned text for people, one JSON document for scripts.


class Output:
    """Print results to standard output, notes to standard error.

    Args:
        as_json: Print JSON instead of text. Notes then still go to standard error, so that the document stays whole.
    """

    def __init__(self, *, as_json: bool, stdout: TextIO | None = None, stderr: TextIO | None = None) -> None:
        self.as_json = as_json
        self._stdout = stdout or sys.stdout
        self._stderr = stderr or sys.stderr

    def rows(self, rows: Sequence[Row], columns: Sequence[str], *, empty: str) -> None:
        """Print a list: in text the named columns, in JSON whole rows.

        Args:
            rows: The rows, in order.
            columns: Keys to show in text; they are the headings, too.
            empty: What to say in text when there is no row.
        """
        if self.as_json:
            self._json(list(rows))
        else:
            self._write(table(rows, columns) if rows else empty)

    def record(self, row: Row) -> None:
        """Print one result: in text a line for each key."""
        if self.as_json:
            self._json(row)
        else:
            self._write(vertical(row))

    def document(self, text: str, row: Row) -> None:
        """Print a text as it is, or in JSON a row that holds it."""
        if self.as_json:
            self._json(row)
        else:
            self._stdout.write(text)

    def note(self, text: str) -> None:
        """Tell a person what is going on."""
        self._stderr.write(f"{text}\n")
        self._stderr.flush()

    def fault(self, error: IngestError) -> None:
        """Print the four-part message of an expected fault, in JSON with the same parts."""
        if self.as_json:
            self._stderr.write(json.dumps({"error": error.to_record()}) + "\n")
        else:
            self._stderr.write(f"{error}\n")

    def _json(self, document: Any) -> None:
        self._write(json.dumps(document, indent=2, default=_json_value))

    def _write(self, text: str) -> None:
        self._stdout.write(f"{text}\n")


def _json_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} has no JSON form")


# ----------
# What commands are made of: a name with its help, arguments, and what runs them.

Parser: TypeAlias = argparse.ArgumentParser
Run: TypeAlias = Callable[[argparse.Namespace, Output], int]
Parsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


@dataclass(frozen=True, slots=True)
class Command:
    """One command.

    Attributes:
        name: As it is typed.
        summary: What the list of commands says of it.
        run: Does it and returns the exit code. It imports what it needs of Kafka, PostgreSQL, Spark and pipeline files
            itself: help and faults of usage load none of their libraries, which take a second together.
        arguments: Adds its arguments.
        details: What its own help says at the end.
        has_json: Whether ``--json`` is its first flag; else ``arguments`` adds the flag.
    """

    name: str
    summary: str
    run: Run
    arguments: Callable[[Parser], None]
    details: str
    has_json: bool


def command(
    name: str, summary: str, arguments: Callable[[Parser], None], *, details: str = "", has_json: bool = True
) -> Callable[[Run], Command]:
    """Make a command of the function that runs it; the arguments are those of :class:`Command`."""
    return lambda run: Command(name, summary, run, arguments, details, has_json)


def add_command(commands: Parsers, command: Command) -> None:
    """Add a command to the command line."""
    parser = add_parser(commands, command.name, command.summary, command.details)
    parser.set_defaults(run=command.run)
    if command.has_json:
        add_json(parser)
    command.arguments(parser)


def add_parser(parsers: Parsers, name: str, summary: str, details: str = "") -> Parser:
    """Add the parser of a command, or of a kind of it."""
    description = f"{summary[0].upper()}{summary[1:]}."
    formatter = argparse.RawDescriptionHelpFormatter if details else argparse.HelpFormatter
    return parsers.add_parser(name, help=summary, description=description, epilog=details, formatter_class=formatter)


# ----------
# Arguments that several commands take, and those that fill a field of a form in.


def add_json(parser: Parser) -> None:
    """Add ``--json``."""
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def add_pipeline(parser: Parser) -> None:
    """Add the name of a pipeline."""
    parser.add_argument("pipeline", metavar="PIPELINE", help="name of the pipeline")


def add_pipeline_or_all(parser: Parser) -> None:
    """Add the name of a pipeline, which may be missing."""
    parser.add_argument("pipeline", metavar="PIPELINE", nargs="?", help="name of the pipeline (default: all)")


def add_limit(parser: Parser, *, default: int, what: str = "") -> None:
    """Add ``--limit``: how much is listed at most."""
    text = f"at most N{what} (default: {default})"
    parser.add_argument("--limit", type=at_least(1), default=default, metavar="N", help=text)


def add_field(parser: argparse._ActionsContainer, key: str, field: Field, **settings: Any) -> None:
    """Add the argument that fills a field in. Its value stands in the namespace under the field's key.

    Args:
        parser: A parser, or a group of its arguments.
        key: The field's key.
        field: A field that has an option.
        settings: What argparse is told beyond what follows from the field.
    """
    option = field.option
    assert option is not None  # noqa: S101 - the caller names fields of the command line
    told = {**_settings_of(field.value), **option.settings, "help": option.help, **settings}
    if option.metavar:
        told["metavar"] = option.metavar
    if option.name == key:
        # An argument without a flag is required as it is, and argparse refuses to be told.
        told.pop("required", None)
    else:
        told["dest"] = key
    parser.add_argument(option.name, **told)


def _settings_of(value: Value) -> dict[str, Any]:
    match value:
        case Flag():
            return {"action": "store_true"}
        case Number():
            kind = int if value.at_least is None else at_least(value.at_least)
            return {"type": kind, "default": value.default, "metavar": "N"}
        case Choice():
            return {"choices": tuple(value.texts), "default": value.default}
    return {}


def at_least(least: int) -> Callable[[str], int]:
    """Return what reads a whole number from ``least`` on; a fault is one of usage."""

    def read(text: str) -> int:
        # At most 19 digits: Python converts no text of more than 4,300.
        if re.fullmatch(r"\+?[0-9]{1,19}", text) and least <= int(text) <= GREATEST_NUMBER:
            return int(text)
        shown = text if len(text) <= 30 else f"{text[:30]}..."
        raise argparse.ArgumentTypeError(f"expected a whole number from {least} to {GREATEST_NUMBER}, found {shown}")

    return read


# ----------
# What commands find around them without a scheduler: connections, and the worlds of pipelines made of these.

DEFAULT_CONNECTION = "postgres_default"


def world_of(settings: PipelineSettings) -> FullWorld:
    """Return the full world of a pipeline. The states of Airflow's runs are unknown in it."""
    from kafka_ingest.full_world import FullWorld

    return FullWorld(settings, connection)


def connection(conn_id: str, conn_type: str) -> ConnectionValues:
    """Look a connection up in ``AIRFLOW_CONN_<ID>``, then in Airflow, where it is installed.

    Args:
        conn_id: Connection id.
        conn_type: ``kafka``, ``postgres`` or ``spark``.

    Raises:
        ConfigError: It is in neither place, or cannot be read.
    """
    found = connection_from_environment(conn_id) or _from_airflow(conn_id)
    if found is None:
        raise ConfigError(
            f"there is no connection {conn_id}",
            expected=f"a connection of type {conn_type} in {environment_variable(conn_id)}, or in Airflow",
            found="neither",
            next_command=(
                f'export {environment_variable(conn_id)}=\'{{"conn_type": "{conn_type}", ...}}\', '
                f"or: airflow connections add {conn_id} --conn-type {conn_type} ..."
            ),
        )
    return found


def _from_airflow(conn_id: str) -> ConnectionValues | None:
    if find_spec("airflow") is None:
        return None
    # Airflow takes seconds to import: only when the environment has no answer.
    from airflow.models.connection import Connection
    from airflow.providers.common.compat.sdk import AirflowNotFoundException

    try:
        # Not BaseHook.get_connection: outside a task it does not ask Airflow's own database (Task SDK 1.3,
        # ensure_secrets_backend_loaded). This one asks secrets backends and database, as Airflow's servers do.
        found = Connection.get_connection_from_secrets(conn_id)
    except AirflowNotFoundException:
        return None
    return connection_from_json(conn_id, found.as_json())


def postgres_params(conn_id: str) -> dict[str, str]:
    """Return libpq's parameters of a connection of type ``postgres``."""
    return postgres_params_of(connection(conn_id, "postgres"))


def target_connections() -> Iterable[str]:
    """Return the target connections of all sound pipelines; the default one where there is no pipeline yet.

    A broken file must not keep the other databases from being migrated or tidied: check-config reports it.
    """
    from kafka_ingest.pipeline_files.files import pipeline_paths, read_pipelines

    sound = read_pipelines(pipeline_paths()).settings.values()
    return dict.fromkeys(settings.batch.target_connection for settings in sound) or (DEFAULT_CONNECTION,)


def new_request_id() -> str:
    """Return the identity of a request that did not bring one."""
    return f"cli__{datetime.now(UTC).strftime('%Y%m%dT%H%M%SZ')}__{secrets.token_hex(3)}"
