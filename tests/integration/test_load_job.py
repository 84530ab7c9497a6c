"""The whole job as a user starts it: real processes, real spark-submit on local[2], real Kafka and PostgreSQL."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from sandbox.airflow_settings import spark_connection
from sandbox.kafka import KafkaBroker
from sandbox.spark import SparkCluster
from tests.integration.pipeline_under_test import FedPipeline, password_of_the_database, produced, set_connections
from tests.services import ProducerFactory, as_role

CHECKOUT = Path(__file__).resolve().parents[2]
PARTITIONS, RECORDS = 3, 3_000
BAD = (5, 1_234, 2_999)


@pytest.fixture
def pipeline(pipeline: FedPipeline, monkeypatch: pytest.MonkeyPatch) -> FedPipeline:
    """The pipeline, with the paths that its processes import from."""
    monkeypatch.setenv("PYTHONPATH", f"{CHECKOUT / 'plugins'}{os.pathsep}{CHECKOUT}")
    return pipeline


class CommandLines(threading.Thread):
    """Collects the command lines of all processes below this one, as every user of the machine could see them."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seen: set[str] = set()
        self._ended = threading.Event()

    def __enter__(self) -> CommandLines:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()

    def run(self) -> None:
        while not self._ended.wait(0.05):
            self.seen.update(_command_lines())


def _command_lines() -> Iterator[str]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                yield (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:  # it has ended
                continue


def kafka_ingest(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kafka_ingest", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)


def send(sender: Any, name: str, numbers: range) -> None:
    for number in numbers:
        value = b"{broken" if number in BAD else json.dumps({"n": number, "text": f"värde {number}"}).encode()
        sender.produce(name, key=f"{number}", value=value, partition=number % PARTITIONS)


def test_the_job_loads_every_record_once_and_shows_no_secret(pipeline: FedPipeline, producer: ProducerFactory) -> None:
    columns = [{"name": "n", "type": "bigint", "required": True}, {"name": "text", "type": "text"}]
    name = pipeline.open(PARTITIONS, value={"format": "json", "columns": columns}, tombstones="dead_letter")
    with produced(producer()) as sender:
        send(sender, name, range(RECORDS))
    assert kafka_ingest("migrate").returncode == 0
    with CommandLines() as lines:
        done = kafka_ingest("run", "events", "--run-id", "r1", "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    expected = [n for n in range(RECORDS) if n not in BAD]
    assert (summary["counts"]["rows"], summary["counts"]["dead_letters"]) == (len(expected), len(BAD))
    rows = pipeline.query("SELECT n, text, convert_from(key, 'UTF8') FROM shop.events ORDER BY n")
    assert rows == [(n, f"värde {n}", f"{n}") for n in expected]
    assert sorted(pipeline.dead_letters("key, value")) == sorted((f"{n}".encode(), b"{broken") for n in BAD)
    assert pipeline.query("SELECT count(*) FROM pg_tables WHERE schemaname = 'kafka_ingest_staging'") == [(0,)]

    password = password_of_the_database()
    shown = " ".join(lines.seen) + done.stdout + done.stderr
    assert "spark.ui.enabled=false" in shown, "spark-submit was not seen"
    assert not any(secret in shown for secret in (password, quote(password, safe=""), json.dumps(password)[1:-1]))
    assert "warning: 3 of 3,000 records became dead letters" in done.stderr
    assert "INFO session " in done.stderr
    assert re.search(r"INFO Spark application local-\d+ has started$", done.stderr, re.MULTILINE)

    again = kafka_ingest("run", "events", "--run-id", "r1", "--json")
    assert json.loads(again.stdout) == summary
    assert "was loaded before: Spark is not started" in again.stderr
    nothing_new = kafka_ingest("run", "events", "--json")
    assert (nothing_new.returncode, json.loads(nothing_new.stdout)["ranges"]) == (0, {})
    assert "has nothing to read: Spark is not started" in nothing_new.stderr


def test_a_fault_in_a_task_comes_back_in_its_class_and_without_a_trace(pipeline: FedPipeline) -> None:
    pipeline.open(2, value={"format": "json", "column": "document"}, dead_letters={"max_count": 1})
    for partition in range(2):
        pipeline.send(*[b"{"] * 5, partition=partition)
    done = kafka_ingest("run", "events")
    assert done.returncode == 78
    assert done.stderr.count("TooManyDeadLetters: ") == 1
    assert done.stderr.count("  expected: ") == 1
    assert "Traceback" not in done.stderr
    assert (pipeline.rows("document"), pipeline.dead_letters("reason")) == ([], [])


@pytest.mark.parametrize(
    ("python", "found"),
    [(str(Path(sys.base_prefix, "bin", "python3")), "No module named '"), ("/nowhere/python3", "Cannot run program")],
)
def test_executors_without_what_tasks_need_are_told_without_a_trace_and_not_tried_again(
    pipeline: FedPipeline, python: str, found: str
) -> None:
    pipeline.open(spark={"conf": {"spark.pyspark.python": python}})
    pipeline.send("1")
    done = kafka_ingest("run", "events")
    assert done.returncode == 78, done.stderr
    [message] = re.findall(r"(?ms)^ConfigError: .*", done.stderr)
    assert "Spark's executors cannot run the tasks of a load" in message
    assert found in message
    assert "python -m kafka_ingest preflight events --spark" in message


def test_on_a_cluster_executors_need_nothing_of_the_drivers_environment(
    pipeline: FedPipeline, kafka_broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The workers' python3 may lack the libraries.
    pipeline.open(PARTITIONS, spark={"conf": {"spark.pyspark.python": sys.executable}, "executor_memory": "512m"})
    for partition in range(PARTITIONS):
        pipeline.send(*map(str, range(partition, 30, PARTITIONS)), partition=partition)
    cluster = SparkCluster(tmp_path / "spark", workers=1, cores=2)
    cluster.start()
    try:
        spark = spark_connection(cluster.master_url, cluster.secret)
        loader = as_role("loader", pipeline.database)
        set_connections(monkeypatch, bootstrap=kafka_broker.bootstrap, database=loader, spark=spark)
        done = kafka_ingest("run", "events", "--json")
    finally:
        cluster.destroy()
    assert done.returncode == 0, done.stderr
    assert sorted(int(payload) for (payload,) in pipeline.rows("payload")) == list(range(30))


def test_a_record_that_only_insert_refuses_is_staged_again_as_a_dead_letter(pipeline: FedPipeline) -> None:
    pipeline.open(PARTITIONS, value={"format": "json", "columns": [{"name": "n", "type": "bigint"}]})
    pipeline.query("CREATE SCHEMA shop")
    pipeline.query(
        "CREATE TABLE shop.events (n bigint, key bytea, headers jsonb, kafka_topic text NOT NULL,"
        " kafka_generation int NOT NULL, kafka_partition int NOT NULL, kafka_offset bigint NOT NULL,"
        " kafka_timestamp timestamptz, kafka_timestamp_type text, batch_id uuid NOT NULL) PARTITION BY RANGE (n)"
    )
    pipeline.query("CREATE TABLE shop.events_small PARTITION OF shop.events FOR VALUES FROM (0) TO (1000)")
    for number in (1, 5_000, 2):
        pipeline.send(json.dumps({"n": number}), partition=number % PARTITIONS)
    done = kafka_ingest("run", "events", "--json")
    assert done.returncode == 0, done.stderr
    assert pipeline.query("SELECT n FROM shop.events ORDER BY n") == [(1,), (2,)]
    assert pipeline.dead_letters("value, reason") == [(b'{"n": 5000}', "refused_by_database")]
