"""Commands around loads: draft, check-config and migrate before the first, upkeep of databases and machines."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from kafka_ingest.cli.command import (
    DEFAULT_CONNECTION,
    Output,
    Parser,
    at_least,
    command,
    connection,
    postgres_params,
    target_connections,
)
from kafka_ingest.connections import registry_config_of
from kafka_ingest.errors import OK, STOP_AND_CALL, ConfigError
from kafka_ingest.protocol.housekeeping import MOST_DAYS, OLDER_THAN_DAYS, keep_house

# ----------
# Before the first run.

#: Enough to see what one record in a thousand holds; read in some seconds.
_SAMPLE = 10_000


def _draft_arguments(parser: Parser) -> None:
    parser.add_argument("topic", metavar="TOPIC", help="name of the topic")
    parser.add_argument("--connection", default="kafka_default", metavar="ID", help="connection of the topic")
    parser.add_argument("--target", default="", metavar="SCHEMA.TABLE", help="table (default: public.PIPELINE)")
    parser.add_argument(
        "--target-connection", default=DEFAULT_CONNECTION, metavar="ID", help="connection of the table's database"
    )
    parser.add_argument(
        "--registry", default="", metavar="ID", help="connection of the schema registry whose schemas the records name"
    )
    parser.add_argument("--pipeline", default="", metavar="NAME", help="name of the pipeline (default: the topic's)")
    parser.add_argument(
        "--records", type=at_least(1), default=_SAMPLE, metavar="N", help=f"records to look at (default: {_SAMPLE})"
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="write this file instead of printing")
    parser.add_argument("--force", action="store_true", help="write it also where there is one")


@command(
    "draft",
    "draft the pipeline file of a topic from what the topic holds",
    _draft_arguments,
    details="""\
example: python -m kafka_ingest draft orders --target shop.orders --write dags/pipelines/orders.yaml
It reads records from the beginning, the middle and the end of every partition, and writes a file with comments:
columns, their types, what is often missing. What was read loads without a dead letter. A draft guesses, so read it.
With --registry, columns of Avro, Protobuf and JSON Schema come from the schemas that the records name.
It joins no consumer group and changes nothing in Kafka.""",
)
def run_draft(options: argparse.Namespace, output: Output) -> int:
    """Draft a pipeline file, and print or write it."""
    from kafka_ingest.draft.topic import DraftRequest, draft_of_topic, reading_config

    if options.write and not options.force:
        _refuse_to_overwrite(options.write)
    request = DraftRequest(
        topic=options.topic,
        kafka_connection=options.connection,
        target_connection=options.target_connection,
        records=options.records,
        target=options.target,
        pipeline=options.pipeline,
        registry=options.registry,
    )
    registry = registry_config_of(connection(options.registry, "http")) if options.registry else None
    config = reading_config(request, connection(options.connection, "kafka"))
    text = draft_of_topic(request, config, output.note, registry)
    if options.write is None:
        output.document(text, {"topic": options.topic, "draft": text})
        return OK
    _write(options.write, text, mode="w" if options.force else "x")
    output.record({"file": str(options.write), "next": f"python -m kafka_ingest check-config {options.write}"})
    return OK


def _refuse_to_overwrite(path: Path) -> None:
    if path.exists():
        raise ConfigError(
            f"{path} is there already",
            expected="a file that does not exist yet",
            found=f"one of {path.stat().st_size:,} bytes",
            next_command="choose another --write, or give --force",
        )


def _write(path: Path, text: str, *, mode: str) -> None:
    try:
        with path.open(mode, encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written",
            expected="a file in a folder that is there",
            found=str(error.strerror),
            next_command="correct --write",
        ) from None


def _check_config_arguments(parser: Parser) -> None:
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="pipeline files")


@command(
    "check-config",
    "check pipeline files and list every fault with its line",
    _check_config_arguments,
    details="""\
