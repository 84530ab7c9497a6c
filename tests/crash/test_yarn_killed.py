"""A load on a real YARN is killed, starved and pushed aside, part by part, and every record is there once."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import pytest

from sandbox.airflow_settings import connection_variables
from sandbox.yarn import DEFAULT_QUEUE, HIGH_QUEUE, LOW_QUEUE, NARROW_QUEUE, YarnCluster
from tests.crash.gated_table import START_SECONDS, gated_table
from tests.crash.pipeline_at_risk import SECTIONS, DriverProcess, PipelineAtRisk
from tests.crash.process_tree import ancestor, child, is_running, processes_with
from tests.crash.test_spark_killed import (  # noqa: F401 (fixtures)
    GATED,
    PARTITIONS,
    RECORDS,
    RETRY_LATER,
    SPECULATION,
    large,
    large_topic,
)
from tests.deadlines import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")

#: A container of this load, master or executor: 512 MB of heap, and the 384 MB that Spark adds to it at least.
CONTAINER_MB = 896
#: Short enough to wait for its end, where no place in the queue can come.
PATIENCE_SECONDS = 20
#: Long enough for an application's master to start on a busy machine; the wait for executors is as long.
LONGER_PATIENCE_SECONDS = 120
CONFIG_ERROR = 78
EXECUTOR, MASTER = "YarnCoarseGrainedExecutorBackend", "org.apache.spark.deploy.yarn.ExecutorLauncher"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[YarnCluster]:
    """Two nodes with room for three containers each, on two addresses."""
    yarn = YarnCluster(tmp_path_factory.mktemp("cluster") / "yarn", nodes=2, memory_mb=3_072)
    yarn.start()
    yield yarn
    yarn.destroy()


@pytest.fixture(autouse=True)
def nothing_is_left(cluster: YarnCluster, large: PipelineAtRisk) -> Iterator[None]:  # noqa: F811 (the fixture)
    """Looks, after each test, that no application of its load is left in YARN."""
    yield
    try:
        until(lambda: not loads_in(cluster), "no load is left in YARN", START_SECONDS)
    finally:
        for application_id in cluster.applications():
            cluster.kill(application_id)


def loads_in(cluster: YarnCluster) -> list[str]:
    return [key for key, found in cluster.applications().items() if found["applicationType"] == "SPARK"]


def start_on(
    cluster: YarnCluster,
    pipeline: PipelineAtRisk,
    queue: str = DEFAULT_QUEUE,
    *,
    conf: Mapping[str, str] = MappingProxyType({}),
    patience_seconds: int = 1_800,
) -> DriverProcess:
    """Starts a load on YARN, as somebody at a gateway host does, or Airflow's worker there."""
    own = {"spark.executor.instances": "2", "spark.pyspark.python": sys.executable}
    hold = {**SECTIONS["hold"], "start_timeout_seconds": patience_seconds}
    spark = {"executor_memory": "512m", "conf": {**own, **conf}}
    pipeline.files.write(pipeline.topic.name, **{**SECTIONS, "limit": {}, "hold": hold, "spark": spark})
    connection = json.dumps({"conn_type": "spark", "host": "yarn", "extra": {"queue": queue}})
    variables = connection_variables({"spark_default": connection}) | cluster.environment
    return pipeline.start_command("run", pipeline.name, "--run-id", "killed", environment=variables)


def require_a_retry_loads_everything(pipeline: PipelineAtRisk) -> None:
    pipeline.require_all_or_nothing()
    assert pipeline.loaded()[0].total() == 0
    assert pipeline.run("killed").state.value == "committed"
    pipeline.require_every_record_once()


def test_a_task_whose_executor_is_killed_in_the_middle_of_copy_runs_again_and_its_rows_are_there_once(
    large: PipelineAtRisk,  # noqa: F811 (the fixture)
    cluster: YarnCluster,
) -> None:
    with gated_table(large, gated=GATED, for_long=True) as gate:
        job = start_on(cluster, large)
        os.kill(ancestor(gate.waiting_client(), EXECUTOR), signal.SIGKILL)
        assert job.process.wait(START_SECONDS) == 0, job.output
        # Both attempts of the task, and the publish of what the second one staged; a busy machine may have tried more.
        assert gate.passages() >= 3
    large.require_every_record_once()


@pytest.mark.slow
def test_an_application_master_that_is_killed_is_replaced_and_rows_are_there_once(
    large: PipelineAtRisk,  # noqa: F811 (the fixture)
    cluster: YarnCluster,
) -> None:
    with gated_table(large, gated=GATED, for_long=True) as gate:
        job = start_on(cluster, large)
        gate.waiting_client()
        [application_id] = loads_in(cluster)
        for process in processes_with(MASTER, application_id):
            os.kill(process, signal.SIGKILL)
        assert job.process.wait(START_SECONDS) == 0, job.output
    large.require_every_record_once()


