"""Airflow's processes die and its states are changed by hand while loads run: every order ends in the table once."""

from __future__ import annotations

import os
import signal
import uuid
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import psutil
import pytest

from sandbox.process_table import process_table
from tests.crash.process_tree import command_of, parent_of
from tests.deadlines import until
from tests.e2e.airflow_world import RECORDS, START_SECONDS, AirflowWorld, Shop, opened_shop

# A scheduler that is killed and brought back takes minutes, more on a busy machine: make test-all and make test-airflow
# run these.
pytestmark = pytest.mark.slow


IN_PROCESS = {"in_process_below": RECORDS + 1}


@pytest.fixture
def shop(world: AirflowWorld, request: pytest.FixtureRequest) -> Shop:
    """A pipeline of the test's own, with the settings of its parameter."""
    return opened_shop(world, f"fault_{uuid.uuid4().hex[:6]}", **getattr(request, "param", {}))


def test_c05_c20_after_scheduler_and_workers_were_killed_every_order_is_there_once(
    world: AirflowWorld,
) -> None:
    """Two loads run: the job of one dies with Airflow, that of the other lives on and commits when nobody asks."""
    died, outlived = (opened_shop(world, name) for name in ("died_with_airflow", "outlived_airflow"))
    runs = {shop: world.start_run(shop) for shop in (died, outlived)}
    with world.held_before_commit(died, outlived):
        [(*_, claim)], [(*_, claim_of_orphan)] = world.batches(died), world.batches(outlived)
        kill_airflow_but(world, spark_job(world.batch_id(outlived, runs[outlived])))
    committed = [(runs[outlived], "committed", claim_of_orphan)]
    until(lambda: world.batches(outlived) == committed, "the orphan has committed", 60)
    world.server.start(report=lambda _: None)
    for shop, run_id in runs.items():
        world.require_success(shop, run_id)
        world.require_every_order_once(shop)
    assert world.batches(outlived) == committed
    assert world.batches(died) == [(runs[died], "committed", claim + 1)]


@pytest.mark.parametrize("shop", [{}, IN_PROCESS], indirect=True)
def test_c33_a_load_that_is_cleared_while_it_runs_is_loaded_once(world: AirflowWorld, shop: Shop) -> None:
    run_id = world.start_run(shop)
    with world.held_before_commit(shop):
        world.airflow.clear(shop.dag_id, run_id, ["load_batch"])
    world.require_success(shop, run_id)
    world.require_every_order_once(shop)
    assert [batch[:2] for batch in world.batches(shop)] == [(run_id, "committed")]


@pytest.mark.parametrize("shop", [{}, IN_PROCESS], indirect=True)
def test_c20_a_load_that_is_marked_failed_and_cleared_at_once_is_loaded_once(world: AirflowWorld, shop: Shop) -> None:
    run_id = world.start_run(shop)
    with world.held_before_commit(shop):
        world.airflow.mark_task(shop.dag_id, run_id, "load_batch", "failed")
        world.airflow.clear(shop.dag_id, run_id, ["load_batch", "audit_batch", "follow_up"])
    # Between the two the run may already count as failed.
    world.wait_for_success(shop, run_id)
    world.require_every_order_once(shop)
    assert [batch[:2] for batch in world.batches(shop)] == [(run_id, "committed")]


@pytest.mark.parametrize("shop", [IN_PROCESS], indirect=True)
def test_a_task_that_is_killed_while_it_loads_in_its_own_process_is_tried_again_and_loads_once(
    world: AirflowWorld, shop: Shop
) -> None:
    run_id = world.start_run(shop)
    with world.held_before_commit(shop):
        [(client_port,)] = world.ask(
            "SELECT client_port FROM pg_stat_activity WHERE application_name = 'kafka_ingest publish'"
        )
        os.kill(client_of(client_port), signal.SIGKILL)
    world.require_success(shop, run_id)
    world.require_every_order_once(shop)
    assert world.batches(shop) == [(run_id, "committed", 2)]
    for number in (1, 2):
        log = world.airflow.task_log(shop.dag_id, run_id, "load_batch", number)
        assert "In this process, without Spark: 1,000 offsets" in log
        assert "Spark-Submit" not in log


@pytest.mark.parametrize("shop", [{"in_process_below": RECORDS}], indirect=True)
def test_a_batch_of_as_many_offsets_as_the_pipeline_says_is_loaded_by_spark(world: AirflowWorld, shop: Shop) -> None:
    run_id = world.run(shop)
    log = world.airflow.task_log(shop.dag_id, run_id, "load_batch", 1)
    assert "With Spark: 1,000 offsets, not fewer than spark.in_process_below_offsets (1,000)" in log
    assert "Spark application" in log


