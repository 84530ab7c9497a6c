"""Two faults in one run: every ordered pair of points. Whatever the first two attempts came to, the third ends well.

Of a reload, and of a batch with new fields, every first fault is tried with a sample of second ones, always the same.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.protocol_model.crash_points import Fault
from tests.protocol_model.driven_steps import drive_steps
from tests.protocol_model.stores import FakeStore
from tests.protocol_model.two_faults import EVOLVING, LIVE, RELOAD, faults_of_a_run, require_one_copy


def test_the_points_of_a_run_are_before_and_after_each_of_its_port_calls() -> None:
    """Worked out from the steps: 4 calls of plan; claim, create, parallelism, run, read and stage of 2 tasks, Kafka's
    ids, 8 of publish, drop and read of load; 4 of audit. Each twice, the start, and 4 fates of the answer to COMMIT.

    A reload also asks Kafka and the ledger for offsets at a time, and reads 2 splits more: one ends at the position. A
    batch with new fields is staged twice.
    """
    assert len(faults_of_a_run(LIVE)) == 2 * (4 + 4 + 2 * 2 + 1 + 8 + 2 + 4) + 1 + 4
    assert len(faults_of_a_run(RELOAD)) == len(faults_of_a_run(LIVE)) + 2 * (2 + 2)
    # Before the second pass: claim, create, parallelism, run, read and stage of 2 tasks, Kafka's ids, add_columns.
    assert len(faults_of_a_run(EVOLVING)) == len(faults_of_a_run(LIVE)) + 2 * (4 + 2 * 2 + 2)


@pytest.mark.parametrize("first", faults_of_a_run(LIVE), ids=str)
def test_after_any_two_faults_a_third_attempt_loads_everything_once(
    first: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive_steps(monkeypatch)
    for second in faults_of_a_run(LIVE):
        require_one_copy(FakeStore(), first, second, LIVE)


@pytest.mark.parametrize("first", faults_of_a_run(EVOLVING), ids=str)
def test_after_two_faults_of_a_batch_with_new_fields_a_third_attempt_loads_everything_once(
    first: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive_steps(monkeypatch)
    for second in Random(str(first)).sample(faults_of_a_run(EVOLVING), 12):
        require_one_copy(FakeStore(), first, second, EVOLVING)


@pytest.mark.parametrize("first", faults_of_a_run(RELOAD), ids=str)
def test_after_two_faults_of_a_reload_a_third_attempt_replaces_everything_once(
    first: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive_steps(monkeypatch)
    for second in Random(str(first)).sample(faults_of_a_run(RELOAD), 12):
        require_one_copy(FakeStore(), first, second, RELOAD)