@pytest.mark.parametrize("victim", ["JVM", pytest.param("Python driver", marks=pytest.mark.slow)])
def test_a_driver_that_is_killed_leaves_nothing_in_yarn(
    large: PipelineAtRisk,  # noqa: F811 (the fixture)
    cluster: YarnCluster,
    victim: str,
) -> None:
    with gated_table(large, gated=GATED, for_long=True) as gate:
        job = start_on(cluster, large)
        worker = gate.waiting_client()
        jvm = child(job.process.pid, "SparkSubmit")
        assert jvm is not None
        driver = child(jvm, "load_batch.py")
        assert driver is not None
        os.kill(jvm if victim == "JVM" else driver, signal.SIGKILL)
        until(lambda: not is_running(driver) and not is_running(jvm), "driver and JVM have ended together")
        assert job.end() == RETRY_LATER, job.output
        until(lambda: not is_running(worker), "its executors have ended", START_SECONDS)
        gate.open()
    require_a_retry_loads_everything(large)


def test_an_application_that_an_administrator_kills_ends_for_a_retry(
    large: PipelineAtRisk,  # noqa: F811 (the fixture)
    cluster: YarnCluster,
) -> None:
    with gated_table(large, gated=GATED, for_long=True) as gate:
        job = start_on(cluster, large)
        gate.waiting_client()
        [application_id] = loads_in(cluster)
        cluster.kill(application_id)
        assert job.process.wait(START_SECONDS) == RETRY_LATER, job.output
        assert "the cluster ended the application while its tasks ran" in job.output
        gate.open()
    require_a_retry_loads_everything(large)


def test_a_load_that_gets_no_place_in_the_queue_ends_for_a_retry_and_leaves_the_queue(
    large: PipelineAtRisk,  # noqa: F811 (the fixture)
    cluster: YarnCluster,
) -> None:
    occupier = cluster.occupy(NARROW_QUEUE, CONTAINER_MB)
    job = start_on(cluster, large, NARROW_QUEUE, patience_seconds=PATIENCE_SECONDS)
    until(lambda: bool(loads_in(cluster)), "the load waits in the queue", START_SECONDS)
    require_heartbeats(large)
    assert job.process.wait(START_SECONDS) == RETRY_LATER, job.output
    assert f"YARN gave the application no place within {PATIENCE_SECONDS} seconds" in job.output
    until(lambda: list(cluster.applications()) == [occupier], "the load has left the queue", START_SECONDS)
    require_hold_given_back(large)
    cluster.kill(occupier)
    job = start_on(cluster, large, NARROW_QUEUE)
    assert job.process.wait(START_SECONDS) == 0, job.output
    large.require_every_record_once()


@pytest.mark.slow
def test_a_load_whose_place_in_the_queue_an_administrator_takes_away_ends_for_a_retry(
    large: PipelineAtRisk,  # noqa: F811 (the fixture)
    cluster: YarnCluster,
) -> None:
    cluster.occupy(NARROW_QUEUE, CONTAINER_MB)
    job = start_on(cluster, large, NARROW_QUEUE)
    until(lambda: bool(loads_in(cluster)), "the load waits in the queue", START_SECONDS)
    cluster.kill(loads_in(cluster)[0])
    assert job.process.wait(START_SECONDS) == RETRY_LATER, job.output
    assert "Spark did not start on yarn" in job.output
    require_a_retry_loads_everything(large)


@pytest.mark.slow
def test_an_application_whose_driver_is_killed_in_the_queue_ends_as_soon_as_it_gets_its_place(
    large: PipelineAtRisk,  # noqa: F811 (the fixture)
    cluster: YarnCluster,
) -> None:
    occupier = cluster.occupy(NARROW_QUEUE, CONTAINER_MB)
    job = start_on(cluster, large, NARROW_QUEUE)
    until(lambda: bool(loads_in(cluster)), "the load waits in the queue", START_SECONDS)
    [application_id] = loads_in(cluster)
    jvm = child(job.process.pid, "SparkSubmit")
    assert jvm is not None
    os.kill(jvm, signal.SIGKILL)
    assert job.end() == RETRY_LATER, job.output
    cluster.kill(occupier)
    until(lambda: not loads_in(cluster), "its master has not found its driver", START_SECONDS)
    assert cluster.application(application_id)["finalStatus"] == "FAILED"
    require_a_retry_loads_everything(large)


@pytest.mark.parametrize(
    ("queue", "conf", "said"),
    [
        ("elsewhere", {}, "unknown queue: elsewhere"),
        (DEFAULT_QUEUE, {"spark.executor.memoryOverhead": "4g"}, "is above the max threshold"),
    ],
)
def test_what_yarn_can_never_give_is_a_fault_of_the_configuration(
    large: PipelineAtRisk,  # noqa: F811 (the fixture)
    cluster: YarnCluster,
    queue: str,
    conf: dict[str, str],
    said: str,
) -> None:
    job = start_on(cluster, large, queue, conf=conf)
    assert job.process.wait(START_SECONDS) == CONFIG_ERROR, job.output
    assert "Spark refuses to start the application on yarn" in job.output
    assert said in job.output
    assert cluster.applications() == {}


