"""Parts of a real Spark are killed in the middle of COPY, and every record is there once."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kafka_ingest.errors import OK, Fenced
from kafka_ingest.spark.submission import read_outcome
from sandbox.airflow_settings import connection_variables, spark_connection
from sandbox.kafka import KafkaBroker
from sandbox.paths import CHECKOUT, tool
from sandbox.spark import SparkCluster
from tests.crash.gated_table import PUBLISHING, START_SECONDS, Gate, gated_table
from tests.crash.instructions import Instructions
from tests.crash.mixed_topic import MixedTopic, read_independently, value
from tests.crash.pipeline_at_risk import SECTIONS, DriverProcess, PipelineAtRisk
from tests.crash.process_tree import ancestor, child, is_running, state_of
from tests.deadlines import until
from tests.integration.pipeline_under_test import PipelineUnderTest, set_connections
from tests.services import KAFKA_SECONDS, FreshTopics, Producers, as_role

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")

#: Enough offsets for two tasks, one for each partition; the gate stands in the second of a task's three COPYs.
RECORDS, PARTITIONS, GATED = 60_000, 2, 20_000
RETRY_LATER = 75
EXECUTOR = {"spark.cores.max": "2", "spark.pyspark.python": sys.executable}
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """Two workers with one core each, on two addresses; no other test run shares its ports."""
    spark = SparkCluster(tmp_path_factory.mktemp("cluster") / "spark", workers=2, cores=1)
    spark.start()
    yield spark
    spark.destroy()


@pytest.fixture(scope="module")
def large_topic(kafka_broker: KafkaBroker) -> Iterator[MixedTopic]:
    topics, producers = FreshTopics(kafka_broker.bootstrap), Producers(kafka_broker.bootstrap)
    name = topics.create(PARTITIONS)
    producer = producers.create(queue_buffering_max_messages=RECORDS)
    for number in range(RECORDS):
        producer.produce(name, value=value(number), partition=number % PARTITIONS)
    assert producer.flush(KAFKA_SECONDS) == 0
    yield read_independently(kafka_broker.bootstrap, name)
    topics.delete_all()


@pytest.fixture
def large(
    tmp_path: Path,
    database: dict[str, Any],
    kafka_broker: KafkaBroker,
    large_topic: MixedTopic,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Iterator[PipelineAtRisk]:
    """A pipeline that loads the large topic in one run, on two cores of this process's Spark."""
    set_connections(monkeypatch, bootstrap=kafka_broker.bootstrap, database=as_role("loader", database))
    monkeypatch.setenv("KAFKA_INGEST_PIPELINES", str(tmp_path))
    at_risk = PipelineAtRisk(PipelineUnderTest("events", tmp_path, database, capfd), large_topic)
    write(at_risk)
    try:
        yield at_risk
    finally:
        at_risk.end_all()


def write(pipeline: PipelineAtRisk, **conf: str) -> None:
    spark = {"executor_memory": "512m", "conf": conf}
    pipeline.files.write(pipeline.topic.name, **{**SECTIONS, "limit": {}, "spark": spark})


def start_on(cluster: SparkCluster, pipeline: PipelineAtRisk, **conf: str) -> DriverProcess:
    write(pipeline, **EXECUTOR, **conf)
    master = connection_variables({"spark_default": spark_connection(cluster.master_url, cluster.secret)})
    return pipeline.start_command("run", pipeline.name, "--run-id", "killed", environment=master)


def test_a_fenced_attempt_gives_its_cores_to_the_newer_one_and_both_end(
    large: PipelineAtRisk, cluster: SparkCluster
) -> None:
    with gated_table(large, gated=GATED, for_long=True) as gate:
        older = start_on(cluster, large)
        gate.waiting_client()
        # Neither of the cluster's two cores is left for it.
        newer = start_on(cluster, large)
        until(lambda: "a newer claim or plan took the batch" in older.output, "the older one is fenced", START_SECONDS)
        gate.open()
        assert newer.process.wait(START_SECONDS) == 0, newer.output
        assert older.process.wait(START_SECONDS) == 0, older.output
    assert large.files.query("SELECT state, claim FROM kafka_ingest.batch") == [("committed", 2)]
    large.require_every_record_once()


@pytest.mark.parametrize("victim", ["executor", "Python worker"])
def test_a_task_whose_process_is_killed_in_the_middle_of_copy_runs_again_and_its_rows_are_there_once(
    large: PipelineAtRisk, cluster: SparkCluster, victim: str
) -> None:
    with gated_table(large, gated=GATED) as gate:
        job = start_on(cluster, large)
        worker = gate.waiting_client()
        is_executor = victim == "executor"
        os.kill(ancestor(worker, "CoarseGrainedExecutorBackend") if is_executor else worker, signal.SIGKILL)
        assert job.process.wait(START_SECONDS) == 0, job.output
        # Both attempts of the task, and the publish of what the second one staged.
        assert gate.passages() == 3
    large.require_every_record_once()


def test_a_slow_task_and_its_speculative_copy_load_its_rows_once(large: PipelineAtRisk, cluster: SparkCluster) -> None:
    with gated_table(large, gated=GATED) as gate:
        job = start_on(cluster, large, **SPECULATION)
        gate.waiting_client()
        until(lambda: gate.passages() == 2, "Spark has started a copy of the slow task", START_SECONDS)
        # Now both copy on, to the same end.
        gate.open()
        assert job.process.wait(START_SECONDS) == 0, job.output
        assert gate.passages() == 3
    large.require_every_record_once()


