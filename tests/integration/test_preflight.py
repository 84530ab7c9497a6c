"""Preflight as a user runs it, against real topics, a real database and a real Spark."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from psycopg2 import sql

from sandbox.airflow_settings import spark_connection
from sandbox.kafka import KafkaBroker
from sandbox.spark import SparkCluster
from tests.integration.pipeline_under_test import (
    FedPipeline,
    PipelineUnderTest,
    password_of_the_database,
    set_connections,
)

PASSWORD = "s3cret-of-the-loader"
COLUMNS = (
    "payload bytea, key bytea, headers jsonb, kafka_topic text, kafka_generation integer, kafka_partition integer, "
    "kafka_offset bigint, kafka_timestamp timestamptz, batch_id uuid, kafka_timestamp_type text"
)
Rows = list[dict[str, str]]


@dataclass(frozen=True)
class Loader:
    """A role that may log in to the test's database and nothing else, and the owner's connection."""

    name: str
    owner: Any

    def run(self, statement: str) -> None:
        """Runs a statement as the owner of everything."""
        with self.owner.cursor() as cursor:
            cursor.execute(statement)


@pytest.fixture
def loader(
    database: dict[str, Any], kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch, pipeline: PipelineUnderTest
) -> Iterator[Loader]:
    """The role of the pipeline's connection; it is dropped with everything that was granted to it."""
    role = sql.Identifier(name := f"loader_{secrets.token_hex(6)}")
    with closing(psycopg2.connect(**database)) as owner:
        owner.autocommit = True
        with owner.cursor() as cursor:
            cursor.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(role, sql.Literal(PASSWORD)))
            temporary = sql.SQL("REVOKE TEMPORARY ON DATABASE {} FROM PUBLIC")
            cursor.execute(temporary.format(sql.Identifier(database["dbname"])))
        set_connections(
            monkeypatch,
            bootstrap=kafka_broker.bootstrap,
            database={**database, "user": name, "password": PASSWORD},
        )
        yield Loader(name, owner)
        with owner.cursor() as cursor:
            cursor.execute(sql.SQL("DROP OWNED BY {} CASCADE; DROP ROLE {}").format(role, role))


def preflight(pipeline: PipelineUnderTest, *arguments: str) -> tuple[int, Rows]:
    """Runs the command; gives its exit code and the rows, each of which shows no secret."""
    code, rows, notes = pipeline.command("preflight", pipeline.name, *arguments)
    shown = json.dumps(rows) + notes
    assert PASSWORD not in shown
    assert password_of_the_database() not in shown
    assert {tuple(row) for row in rows} == {("check", "pipeline", "result", "found", "fix")}
    return code, rows


def of(rows: Rows, *checks: str) -> list[tuple[str, str]]:
    """Return result and found of the rows of some checks."""
    return [(row["result"], row["found"]) for row in rows if row["check"] in checks]


def results(rows: Rows) -> dict[str, str]:
    return {row["check"]: row["result"] for row in rows}


def test_a_sound_pipeline_fails_nowhere(pipeline: FedPipeline) -> None:
    name = pipeline.open(2)

    code, rows = preflight(pipeline)

    assert code == 0
    assert results(rows) == {
        "kafka": "pass",
        f"topic {name}: replication factor": "warn",  # the tests have one broker
        "postgresql": "pass",
        "ledger": "pass",
        "privileges": "pass",
        "target table": "pass",
        "housekeeping": "pass",
        "spark": "pass",
        "spark-submit": "pass",
        "python packages": "pass",
    }


def test_settings_of_a_topic_that_endanger_records_are_named_with_the_command_that_changes_them(
    pipeline: FedPipeline,
) -> None:
    name = pipeline.open(
        1,
        {
            "retention.ms": "60000",
            "cleanup.policy": "compact,delete",
            "unclean.leader.election.enable": "true",
            "retention.bytes": "1073741824",
            "max.message.bytes": "150000000",
        },
    )

    code, rows = preflight(pipeline)

    concerns = {row["check"].removeprefix(f"topic {name}: "): row for row in rows if row["check"].startswith("topic")}
    assert code == 78
    assert {check: row["result"] for check, row in concerns.items()} == {
        "replication factor": "warn",
        "unclean.leader.election.enable": "warn",
        "cleanup.policy": "warn",
        "retention.ms": "fail",
        "retention.bytes": "warn",
        "max.message.bytes": "fail",
    }
    # Three days, as the pipeline runs once a day.
    assert f"--entity-name {name} --add-config retention.ms=259200000" in concerns["retention.ms"]["fix"]


def test_a_missing_topic_and_a_missing_table_are_told_together(pipeline: PipelineUnderTest) -> None:
    pipeline.write("not-there", target={"table": "shop.events"})

    code, rows = preflight(pipeline)

    assert code == 78
    assert of(rows, "topic not-there") == [("fail", "no such topic, or not visible to this client")]
    assert of(rows, "target table") == [("fail", "shop.events: expected a table; found no such table")]


