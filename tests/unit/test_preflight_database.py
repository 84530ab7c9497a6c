"""What preflight makes of the target's database."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_ingest.preflight.database import (
    housekeeping_result,
    ledger_result,
    right_results,
    server_result,
    target_results,
)
from kafka_ingest.preflight.facts import CheckResult, Finding, ServerFacts, TargetFacts, Verdict
from kafka_ingest.settings import TargetSettings

TARGET = TargetSettings("shop", "orders")
MISSING = TargetFacts(is_there=False, faults=(Finding("no such table", "CREATE TABLE ..."),))


@pytest.mark.parametrize(
    ("version", "number", "verdict"),
    [
        ("13.22", 130_022, Verdict.FAIL),
        ("14.0", 140_000, Verdict.PASS),
        ("18.6", 180_006, Verdict.PASS),
        ("19beta1", 190_000, Verdict.WARN),
    ],
)
def test_postgresql_14_to_18_are_supported(version: str, number: int, verdict: Verdict) -> None:
    result = server_result(ServerFacts(version, number, "shop", "loader"))
    assert (result.check, result.result) == ("postgresql", verdict)
    assert f"PostgreSQL {version}, database shop, role loader" in result.found


def test_a_ledger_that_is_up_to_date_names_its_newest_migration() -> None:
    assert ledger_result("0001_ledger") == CheckResult("ledger", Verdict.PASS, "up to date: 0001_ledger")


def test_each_missing_right_is_a_line_with_its_grant() -> None:
    missing = (
        Finding("USAGE on SCHEMA kafka_ingest: not granted", "GRANT USAGE ..."),
        Finding("TEMPORARY on DATABASE shop: not granted", "GRANT TEMPORARY ..."),
    )
    assert list(right_results(missing)) == [
        CheckResult("privileges", Verdict.FAIL, "USAGE on SCHEMA kafka_ingest: not granted", "GRANT USAGE ..."),
        CheckResult("privileges", Verdict.FAIL, "TEMPORARY on DATABASE shop: not granted", "GRANT TEMPORARY ..."),
    ]
    assert [result.result for result in right_results(())] == [Verdict.PASS]


def test_a_missing_table_fails_unless_the_pipeline_creates_it() -> None:
    assert list(target_results(TARGET, MISSING)) == [
        CheckResult("target table", Verdict.FAIL, "no such table", "CREATE TABLE ...")
    ]
    creating = TargetSettings("shop", "orders", create_table=True)
    assert [result.result for result in target_results(creating, MISSING)] == [Verdict.PASS]


def test_a_table_that_is_lost_is_not_created() -> None:
    creating = TargetSettings("shop", "orders", create_table=True)
    lost = replace(MISSING, is_lost=True)
    assert [result.result for result in target_results(creating, lost)] == [Verdict.FAIL]


def test_every_mismatch_fails_and_every_weakness_warns() -> None:
    facts = TargetFacts(True, (Finding("a", "fix a"), Finding("b", "fix b")), (Finding("no index", "CREATE INDEX"),))
    assert [(r.result, r.found, r.fix) for r in target_results(TARGET, facts)] == [
        (Verdict.FAIL, "a", "fix a"),
        (Verdict.FAIL, "b", "fix b"),
        (Verdict.WARN, "no index", "CREATE INDEX"),
    ]


def test_a_table_that_fits_passes() -> None:
    assert list(target_results(TARGET, TargetFacts(True))) == [
        CheckResult("target table", Verdict.PASS, "shop.orders fits the pipeline")
    ]


@pytest.mark.parametrize(
    ("encoding", "verdict", "part"),
    [
        ("UTF8", Verdict.PASS, "database shop"),
        ("LATIN1", Verdict.WARN, "text that LATIN1 cannot hold become dead letters"),
        ("SQL_ASCII", Verdict.WARN, "counts bytes as characters"),
    ],
)
def test_a_database_in_another_encoding_than_utf8_is_a_warning(encoding: str, verdict: Verdict, part: str) -> None:
    result = server_result(ServerFacts("18.1", 180_001, "shop", "loader", encoding))
    assert result.result is verdict
    assert part in result.found


def test_leftovers_that_housekeeping_has_not_reached_for_days_are_a_warning_with_both_ways_to_run_it() -> None:
    assert housekeeping_result(0, "warehouse").result is Verdict.PASS
    warned = housekeeping_result(12, "warehouse")
    assert (warned.check, warned.result) == ("housekeeping", Verdict.WARN)
    assert warned.found.startswith("12 staging tables are left over")
    assert "kafka_ingest_housekeeping" in warned.fix
    assert "python -m kafka_ingest housekeeping --connection warehouse" in warned.fix