@pytest.mark.slow
def test_a_load_whose_executors_get_no_container_beats_and_then_ends_for_a_retry(
    large: PipelineAtRisk,  # noqa: F811 (the fixture)
    cluster: YarnCluster,
) -> None:
    place = cluster.occupy(DEFAULT_QUEUE, CONTAINER_MB)
    until(lambda: cluster.holds_memory(place), "the place of the application's master is kept", START_SECONDS)
    occupiers = cluster.fill(DEFAULT_QUEUE)
    cluster.kill(place)
    job = start_on(cluster, large, patience_seconds=LONGER_PATIENCE_SECONDS)
    until(lambda: is_running_in(cluster), "the application has its master", START_SECONDS)
    require_heartbeats(large)
    assert job.process.wait(START_SECONDS) == RETRY_LATER, job.output
    assert f"Spark gave the application no executor for {LONGER_PATIENCE_SECONDS} seconds" in job.output
    require_hold_given_back(large)
    for occupier in occupiers:
        cluster.kill(occupier)
    require_a_retry_loads_everything(large)


@pytest.mark.slow
def test_a_load_whose_executors_a_queue_of_higher_rank_takes_back_goes_on_when_it_gets_others(
    large: PipelineAtRisk,  # noqa: F811 (the fixture)
    cluster: YarnCluster,
) -> None:
    with gated_table(large, gated=GATED, for_long=True) as gate:
        job = start_on(cluster, large, LOW_QUEUE)
        executor = ancestor(gate.waiting_client(), EXECUTOR)
        cluster.fill(DEFAULT_QUEUE)
        higher = [cluster.occupy(HIGH_QUEUE, CONTAINER_MB) for _ in range(2)]
        until(lambda: all(map(cluster.holds_memory, higher)), "both executors have been taken back", START_SECONDS)
        until(lambda: not is_running(executor), "the executor has ended", START_SECONDS)
        for application_id in higher:
            cluster.kill(application_id)
        assert job.process.wait(START_SECONDS) == 0, job.output
        # At least both attempts of the task and the publish: on a busy machine the first may have been tried again.
        assert gate.passages() >= 3
    assert "was preempted" in job.output
    large.require_every_record_once()


@pytest.mark.slow
def test_a_slow_task_and_its_speculative_copy_load_its_rows_once(
    large: PipelineAtRisk,  # noqa: F811 (the fixture)
    cluster: YarnCluster,
) -> None:
    # So large that each node has room for one.
    one_a_node = {"spark.executor.memoryOverhead": "1400m"}
    with gated_table(large, gated=GATED, for_long=True) as gate:
        job = start_on(cluster, large, conf={**one_a_node, **SPECULATION})
        gate.waiting_client()
        until(lambda: gate.passages() == 2, "Spark has started a copy of the slow task", START_SECONDS)
        # Now both copy on, to the same end.
        gate.open()
        assert job.process.wait(START_SECONDS) == 0, job.output
        assert gate.passages() == 3
    # It was a copy, and not the same task tried again.
    assert "TaskCrashed" not in job.output
    large.require_every_record_once()


@pytest.mark.slow
def test_with_dynamic_allocation_executors_come_for_the_tasks_and_go_before_the_last_one_has_ended(
    large: PipelineAtRisk,  # noqa: F811 (the fixture)
    cluster: YarnCluster,
) -> None:
    dynamic = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.minExecutors": "0",
        "spark.dynamicAllocation.maxExecutors": "2",
        "spark.dynamicAllocation.executorIdleTimeout": "2s",
        "spark.executor.instances": "0",
    }
    with gated_table(large, gated=GATED, for_long=True) as gate:
        job = start_on(cluster, large, conf=dynamic)
        gate.waiting_client()
        [application_id] = loads_in(cluster)
        until(lambda: staged_offsets(large) > RECORDS // PARTITIONS, "the other task has ended", START_SECONDS)
        left = "the application's master and the executor of the slow task are left"
        until(lambda: cluster.application(application_id)["runningContainers"] == 2, left, START_SECONDS)
        gate.open()
        assert job.process.wait(START_SECONDS) == 0, job.output
    large.require_every_record_once()


def staged_offsets(pipeline: PipelineAtRisk) -> int:
    [(found,)] = pipeline.files.query("SELECT staged_offsets FROM kafka_ingest.batch_hold")
    return int(found)


def is_running_in(cluster: YarnCluster) -> bool:
    return any(cluster.application(key)["state"] == "RUNNING" for key in loads_in(cluster))


def require_heartbeats(pipeline: PipelineAtRisk) -> None:
    before = heartbeats(pipeline)
    until(lambda: heartbeats(pipeline) > before, "the load that waits gives a sign of life")


def heartbeats(pipeline: PipelineAtRisk) -> list[tuple[object, ...]]:
    return pipeline.files.query("SELECT heartbeat_at FROM kafka_ingest.batch_hold")


def require_hold_given_back(pipeline: PipelineAtRisk) -> None:
    held = "SELECT count(*) FROM kafka_ingest.batch_hold WHERE hold_until > clock_timestamp()"
    assert pipeline.files.query(held) == [(0,)]