def test_every_mismatch_of_a_broken_target_is_told_at_once(pipeline: FedPipeline, database: dict[str, Any]) -> None:
    pipeline.open()
    broken = COLUMNS.replace("payload bytea", "payload text").replace("kafka_offset bigint", "kafka_offset integer")
    pipeline.query(f"CREATE SCHEMA shop; CREATE UNLOGGED TABLE shop.events ({broken}, owner text NOT NULL)")

    code, rows = preflight(pipeline)

    assert code == 78
    assert of(rows, "target table") == [
        ("fail", "shop.events: expected a logged table; found an unlogged table, which a crash empties"),
        ("fail", "column payload: expected bytea; found text"),
        ("fail", "column kafka_offset: expected bigint; found integer"),
        (
            "fail",
            (
                "column owner: expected NULL allowed, or a default: the pipeline does not fill it; "
                "found text NOT NULL without a default"
            ),
        ),
        (
            "warn",
            "shop.events: expected an index that finds an offset range; found none, so a reload reads the whole table",
        ),
    ]


@pytest.mark.parametrize("creates_table", [True, False])
def test_the_grants_that_it_names_are_all_that_a_load_needs(
    pipeline: FedPipeline, loader: Loader, *, creates_table: bool
) -> None:
    pipeline.open(1, target={"table": pipeline.table, "create_table": creates_table})
    if not creates_table:
        loader.run(f"CREATE SCHEMA shop; CREATE TABLE shop.events ({COLUMNS})")
    pipeline.send(b"1")

    code, rows = preflight(pipeline)
    assert code == 78
    assert results(rows)["ledger"] == "fail"
    needed = {row["fix"] for row in rows if row["fix"].startswith("GRANT ") and row["check"] != "ledger"}
    tables = "kafka_ingest.attempt, kafka_ingest.batch, kafka_ingest.batch_hold, kafka_ingest.batch_partition"
    assert any(fix.startswith(f"GRANT INSERT ON {tables}") for fix in needed)
    for fix in needed:
        loader.run(fix)

    code, rows = preflight(pipeline)
    assert (code, [row for row in rows if row["result"] == "fail"]) == (0, [])
    assert pipeline.load_here()["counts"]["rows"] == 1


def test_a_broker_that_is_away_hides_no_fault_of_the_database(
    pipeline: PipelineUnderTest, database: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_connections(
        monkeypatch, bootstrap="127.0.0.1:1", database=database, spark=spark_connection("spark://127.0.0.1:1", "x")
    )
    monkeypatch.setattr("kafka_ingest.full_world._PREFLIGHT_SECONDS", 1.0)
    pipeline.write("orders")
    pipeline.query("DROP SCHEMA kafka_ingest CASCADE")

    code, rows = preflight(pipeline)

    assert code == 78
    assert results(rows) == {
        "kafka": "fail",
        "postgresql": "pass",
        "ledger": "fail",
        "privileges": "pass",
        "target table": "pass",
        "spark": "fail",
        "spark-submit": "pass",
        "python packages": "warn",
    }
    fixes = {row["check"]: row["fix"] for row in rows}
    assert fixes["ledger"] == "python -m kafka_ingest migrate"


def test_a_wrong_password_is_a_fault_of_the_connection_and_is_not_shown(pipeline: FedPipeline, loader: Loader) -> None:
    loader.run(f"ALTER ROLE {loader.name} PASSWORD 'another'")
    pipeline.open()

    code, rows = preflight(pipeline)

    assert code == 78
    [(result, found)] = of(rows, "postgresql")
    assert result == "fail"
    assert "password authentication failed" in found
    assert of(rows, "ledger", "privileges", "target table") == []


def test_a_broken_pipeline_file_is_a_row_beside_the_others(pipeline: FedPipeline) -> None:
    pipeline.open()
    (pipeline.folder / "broken.yaml").write_text("pipeline: broken\n")

    code, rows, _ = pipeline.command("preflight", "broken", "events")

    assert code == 78
    assert [(row["check"], row["pipeline"], row["result"]) for row in rows[:2]] == [
        ("pipeline file", "broken", "fail"),
        ("kafka", "events", "pass"),
    ]


def test_a_small_job_looks_at_the_packages_of_a_clusters_executors(
    pipeline: FedPipeline, kafka_broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = {"conf": {"spark.pyspark.python": sys.executable}, "executor_memory": "512m"}
    pipeline.open(spark=spark)
    cluster = SparkCluster(tmp_path / "spark", workers=1, cores=2)
    cluster.start()
    try:
        connection = spark_connection(cluster.master_url, cluster.secret)
        set_connections(monkeypatch, bootstrap=kafka_broker.bootstrap, database=pipeline.database, spark=connection)
        _, not_asked = preflight(pipeline)
        code, asked = preflight(pipeline, "--spark")
    finally:
        cluster.destroy()
    assert of(not_asked, "python packages") == [("warn", "not looked at: it takes a job on the cluster")]
    [(result, found)] = of(asked, "python packages")
    assert (code, result) == (0, "pass")
    assert f"Python {sys.version_info[0]}.{sys.version_info[1]}" in found


def test_a_python_that_tasks_cannot_run_on_is_told_with_sparks_own_reason(pipeline: FedPipeline) -> None:
    pipeline.open(spark={"conf": {"spark.pyspark.python": "/not/there/python3"}})

    _, not_asked = preflight(pipeline)
    code, asked = preflight(pipeline, "--spark")

    assert [result for result, _ in of(not_asked, "python packages")] == ["warn"]
    [(result, found)] = of(asked, "python packages")
    assert (code, result) == (78, "fail")
    assert 'Cannot run program "/not/there/python3"' in found