def test_c05_a_load_that_was_marked_successful_before_it_ran_fails_the_audit_and_the_next_run_takes_its_range(
    world: AirflowWorld, shop: Shop
) -> None:
    marked = world.start_run(shop)
    world.airflow.mark_task(shop.dag_id, marked, "load_batch", "success")
    assert world.airflow.wait_for_run(shop.dag_id, marked) == "failed"
    assert "BatchNotCommitted" in world.airflow.task_log(shop.dag_id, marked, "audit_batch", 1)
    assert world.batches(shop) == [(marked, "planned", 0)]

    following = world.start_run(shop)
    world.require_success(shop, following)
    world.require_every_order_once(shop)
    assert world.batches(shop) == [(marked, "superseded", 0), (following, "committed", 1)]

    # Days later somebody clears what failed then: there is nothing left to load.
    world.airflow.clear(shop.dag_id, marked)
    world.require_success(shop, marked)
    world.require_every_order_once(shop)
    assert world.batches(shop) == [(marked, "superseded", 0), (following, "committed", 1)]


@pytest.mark.parametrize("shop", [{"retries": 0}], indirect=True)
def test_c32_a_load_whose_retries_are_used_up_is_cleared_later_without_its_xcom(
    world: AirflowWorld, shop: Shop
) -> None:
    run_id = world.start_run(shop)
    until(lambda: world.batches(shop) != [], "the batch is planned", START_SECONDS)
    world.ask(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'no room' USING ERRCODE = 'disk_full'; END $$;"
        f"CREATE TRIGGER refuse BEFORE INSERT ON {shop.table} EXECUTE FUNCTION refuse()"
    )
    assert world.airflow.wait_for_run(shop.dag_id, run_id) == "failed"
    assert "DatabaseUnavailable" in world.airflow.task_log(shop.dag_id, run_id, "load_batch", 1)

    world.ask(f"DROP TRIGGER refuse ON {shop.table}")
    world.airflow.call(
        "DELETE", f"/dags/{shop.dag_id}/dagRuns/{run_id}/taskInstances/plan_batch/xcomEntries/return_value"
    )
    world.ask(
        "UPDATE kafka_ingest.batch_hold SET hold_until = now() - interval '3 days' WHERE batch_id::text = %s",
        world.batch_id(shop, run_id),
    )
    world.airflow.clear(shop.dag_id, run_id, ["load_batch", "audit_batch", "follow_up"])
    world.require_success(shop, run_id)
    world.require_every_order_once(shop)
    assert world.batches(shop) == [(run_id, "committed", 2)]


@pytest.mark.parametrize("shop", [{"schedule": '"@daily"'}], indirect=True)
def test_c06_scheduled_manual_and_backfill_runs_at_the_same_time_load_every_order_once(
    world: AirflowWorld, shop: Shop
) -> None:
    """``max_active_runs`` counts kinds of runs apart, so up to three of these run at once."""
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    span = {"from_date": (today - timedelta(days=9)).isoformat(), "to_date": (today - timedelta(days=8)).isoformat()}
    for _ in range(2):
        world.airflow.trigger(shop.dag_id)
    world.airflow.call("POST", "/backfills", {"dag_id": shop.dag_id, "max_active_runs": 2, **span})

    def kinds() -> Counter[str]:
        return Counter(run["run_type"] for run in world.airflow.runs(shop.dag_id))

    def states() -> set[str]:
        return {run["state"] for run in world.airflow.runs(shop.dag_id)}

    everything = Counter(scheduled=1, manual=2, backfill=2)
    until(lambda: kinds() >= everything and states() <= {"success", "failed"}, "all runs have ended", 600)
    assert states() == {"success"}
    world.require_every_order_once(shop)
    assert [state for _, state, _ in world.batches(shop)].count("committed") == 1


def client_of(port: int) -> int:
    """Return the process that has this port of its own."""
    [pid] = {c.pid for c in psutil.net_connections("tcp") if c.laddr and c.laddr.port == port and c.raddr}
    return int(pid)


def spark_job(batch_id: str) -> int:
    """Return the process that runs the batch's Spark driver."""
    found = [
        entry.pid
        for entry in process_table()
        if not entry.is_dead and "SparkSubmit" in command_of(entry.pid) and batch_id in command_of(entry.pid)
    ]
    return next(pid for pid in found if parent_of(pid) not in found)


def kill_airflow_but(world: AirflowWorld, survivor: int) -> None:
    """Kills scheduler, workers, tasks and their Spark jobs, except one job, as one blow."""
    session = world.server.process("scheduler").pid()
    spared = descendants(survivor)
    for entry in sorted(process_table(), key=lambda found: found.pid):
        if entry.session == session and entry.pid not in spared:
            with suppress(ProcessLookupError):
                os.kill(entry.pid, signal.SIGKILL)
    until(lambda: not world.server.process("scheduler").is_running(), "the scheduler is dead")


def descendants(pid: int) -> set[int]:
    found, parents = {pid}, {entry.pid: parent_of(entry.pid) for entry in process_table()}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found
