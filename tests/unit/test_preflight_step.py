"""Preflight asks everything, whatever fails on the way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest

from kafka_ingest.errors import BrokerUnavailable, ConfigError, DatabaseUnavailable, IngestError, LedgerOutdated
from kafka_ingest.preflight.facts import (
    CheckResult,
    ClusterFacts,
    FetchLimits,
    Finding,
    MasterFacts,
    PreflightPorts,
    ServerFacts,
    TargetFacts,
    TopicFacts,
    Verdict,
    failed,
    is_ready,
)
from kafka_ingest.preflight.preflight import preflight
from kafka_ingest.settings import BatchSettings, PipelineSettings, ScheduleSettings
from kafka_ingest.spark.installation import InterpreterFacts
from tests.builders import pipeline_settings

SETTINGS = pipeline_settings("orders")
OWN = InterpreterFacts("driver", "3.11.7", (("pyarrow", "26.0.1"),))
WORKER = replace(OWN, host="worker")


@dataclass
class World:
    """Kafka, database and Spark that are as they should be, but for the faults that a test names by method."""

    faults: dict[str, IngestError]
    spark_master: MasterFacts

    def answer(self, name: str) -> None:
        if name in self.faults:
            raise self.faults[name]

    def cluster(self) -> ClusterFacts:
        self.answer("cluster")
        return ClusterFacts("abc", "broker:9092", 3, "2.16.0")

    def topics(self, settings: PipelineSettings) -> Sequence[TopicFacts]:
        self.answer("topics")
        return [TopicFacts("orders", True, 3, (), 3, {"retention.ms": "3600000"})]

    def limits(self) -> FetchLimits:
        return FetchLimits(1, 1)

    def server(self) -> ServerFacts:
        self.answer("server")
        return ServerFacts("18.6", 180_006, "shop", "loader")

    def ledger_version(self) -> str:
        self.answer("ledger_version")
        return "0001_ledger"

    def missing_rights(self, settings: BatchSettings) -> Sequence[Finding]:
        self.answer("missing_rights")
        return ()

    def old_leftovers(self, days: int) -> int:
        self.answer("old_leftovers")
        return 0

    def target(self, settings: BatchSettings) -> TargetFacts:
        self.answer("target")
        return TargetFacts(is_there=True)

    def master(self) -> MasterFacts:
        self.answer("master")
        return self.spark_master

    def this_interpreter(self) -> InterpreterFacts:
        return OWN

    def executors(self) -> Sequence[InterpreterFacts]:
        self.answer("executors")
        return [WORKER]

    @contextmanager
    def open_kafka(self) -> Iterator[World]:
        self.answer("kafka")
        yield self

    def open(self, name: str) -> World:
        self.answer(name)
        return self


LOCAL = MasterFacts("local[2]")
CLUSTER = MasterFacts("spark://m:1", reachable=("m:1",), is_this_python=False)


def checked(
    faults: dict[str, IngestError] | None = None, *, master: MasterFacts = LOCAL, submit_job: bool = False
) -> list[tuple[str, str]]:
    world = World(faults or {}, master)
    return [(r.check, r.result.value) for r in preflight(SETTINGS, ports_of(world), submit_job=submit_job)]


def ports_of(world: World) -> PreflightPorts:
    return PreflightPorts(
        kafka=world.open_kafka,
        database=lambda: world.open("database"),
        spark=lambda: world.open("spark"),
        longest_interval_seconds=lambda schedule: {"@hourly": 1200.0}.get(schedule.schedule or ""),
    )


def test_everything_is_looked_at_in_a_stable_order() -> None:
    assert checked() == [
        ("kafka", "pass"),
        ("topic orders", "pass"),
        ("postgresql", "pass"),
        ("ledger", "pass"),
        ("privileges", "pass"),
        ("target table", "pass"),
        ("housekeeping", "pass"),
        ("spark", "pass"),
        ("python packages", "pass"),
    ]


def test_retention_is_compared_with_the_pipelines_own_schedule() -> None:
    ports = replace(ports_of(World({}, LOCAL)), longest_interval_seconds=lambda schedule: 1200.001)
    results = preflight(replace(SETTINGS, schedule=ScheduleSettings("@hourly")), ports)
    assert results[1].check == "topic orders: retention.ms"


def test_a_broker_that_does_not_answer_hides_nothing_else() -> None:
    for name in ("kafka", "cluster"):
        results = checked({name: BrokerUnavailable("no answer")})
        assert results[0] == ("kafka", "fail")
        assert [result for _, result in results[1:]] == ["pass"] * 7


def test_connections_that_cannot_be_used_hide_nothing_else() -> None:
    missing = ConfigError("there is no connection")
    assert checked({"kafka": missing, "database": missing, "spark": missing}) == [
        ("kafka", "fail"),
        ("postgresql", "fail"),
        ("spark", "fail"),
    ]


def test_each_question_to_the_database_is_asked_for_itself() -> None:
    gone = DatabaseUnavailable("gone")
    faults = {"topics": BrokerUnavailable("gone"), "ledger_version": LedgerOutdated("old"), "missing_rights": gone}
    results = dict(checked(faults))
    assert [results[check] for check in ("topics", "postgresql", "ledger", "privileges", "target table")] == [
        "fail",
        "pass",
        "fail",
        "fail",
        "pass",
    ]


@pytest.mark.parametrize("fault", [LedgerOutdated("there is no ledger"), ConfigError("permission denied")])
def test_a_ledger_that_cannot_be_read_is_one_line_and_not_a_second_one_about_housekeeping(fault: IngestError) -> None:
    results = dict(checked({"ledger_version": fault, "old_leftovers": fault}))
    assert results["ledger"] == "fail"
    assert "housekeeping" not in results


def test_packages_of_a_cluster_are_looked_at_only_on_request() -> None:
    assert checked(master=CLUSTER)[-1] == ("python packages", "warn")
    assert checked(master=CLUSTER, submit_job=True)[-1] == ("python packages", "pass")
    failing = checked({"executors": ConfigError("no cores")}, master=CLUSTER, submit_job=True)
    assert failing[-1] == ("python packages", "fail")


def test_a_fault_is_told_with_what_was_found_and_what_to_run() -> None:
    fault = ConfigError("cannot connect", found="refused", next_command="start it")
    assert failed("kafka", fault) == CheckResult("kafka", Verdict.FAIL, "cannot connect: refused", "start it")
    assert failed("kafka", ConfigError("cannot connect")).found == "cannot connect"


def test_warnings_do_not_keep_a_pipeline_from_being_ready() -> None:
    verdicts = [CheckResult("a", verdict, "") for verdict in Verdict]
    assert is_ready(verdicts[:2])
    assert not is_ready(verdicts)