def test_a_driver_whose_jvm_is_killed_in_the_middle_of_copy_ends_with_its_workers(large: PipelineAtRisk) -> None:
    with gated_table(large, gated=GATED) as gate:
        job = large.start_command("run", large.name, "--run-id", "killed")
        worker = gate.waiting_client()
        jvm = ancestor(worker, "SparkSubmit")
        driver = child(jvm, "load_batch.py")
        assert driver is not None
        os.kill(jvm, signal.SIGKILL)
        until(lambda: not is_running(driver) and not is_running(worker), "driver and worker have ended with their JVM")
        require_a_retry_loads_everything(large, job, gate)


def test_a_python_worker_that_is_killed_on_a_local_master_is_told_with_the_offsets_that_it_was_at(
    large: PipelineAtRisk,
) -> None:
    with gated_table(large, gated=GATED) as gate:
        job = large.start_command("run", large.name, "--run-id", "killed")
        os.kill(gate.waiting_client(), signal.SIGKILL)
        # A local master tries each task once.
        assert job.process.wait(START_SECONDS) == RETRY_LATER, job.output
        assert "processes of staging tasks died" in job.output
        assert re.search(rf"at work: {re.escape(large.topic.name)}\[\d+\] offsets \[\d+, \d+\)", job.output), job.output
        large.require_all_or_nothing()
        gate.open()
        assert large.run("killed").state.value == "committed"
    large.require_every_record_once()


def test_a_driver_whose_jvm_is_killed_while_it_publishes_ends_by_itself(large: PipelineAtRisk) -> None:
    with gated_table(large, gated=GATED, passage=PUBLISHING) as gate:
        job = large.start_command("run", large.name, "--run-id", "killed")
        # It does not talk to Spark any more: without the kernel's help it would go on as an orphan.
        driver = gate.waiting_client()
        os.kill(ancestor(driver, "SparkSubmit"), signal.SIGKILL)
        until(lambda: not is_running(driver), "the driver has ended with its JVM")
        require_a_retry_loads_everything(large, job, gate)


def require_a_retry_loads_everything(pipeline: PipelineAtRisk, job: DriverProcess, gate: Gate) -> None:
    assert job.end() == RETRY_LATER, job.output
    assert "the job ended without having committed the batch" in job.output
    pipeline.require_all_or_nothing()
    assert pipeline.loaded()[0].total() == 0
    gate.open()
    assert pipeline.run("killed").state.value == "committed"
    pipeline.require_every_record_once()


@pytest.mark.slow
def test_a_load_that_was_killed_in_the_middle_of_copy_is_finished_by_the_same_run_of_spark(
    large: PipelineAtRisk,
) -> None:
    with gated_table(large, gated=GATED) as gate:
        killed = large.start_command("run", large.name, "--run-id", "killed")
        os.kill(ancestor(gate.waiting_client(), "SparkSubmit"), signal.SIGKILL)
        assert killed.end() == RETRY_LATER, killed.output
        assert large.loaded()[0].total() == 0
        gate.open()
        retry = large.start_command("run", large.name, "--run-id", "killed")
        assert retry.process.wait(START_SECONDS) == OK, retry.output
    assert large.files.query("SELECT state, claim FROM kafka_ingest.batch") == [("committed", 2)]
    large.require_every_record_once()


def test_an_orphaned_driver_that_does_not_end_is_fenced(pipeline: PipelineAtRisk, tmp_path: Path) -> None:
    pipeline.run("before")
    planned = pipeline.plan("orphan")
    # The job's main alone does not ask the kernel to die with its JVM; its entry script does.
    instructions = Instructions(
        pipeline.name,
        batch_id=planned.batch_id,
        runner="spark",
        outcome=str(tmp_path / "outcome"),
        stop_at="load.runner.run:after",
        stop_with=signal.SIGSTOP,
    )
    jvm = pipeline.launch(spark_submit(instructions), {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"})
    driver = stopped_driver(jvm)
    try:
        jvm.process.kill()
        jvm.end()
        assert is_running(driver), "the driver should live on as an orphan"
        newer = pipeline.run("newer")
        before = pipeline.everything()
        os.kill(driver, signal.SIGCONT)
        until(lambda: not is_running(driver), "the orphan has ended")
    finally:
        if is_running(driver):
            os.kill(driver, signal.SIGKILL)
    # What it writes to its output is lost with the JVM, which passed it on.
    with pytest.raises(Fenced, match="this attempt no longer owns the batch and changes nothing"):
        read_outcome(tmp_path / "outcome")
    assert newer.batch_id != planned.batch_id
    assert pipeline.everything() == before
    pipeline.run_until_nothing_is_left()
    pipeline.require_every_record_once()


def spark_submit(instructions: Instructions) -> list[str]:
    order = msgspec.json.encode(instructions).decode()
    conf = ["spark.ui.enabled=false", "spark.driver.host=127.0.0.1", "spark.log.level=WARN"]
    options = [word for setting in conf for word in ("--conf", setting)]
    script = str(CHECKOUT / "tests" / "crash" / "killed_driver.py")
    return [tool("spark-submit"), "--master", "local[2]", *options, script, order]


def stopped_driver(jvm: DriverProcess) -> int:
    """Waits until the Python driver below the JVM has stopped itself; gives its pid."""

    def is_stopped() -> bool:
        assert jvm.process.poll() is None, jvm.output
        driver = child(jvm.process.pid, "killed_driver.py")
        return driver is not None and state_of(driver) == "T"

    until(is_stopped, "the driver has stopped itself", START_SECONDS)
    driver = child(jvm.process.pid, "killed_driver.py")
    assert driver is not None
    return driver