example: python -m kafka_ingest check-config dags/pipelines/orders.yaml
Without files it checks all that make DAGs. Exit code 78 when one is broken.""",
)
def run_check_config(options: argparse.Namespace, output: Output) -> int:
    """Read pipeline files, each by itself and against the others, and list the faults of all of them."""
    from kafka_ingest.pipeline_files.files import pipeline_paths, read_pipelines

    deployed = pipeline_paths()
    paths = [path.resolve() for path in options.files] or deployed
    # A file that is checked alone can still clash with one that is deployed.
    loaded = read_pipelines(dict.fromkeys([*paths, *(path for path in deployed if path.resolve() not in paths)]))
    rows = [
        {
            "file": str(path),
            "pipeline": loaded.settings[path].pipeline if path in loaded.settings else None,
            "result": "broken" if path in loaded.errors else "good",
            "faults": loaded.errors[path].found.splitlines() if path in loaded.errors else [],
        }
        for path in paths
    ]
    output.rows(rows, ("pipeline", "result", "file"), empty="no pipeline files found")
    errors = [loaded.errors[path] for path in paths if path in loaded.errors]
    for error in () if output.as_json else errors:
        output.note(f"\n{error}")
    return STOP_AND_CALL if errors else OK


def _add_connection(parser: Parser) -> None:
    parser.add_argument(
        "--connection",
        action="append",
        metavar="ID",
        help="connection of the target database; can be given again (default: those of all pipelines, "
        "or postgres_default)",
    )


@command(
    "migrate",
    "create the ledger in the target database, or bring it up to date",
    _add_connection,
    details="""\
example: python -m kafka_ingest migrate --connection warehouse
Running it twice is harmless.""",
)
def run_migrate(options: argparse.Namespace, output: Output) -> int:
    """Bring the ledger up to date in one database, or in the target database of every pipeline."""
    from kafka_ingest.postgres.migrations import migrate

    rows = []
    for conn_id in options.connection or target_connections():
        applied = migrate(postgres_params(conn_id))
        rows.append({"connection": conn_id, "applied": applied or ["nothing: the ledger is up to date"]})
    output.rows(rows, ("connection", "applied"), empty="")
    return OK


def _roles_arguments(parser: Parser) -> None:
    parser.add_argument(
        "pipelines", nargs="*", metavar="PIPELINE", help="whose tables to grant (default: all of the connection)"
    )
    parser.add_argument("--owner", required=True, metavar="ROLE", help="role that migrates, and owns the ledger")
    parser.add_argument("--loader", required=True, metavar="ROLE", help="role of the pipelines' connection")
    parser.add_argument("--reader", required=True, metavar="ROLE", help="role that looks at ledger and tables")
    parser.add_argument(
        "--operator", default="", metavar="ROLE", help="role that changes positions instead of the loader"
    )
    parser.add_argument(
        "--without-payload", action="store_true", help="the reader sees the ledger, and nothing of a record's content"
    )
    parser.add_argument(
        "--connection", metavar="ID", help="connection of the target database (default: that of all pipelines)"
    )


@command(
    "roles",
    "print the SQL that grants each role what it needs, and no more",
    _roles_arguments,
    details="""\
