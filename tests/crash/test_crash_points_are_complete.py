"""No call of a port can be forgotten: crash points are compared with the ports, and with what a run calls."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_ingest.protocol import ports
from tests.crash.crash_points import (
    KINDS,
    NEW_TABLE_POINTS,
    POINTS,
    REBUILD,
    REBUILD_INTO_NEW_TABLE,
    REBUILD_POINTS,
    RELOAD_EVERYTHING,
    STATE_POINTS,
    STATE_RELOAD_POINTS,
    CrashPoint,
)
from tests.crash.instructions import Instructions
from tests.crash.pipeline_at_risk import PipelineAtRisk
from tests.crash.state_at_risk import StateAtRisk
from tests.crash.watched_ports import FOLD_WRITES

#: Ports by the name that they have in events. Clock and RunStates change nothing and read no state of ours; what
#: GroupMirror writes is never read, and is written anew by the next run; no run uses PositionLedger, whose changes
#: ``test_changes_killed.py`` kills, as it does roll-backs; an audit of everything only
#: reads WrittenTable.
PORTS = {
    "ledger": ports.Ledger,
    "log": ports.Log,
    "target": ports.Target,
    "staging": ports.Staging,
    "runner": ports.TaskRunner,
    "publisher": ports.Publisher,
    "publication": ports.Publication,
    "evolution": ports.SchemaEvolution,
}
LEFT_OUT = {ports.Clock, ports.RunStates, ports.GroupMirror, ports.PositionLedger, ports.WrittenTable}
LEFT_OUT_CALLS = {
    # Only an attempt that has failed already calls it; dying there leaves the hold to its time-out.
    "ledger.release_hold",
    # Reads for a warning, after the batch is committed.
    "ledger.dead_letter_groups",
    # Reads, outside of the steps: Airflow's tasks after the load find their batch with it.
    "ledger.batch_of",
}
EVERY_POINT = {*POINTS, *STATE_POINTS, *NEW_TABLE_POINTS}
CALLS = {point.call.partition(".")[2] for point in EVERY_POINT}


def methods_of(port: type) -> Iterator[str]:
    return (name for name, member in vars(port).items() if callable(member) and not name.startswith("_"))


def test_every_port_is_watched_or_left_out_for_a_reason() -> None:
    defined = [member for member in vars(ports).values() if getattr(member, "__module__", "") == ports.__name__]
    found = {member for member in defined if getattr(member, "_is_protocol", False)}
    assert found == {*PORTS.values(), *LEFT_OUT}


@pytest.mark.parametrize("name", PORTS)
def test_every_method_of_a_port_has_a_crash_point(name: str) -> None:
    missing = {f"{name}.{method}" for method in methods_of(PORTS[name])} - CALLS - LEFT_OUT_CALLS
    assert missing == set()


@pytest.mark.parametrize("parameters", ["{}", RELOAD_EVERYTHING], ids=["live", "reload"])
def test_every_call_of_a_run_has_a_crash_point_in_its_step(
    pipeline: PipelineAtRisk, tmp_path: Path, parameters: str
) -> None:
    trace = tmp_path / "trace"
    driver = pipeline.start(Instructions(pipeline.name, "traced", parameters, trace=str(trace)))
    assert driver.end() == 0, driver.output
    called = {line.partition(":")[0] for line in trace.read_text().splitlines()}
    assert called - {point.call for point in POINTS} == set()
    pipeline.run_until_nothing_is_left()
    pipeline.require_every_record_once()


@pytest.mark.parametrize(
    ("parameters", "points"),
    [
        ("{}", STATE_POINTS),
        (RELOAD_EVERYTHING, STATE_RELOAD_POINTS),
        (REBUILD, REBUILD_POINTS),
        (REBUILD_INTO_NEW_TABLE, NEW_TABLE_POINTS),
    ],
    ids=["live", "reload", "rebuild", "rebuild into a new table"],
)
def test_every_call_of_a_run_that_folds_has_a_crash_point_in_its_step(
    state: StateAtRisk, tmp_path: Path, parameters: str, points: tuple[CrashPoint, ...]
) -> None:
    if parameters != "{}":
        state.load_everything()
    trace = tmp_path / "trace"
    driver = state.start(Instructions(state.name, "traced", parameters, trace=str(trace)))
    assert driver.end() == 0, driver.output
    called = {line.partition(":")[0] for line in trace.read_text().splitlines()}
    assert called - {point.call for point in (*STATE_POINTS, *points)} == set()
    assert {point.call for point in points if point not in POINTS} - called == set()


def test_every_statement_of_a_fold_that_writes_has_a_crash_point() -> None:
    assert {call for call in CALLS if call.startswith("fold.")} == {f"fold.{query}" for query in FOLD_WRITES}


def test_points_are_named_once_and_every_kind_has_some() -> None:
    assert len({point.name for point in EVERY_POINT}) == len(EVERY_POINT)
    assert {point.kind for point in POINTS} == set(KINDS)
