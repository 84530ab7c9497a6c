"""The administration DAG moves positions and undoes batches; the housekeeping DAG tidies.

One pipeline, one topic with six records; the tests go on where the ones before them left table and position.
"""

from __future__ import annotations

from typing import Any

import pytest

from kafka_ingest.protocol.position import TopicPartition
from tests.contracts.test_group_mirror_contract import offsets_of
from tests.deadlines import until
from tests.e2e.airflow_world import AirflowWorld
from tests.e2e.lines_pipeline import HOUR, LinesPipeline, new_topic, require_lines_once, send_lines, this_hour, two_each

ADMINISTRATION, HOUSEKEEPING = "kafka_ingest_administration", "kafka_ingest_housekeeping"
OPTIONS = "schedule: null\nmirror_group: true"
#: The DAG processor reads the file again every few seconds, on a busy machine much later.
FORM_SECONDS = 120.0


@pytest.fixture(scope="module")
def lines(world: AirflowWorld) -> LinesPipeline:
    """Six records, loaded by one run."""
    pipeline = LinesPipeline("administered", new_topic(world), OPTIONS)
    send_lines(world, pipeline.topic, two_each(this_hour() - 3 * HOUR, HOUR, 3))
    world.add(pipeline)
    world.open_dag(ADMINISTRATION)
    until(lambda: pipeline.name in pipelines_of_form(world), "the form offers the pipeline", FORM_SECONDS)
    world.run(pipeline)
    return pipeline


def pipelines_of_form(world: AirflowWorld) -> list[str]:
    """Return what the DAG processor has put into the form, which it does anew when a pipeline file was added."""
    form = world.airflow.call("GET", f"/dags/{ADMINISTRATION}/details")["params"]
    pipelines: list[str] = form["pipeline"]["schema"]["enum"]
    return pipelines


def administer(world: AirflowWorld, **form: Any) -> str:
    """Fills in the form and waits for the green end; gives the run's id."""
    run_id = world.airflow.trigger(ADMINISTRATION, conf={"pipeline": "administered", **form})
    world.require_end(ADMINISTRATION, run_id, "success")
    return run_id


def log_of(world: AirflowWorld, run_id: str) -> str:
    return world.airflow.task_log(ADMINISTRATION, run_id, "administer", 1)


def position(world: AirflowWorld) -> int:
    query = "SELECT committed_offset FROM kafka_ingest.committed_offset WHERE pipeline = 'administered'"
    return int(world.ask(query)[0][0])


def changes(world: AirflowWorld) -> list[tuple[Any, ...]]:
    return world.ask(
        "SELECT request_id, kind, who, why, from_offset, to_offset FROM kafka_ingest.position_change"
        " WHERE pipeline = 'administered' AND kind <> 'initialised' ORDER BY change_number"
    )


def test_preflight_from_the_form_is_green_and_lists_its_checks(world: AirflowWorld, lines: LinesPipeline) -> None:
    run_id = administer(world, kind="preflight")
    checks = world.airflow.xcom(ADMINISTRATION, run_id, "administer")["checks"]
    assert {check["result"] for check in checks} <= {"pass", "warn"}
    assert any(lines.topic in check["check"] or lines.topic in check["found"] for check in checks)


def test_the_position_is_copied_to_the_consumer_group_of_the_pipeline(
    world: AirflowWorld, lines: LinesPipeline
) -> None:
    assert offsets_of(world.bootstrap, "kafka_ingest.administered", lines.topic) == {TopicPartition(lines.topic, 0): 6}


def test_a_reset_without_apply_shows_what_would_change_and_changes_nothing(
    world: AirflowWorld, lines: LinesPipeline
) -> None:
    run_id = administer(world, kind="reset", reset_to="earliest", reason="look first")
    assert "This is what would happen; nothing was changed" in log_of(world, run_id)
    assert world.airflow.xcom(ADMINISTRATION, run_id, "administer")["applied"] is False
    assert (position(world), changes(world)) == (6, [])


def test_a_reset_is_recorded_with_who_and_why_and_done_once_however_often_it_is_cleared(
    world: AirflowWorld, lines: LinesPipeline
) -> None:
    form = {"kind": "reset", "reset_to": "offsets", "offsets": f"{lines.topic} 0 3"}
    run_id = administer(world, **form, reason="three were wrong", apply=True)
    done = [(run_id, "reset", "admin", "three were wrong", 6, 3)]
    assert (position(world), changes(world)) == (3, done)

    loading = world.run(lines)
    assert world.committed(lines)[-1] == (loading, 0, "live", 3, 6, 6)
    world.airflow.clear(ADMINISTRATION, run_id)
    world.require_end(ADMINISTRATION, run_id, "success")
    assert (position(world), changes(world)) == (6, done)
    require_lines_once(world, lines, range(6))


def test_a_batch_is_rolled_back_and_loaded_again_by_the_next_run(world: AirflowWorld, lines: LinesPipeline) -> None:
    send_lines(world, lines.topic, two_each(this_hour(), HOUR / 10, 1), first_offset=6)
    undone = world.run(lines)
    form = {"kind": "roll-back", "batches": 1, "reason": "loaded too early"}
    administer(world, **form)
    assert position(world) == 8

    run_id = administer(world, **form, apply=True)
    assert position(world) == 6
    assert changes(world)[-1][:4] == (run_id, "rolled_back", "admin", "loaded too early")
    require_lines_once(world, lines, range(6))

    again = world.run(lines)
    assert world.committed(lines)[-1] == (again, 0, "live", 6, 8, 8)
    assert [(run, state) for run, state, _ in world.batches(lines)][-2:] == [
        (undone, "rolled_back"),
        (again, "committed"),
    ]
    require_lines_once(world, lines, range(8))


def test_faults_of_the_form_are_one_message_and_no_retry(world: AirflowWorld, lines: LinesPipeline) -> None:
    form = {"pipeline": "administered", "kind": "reset", "batches": 2, "apply": True}
    run_id = world.airflow.trigger(ADMINISTRATION, conf=form)
    world.require_end(ADMINISTRATION, run_id, "failed")
    assert world.airflow.task(ADMINISTRATION, run_id, "administer")["try_number"] == 1
    assert all(f"{label}: expected" in log_of(world, run_id) for label in ("Reset to", "Batches", "Reason"))


def test_housekeeping_is_green_and_leaves_table_and_position(world: AirflowWorld, lines: LinesPipeline) -> None:
    before = position(world)
    world.open_dag(HOUSEKEEPING)
    run_id = world.airflow.trigger(HOUSEKEEPING)
    world.require_end(HOUSEKEEPING, run_id, "success")
    assert position(world) == before
    require_lines_once(world, lines, range(before))