example: python -m kafka_ingest roles --owner ledger --loader etl --reader analyst | psql shop
An administrator runs it before migrate, and again after it and after each later migrate. It makes roles that are
missing, without passwords. Roles may be one: --owner etl --loader etl --reader etl. It asks no database.""",
)
def run_roles(options: argparse.Namespace, output: Output) -> int:
    """Print the SQL for the roles of one target database and the tables of its pipelines."""
    from kafka_ingest.pipeline_files.files import find_pipeline, pipeline_paths, read_pipelines
    from kafka_ingest.postgres.rights import Roles, role_statements

    conn_id = options.connection or _only_connection()
    named = [find_pipeline(name) for name in options.pipelines]
    found = named or read_pipelines(pipeline_paths()).settings.values()
    roles = Roles(options.owner, options.loader, options.reader, options.operator, not options.without_payload)
    batches = [one.batch for one in found if one.batch.target_connection == conn_id]
    text = role_statements(roles, postgres_params(conn_id)["dbname"], batches)
    output.document(text, {"connection": conn_id, "sql": text})
    return OK


def _only_connection() -> str:
    first, *others = target_connections()
    if others:
        raise ConfigError(
            "the pipelines load into more than one database",
            expected="--connection, because the SQL is for one",
            found=", ".join([first, *others]),
            next_command=f"python -m kafka_ingest roles --connection {first} ...",
        )
    return first


COMMANDS = (run_draft, run_check_config, run_roles, run_migrate)

# ----------
# Upkeep: what tidies target databases, and what lets loads start sooner.

_COLUMNS = ("connection", "chore", "thing", "outcome", "count", "reason")


def _housekeeping_arguments(parser: Parser) -> None:
    _add_connection(parser)
    parser.add_argument(
        "--older-than-days",
        type=_days,
        default=OLDER_THAN_DAYS,
        metavar="N",
        help=f"age from which ranges of superseded batches, and tries, are deleted (default: {OLDER_THAN_DAYS})",
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be done; change nothing")


def _days(text: str) -> int:
    number = int(text)
    if not 0 <= number <= MOST_DAYS:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and {MOST_DAYS}")
    return number


@command(
    "housekeeping",
    "drop leftover staging tables, delete old details of the ledger, summarise BRIN indexes",
    _housekeeping_arguments,
    details="""\
example: python -m kafka_ingest housekeeping --dry-run
What is in use stays and is named; running it again is harmless. The DAG kafka_ingest_housekeeping runs
the same once a day.""",
)
def run_housekeeping(options: argparse.Namespace, output: Output) -> int:
    """Tidy one database, or the target database of every pipeline. What stays is told and is no failure."""
    from kafka_ingest.full_world import housekeeper

    rows = [
        {"connection": conn_id, **asdict(report)}
        for conn_id in options.connection or target_connections()
        for report in keep_house(
            housekeeper(conn_id, connection),
            older_than_days=options.older_than_days,
            is_dry_run=options.dry_run,
        )
    ]
    output.rows(rows, _COLUMNS, empty="nothing to do")
    return OK


def _prepare_spark_arguments(parser: Parser) -> None:
    parser.add_argument("--again", action="store_true", help="make it also where there is one that fits")


@command(
    "prepare-spark",
    "let loads on this machine start sooner: make an archive of the classes that Spark loads",
    _prepare_spark_arguments,
    details="""\
example: python -m kafka_ingest prepare-spark
Once on each machine that submits jobs, and again after an update of Java or Spark: an archive that does
not fit is not used. It is kept in the virtual environment, else in ~/.cache/kafka-ingest; the variable
KAFKA_INGEST_CACHE names another folder.""",
)
def run_prepare_spark(options: argparse.Namespace, output: Output) -> int:
    """Make the archive of Spark's classes, unless there is one that fits, and say what it gains."""
    from kafka_ingest.spark.class_archive import prepare_archive
    from kafka_ingest.spark.installation import class_archive

    if not options.again and (existing := class_archive()):
        output.record({"archive": str(existing), "result": "it is there and fits: nothing to do"})
        return OK
    output.note("starting a small Spark job three times: as it is, to make the archive, and with it")
    made = prepare_archive()
    output.record(
        {
            "archive": str(made.path),
            "result": "made, and used by a second start",
            "classes loaded by a start": made.loaded_classes,
            "classes of these from it": made.archived_classes,
            "CPU seconds of a start without it": round(made.cpu_seconds_without, 1),
            "CPU seconds of a start with it": round(made.cpu_seconds_with, 1),
        }
    )
    return OK


UPKEEP = (run_housekeeping, run_prepare_spark)
