"""A soak's seed decides everything that can be decided before processes run."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest

from sandbox.soak.choices import FAULTS, FaultKind, RunKind, SoakOptions, choose_cycles
from sandbox.soak.pipeline import SoakMode
from sandbox.soak.traffic import PARTITIONS, PortionKind, portions


def test_the_same_seed_chooses_the_same_cycles_and_another_seed_others() -> None:
    options = SoakOptions(cycles=40, seed=7, airflow=6, spark=4)
    assert choose_cycles(options) == choose_cycles(options)
    assert choose_cycles(options) != choose_cycles(SoakOptions(cycles=40, seed=8, airflow=6, spark=4))


def test_as_many_runs_go_through_airflow_and_spark_as_asked_for() -> None:
    cycles = choose_cycles(SoakOptions(cycles=100, seed=3, airflow=15, spark=9))
    assert [cycle.number for cycle in cycles] == list(range(1, 101))
    assert Counter(cycle.run for cycle in cycles) == {
        RunKind.AIRFLOW: 15,
        RunKind.SPARK_LOCAL: 5,
        RunKind.SPARK_CLUSTER: 4,
        RunKind.IN_PROCESS: 76,
    }


def test_more_special_runs_than_cycles_are_refused() -> None:
    with pytest.raises(ValueError, match="more than the cycles"):
        choose_cycles(SoakOptions(cycles=3, seed=1, airflow=2, spark=2))


def test_every_cycle_has_one_or_two_faults_that_fit_its_run_in_the_order_of_their_moments() -> None:
    for cycle in choose_cycles(SoakOptions(cycles=300, seed=1, airflow=60, spark=60)):
        moments = [fault.moment for fault in cycle.faults]
        assert len(moments) in (1, 2)
        assert moments == sorted(moments)
        assert all(0 <= moment < 1 for moment in moments)
        assert {fault.kind for fault in cycle.faults} <= FAULTS[cycle.run].keys()


def test_hundreds_of_cycles_meet_every_kind_of_fault() -> None:
    cycles = choose_cycles(SoakOptions(cycles=600, seed=1, airflow=150, spark=150))
    assert {fault.kind for cycle in cycles for fault in cycle.faults} == set(FaultKind)


def test_the_same_seed_sends_the_same_records_and_another_seed_others() -> None:
    assert list(islice(portions(7), 20)) == list(islice(portions(7), 20))
    assert list(islice(portions(7), 20)) != list(islice(portions(8), 20))


def test_traffic_has_every_kind_of_portion_and_record_on_every_partition() -> None:
    some = list(islice(portions(1), 100))
    records = [record for portion in some for record in portion.records]
    assert {portion.kind for portion in some} == set(PortionKind)
    assert {record.partition for record in records} == set(range(PARTITIONS))
    assert {(record.key is None, record.value is None) for record in records} == {
        (False, False),
        (True, False),
        (False, True),
    }


def test_changes_of_a_key_stay_in_its_partition_and_write_it_again_after_a_tombstone() -> None:
    some = list(islice(portions(1, SoakMode.UPSERT), 100))
    records = [record for portion in some for record in portion.records]
    partitions: dict[bytes | None, set[int]] = {}
    removed, written_again = set(), set()
    for record in records:
        partitions.setdefault(record.key, set()).add(record.partition)
        if record.value is None:
            removed.add(record.key)
        elif record.key in removed:
            written_again.add(record.key)
    keyless = partitions.pop(None)
    assert {len(found) for found in partitions.values()} == {1}
    assert set().union(keyless, *partitions.values()) == set(range(PARTITIONS))
    assert len(written_again) > len(partitions) / 2
    assert {(record.key is None, record.value is None) for record in records} == {
        (is_keyless, is_tombstone) for is_keyless in (True, False) for is_tombstone in (True, False)
    }
