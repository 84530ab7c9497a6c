"""Preflight: what each fact about Kafka, the database and Spark means, and that one fault hides no other."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from kafka_ingest.connections import ConnectionValues
from kafka_ingest.errors import (
    BrokerUnavailable,
    ConfigError,
    DatabaseUnavailable,
    IngestError,
    LedgerOutdated,
    SchemaMissing,
)
from kafka_ingest.full_world import FullWorld as PipelineWorld
from kafka_ingest.kafka.registry import RegisteredSchema
from kafka_ingest.preflight.checks import CheckResult, Verdict, failed, is_ready
from kafka_ingest.preflight.database import (
    Finding,
    PostgresPreflight,
    ServerFacts,
    TargetFacts,
    housekeeping_result,
    ledger_result,
    right_results,
    server_result,
    target_results,
)
from kafka_ingest.preflight.kafka import (
    ClusterFacts,
    FetchLimits,
    KafkaPreflight,
    TopicFacts,
    cluster_result,
    longest_interval_seconds,
    registry_results,
    spelled,
    topic_results,
)
from kafka_ingest.preflight.spark import (
    MasterFacts,
    SparkPreflight,
    authentication_results,
    installation_results,
    master_result,
    package_results,
    upload_results,
)
from kafka_ingest.protocol.log import PartitionState, TopicState
from kafka_ingest.settings import (
    BatchSettings,
    ColumnSettings,
    Deletes,
    JobSettings,
    OrderBy,
    PipelineSettings,
    ScheduleSettings,
    TargetSettings,
    TopicIdentity,
    TopicSelection,
    UpsertSettings,
    ValueFormat,
    ValueSettings,
)
from kafka_ingest.spark.installation import InterpreterFacts, this_interpreter
from kafka_ingest.spark.master import spark_master_of
from tests.builders import batch_settings, partition_state, pipeline_settings

PASS, WARN, FAIL = Verdict.PASS, Verdict.WARN, Verdict.FAIL
HOUR, DAY = 3600, 86_400
#: A line that a judge must write: check, verdict, and texts that stand in ``found`` or ``fix``.
Line = tuple[str, Verdict, *tuple[str, ...]]


def require_lines(results: Iterable[CheckResult], expected: Sequence[Line]) -> None:
    found = list(results)
    assert [(result.check, result.result) for result in found] == [(line[0], line[1]) for line in expected]
    for result, (_, _, *texts) in zip(found, expected, strict=True):
        assert all(text in result.found or text in result.fix for text in texts), result


# Kafka.

LIMITS = FetchLimits(fetch_bytes=52_428_800, response_bytes=100_000_000)
GOOD = {
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    "cleanup.policy": "delete",
    "retention.ms": "604800000",
    "retention.bytes": "-1",
    "max.message.bytes": "1048588",
}
STATE = TopicState("orders", "topic-id-1", {number: partition_state(number, 0, 5) for number in range(3)})
ORDERS = TopicFacts(STATE, replication_factor=3, config=GOOD)
SOUND = ("topic orders", PASS)
ALTER = "kafka-configs.sh --bootstrap-server BROKER --alter --entity-type topics --entity-name orders --add-config "
PATTERN = TopicSelection(pattern="shop_.*")


def judged(
    *topics: TopicFacts,
    settings: PipelineSettings | None = None,
    limits: FetchLimits = LIMITS,
    interval: float | None = HOUR,
) -> list[CheckResult]:
    return list(topic_results(settings or pipeline_settings("orders"), topics, limits, interval))


def having(replicas: int = 3, **changes: object) -> TopicFacts:
    config = {**GOOD, **{name.replace("_", "."): str(value) for name, value in changes.items()}}
    return TopicFacts(STATE, replicas, config)


def orders(about: str, verdict: Verdict, *texts: str) -> Line:
    return (f"topic orders: {about}", verdict, *texts)


def test_a_cluster_is_named_and_what_it_does_not_tell_is_said() -> None:
    assert cluster_result(ClusterFacts("abc", "broker:9092", brokers=3, client_version="2.16.0")) == CheckResult(
        "kafka",
        PASS,
        "cluster abc at broker:9092, brokers: 3; client: librdkafka 2.16.0; "
        "version of the brokers: unknown, Kafka does not tell",
    )


def test_a_topic_without_concerns_is_one_line_with_its_settings() -> None:
    found = (
        "partitions: 3, replication factor: 3, min.insync.replicas: 2, cleanup.policy: delete, "
        "retention.ms: 604800000, max.message.bytes: 1048588"
    )
    assert judged(ORDERS) == [CheckResult("topic orders", PASS, found)]
    assert judged(replace(ORDERS, state=replace(STATE, may_read=True))) == judged(ORDERS)


def test_every_concern_of_a_topic_is_a_line_of_its_own() -> None:
    partitions = {0: partition_state(0, 0, 5), 1: PartitionState(1, has_leader=False)}
    config = {
        "min.insync.replicas": "2",
        "unclean.leader.election.enable": "true",
        "cleanup.policy": "compact,delete",
        "retention.ms": "60000",
        "retention.bytes": "1073741824",
        "max.message.bytes": "200000000",
    }
    bad = TopicFacts(TopicState("orders", None, partitions, may_read=False), replication_factor=1, config=config)
    grant = "kafka-acls.sh --bootstrap-server BROKER --add --allow-principal User:NAME --operation Read --topic orders,"
    expected = [
        orders("rights", FAIL, grant),
        orders("leaders", FAIL, "partition 1: no leader"),
        orders("topic id", FAIL),
        orders("replication factor", WARN),
        orders("min.insync.replicas", WARN),
        orders("unclean.leader.election.enable", WARN),
        orders("cleanup.policy", WARN),
        orders("retention.ms", FAIL),
        orders("retention.bytes", WARN),
        orders("max.message.bytes", FAIL),
    ]
    require_lines(judged(bad), expected)


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        pytest.param(
            replace(ORDERS, state=replace(STATE, may_read=False)),
            [orders("rights", FAIL, "--operation Read --topic orders,")],
            id="a missing right to read fails with the grant that it needs",
        ),
        pytest.param(
            replace(ORDERS, state=replace(STATE, partitions={1: PartitionState(1, has_leader=True, fault="gone")})),
            [orders("leaders", FAIL, "partition 1: gone")],
            id="a partition without offsets fails with the broker's words",
        ),
        pytest.param(
            having(cleanup_policy="compact", retention_ms=1, retention_bytes=1),
            [orders("cleanup.policy", WARN)],
            id="a topic that is only compacted has no retention",
        ),
        pytest.param(having(3, min_insync_replicas=1), [orders("min.insync.replicas", WARN)], id="on one broker alone"),
        pytest.param(having(2, min_insync_replicas=2), [SOUND], id="an acknowledged record is on two brokers"),
        pytest.param(having(2, min_insync_replicas=3), [orders("min.insync.replicas", WARN)], id="nobody can write"),
        pytest.param(having(1, min_insync_replicas=1), [orders("replication factor", WARN)], id="one replica"),
        pytest.param(having(max_message_bytes=52_428_800), [SOUND], id="a batch as large as what is asked for"),
        pytest.param(having(max_message_bytes=52_428_801), [orders("max.message.bytes", WARN)], id="a larger one"),
        # With 512 bytes of overhead it is exactly 100,000,000.
        pytest.param(having(max_message_bytes=99_999_488), [orders("max.message.bytes", WARN)], id="it just fits"),
        pytest.param(having(max_message_bytes=99_999_489), [orders("max.message.bytes", FAIL)], id="it does not fit"),
        pytest.param(
            replace(ORDERS, config="Broker: Topic authorization failed"),
            [
                (
                    "topic orders",
                    WARN,
                    "its settings could not be read: Broker: Topic authorization failed",
                    "--operation DescribeConfigs --topic orders, ",
                )
            ],
            id="settings that may not be read are a warning with the broker's words",
        ),
        pytest.param(
            replace(ORDERS, config={"retention.ms": "-1"}),
            [SOUND],
            id="a setting that an old broker does not know is no concern",
        ),
    ],
)
def test_what_endangers_records_of_a_topic_is_told(topic: TopicFacts, expected: list[Line]) -> None:
    require_lines(judged(topic), expected)


STATE_PIPELINE = pipeline_settings(
    "orders",
    batch=replace(batch_settings(), upsert=UpsertSettings(("payload",), OrderBy.OFFSET, Deletes.REMOVE)),
)


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        pytest.param(having(cleanup_policy="compact", delete_retention_ms=86_400_000), [SOUND], id="a day of an hour"),
        pytest.param(
            having(cleanup_policy="compact", delete_retention_ms=3_600_000),
            [
                orders(
                    "delete.retention.ms",
                    WARN,
                    "1 h, shorter than 3 schedule intervals",
                    "delete.retention.ms=10800000",
                )
            ],
            id="deletes stay for one interval",
        ),
        pytest.param(
            having(cleanup_policy="compact", delete_retention_ms=3_599_999),
            [orders("delete.retention.ms", FAIL, "which stops the pipeline")],
            id="deletes go between two runs",
        ),
        pytest.param(
            having(cleanup_policy="delete"),
            [orders("cleanup.policy", WARN, "a rebuild takes away", "cleanup.policy=compact")],
            id="the log forgets keys",
        ),
        pytest.param(having(cleanup_policy="delete", retention_ms=-1), [SOUND], id="the log forgets nothing"),
    ],
)
def test_what_endangers_the_current_state_of_a_topic_is_told(topic: TopicFacts, expected: list[Line]) -> None:
    require_lines(judged(topic, settings=STATE_PIPELINE), expected)


@pytest.mark.parametrize(
    ("retention_ms", "interval", "expected"),
    [
        (3 * DAY * 1000, DAY, SOUND),
        (3 * DAY * 1000 - 1, DAY, orders("retention.ms", WARN)),
        (DAY * 1000, DAY, orders("retention.ms", WARN)),
        (DAY * 1000 - 1, DAY, orders("retention.ms", FAIL)),
        (-1, DAY, SOUND),  # for ever
        (1, None, SOUND),  # no schedule to compare with
    ],
)
def test_retention_must_outlast_three_intervals_and_fails_below_one(
    retention_ms: int, interval: float | None, expected: Line
) -> None:
    require_lines(judged(having(retention_ms=retention_ms), interval=interval), [expected])


def test_a_limit_that_is_too_small_says_how_large_it_must_be() -> None:
    [retention] = judged(having(retention_ms=7_200_000), interval=HOUR)
    assert retention.found == "2 h, shorter than 3 schedule intervals (the longest: 1 h)"
    assert retention.fix == ALTER + "retention.ms=10800000, or a schedule that runs more often"
    [answer] = judged(having(max_message_bytes=2000), limits=FetchLimits(1000, 2000))
    assert answer.fix == "receive.message.max.bytes: 2512 in the extra of the Kafka connection"


def test_a_missing_topic_fails_and_the_others_are_still_judged() -> None:
    results = judged(ORDERS, settings=pipeline_settings("orders", "returns"))
    require_lines(results, [("topic returns", FAIL), SOUND])


def test_a_pattern_that_matches_nothing_fails() -> None:
    settings = pipeline_settings()
    settings = replace(settings, plan=replace(settings.plan, topics=PATTERN))
    assert [(r.result, r.found) for r in judged(settings=settings)] == [(FAIL, "no topic matches shop_.*")]
    require_lines(judged(ORDERS, settings=settings), [SOUND])


def test_a_topic_without_an_id_is_no_concern_where_the_pipeline_says_so() -> None:
    settings = pipeline_settings("orders")
    settings = replace(settings, batch=replace(settings.batch, topic_identity=TopicIdentity.NONE))
    without_id = replace(ORDERS, state=replace(STATE, topic_id=None))
    require_lines(judged(without_id, settings=settings), [SOUND])


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.5, "0.5 s"), (60, "1 min"), (5400, "1.5 h"), (86_400, "1 d"), (604_800, "7 d")]
)
def test_durations_are_told_in_their_largest_unit(seconds: float, text: str) -> None:
    assert spelled(seconds) == text


@pytest.mark.parametrize(
    ("schedule", "seconds"),
    [
        ("@hourly", HOUR),
        ("@daily", DAY),
        ("@weekly", 7 * DAY),
        ("@monthly", 31 * DAY),
        ("@quarterly", 92 * DAY),  # July to September, and October to December
        ("@yearly", 365 * DAY),
        ("*/15 * * * *", 15 * 60),
        ("0 9 * * 1-5", 3 * DAY),  # Friday to Monday
        ("* 9-17 * * *", 15 * HOUR + 60),  # 17:59 to 9:00
        ("0 0 29 2 *", 1461 * DAY),  # from one leap year to the next
        (None, None),  # it only runs by hand
    ],
)
def test_the_longest_interval_of_a_schedule_decides(schedule: str | None, seconds: float | None) -> None:
    assert longest_interval_seconds(ScheduleSettings(schedule)) == seconds


# The database.

TARGET = TargetSettings("shop", "orders")
CREATING = TargetSettings("shop", "orders", create_table=True)
MISSING = TargetFacts(is_there=False, faults=(Finding("no such table", "CREATE TABLE ..."),))
NO_TABLE = CheckResult("target table", FAIL, "no such table", "CREATE TABLE ...")


@pytest.mark.parametrize(
    ("version", "number", "encoding", "verdict", "part"),
    [
        ("13.22", 130_022, "UTF8", FAIL, "PostgreSQL 13.22, database shop, role loader"),
        ("14.0", 140_000, "UTF8", PASS, "PostgreSQL 14.0, database shop, role loader"),
        ("18.6", 180_006, "UTF8", PASS, "PostgreSQL 18.6, database shop, role loader"),
        ("19beta1", 190_000, "UTF8", WARN, "PostgreSQL 19beta1, database shop, role loader"),
        ("18.1", 180_001, "LATIN1", WARN, "text that LATIN1 cannot hold become dead letters"),
        ("18.1", 180_001, "SQL_ASCII", WARN, "counts bytes as characters"),
    ],
)
def test_postgresql_14_to_18_in_utf8_is_supported(
    version: str, number: int, encoding: str, verdict: Verdict, part: str
) -> None:
    result = server_result(ServerFacts(version, number, "shop", "loader", encoding))
    assert (result.check, result.result) == ("postgresql", verdict)
    assert part in result.found


def test_a_ledger_that_is_up_to_date_names_its_newest_migration() -> None:
    assert ledger_result("0001_ledger") == CheckResult("ledger", PASS, "up to date: 0001_ledger")


def test_each_missing_right_is_a_line_with_its_grant() -> None:
    missing = (
        Finding("USAGE on SCHEMA kafka_ingest: not granted", "GRANT USAGE ..."),
        Finding("TEMPORARY on DATABASE shop: not granted", "GRANT TEMPORARY ..."),
    )
    assert right_results(missing) == [
        CheckResult("privileges", FAIL, "USAGE on SCHEMA kafka_ingest: not granted", "GRANT USAGE ..."),
        CheckResult("privileges", FAIL, "TEMPORARY on DATABASE shop: not granted", "GRANT TEMPORARY ..."),
    ]
    assert [result.result for result in right_results(())] == [PASS]


@pytest.mark.parametrize(
    ("target", "facts", "expected"),
    [
        pytest.param(TARGET, MISSING, [NO_TABLE], id="a missing table fails"),
        pytest.param(
            CREATING,
            MISSING,
            [CheckResult("target table", PASS, "shop.orders is not there yet: the next plan creates it")],
            id="unless the pipeline creates it",
        ),
        pytest.param(CREATING, replace(MISSING, is_lost=True), [NO_TABLE], id="one that is lost is not created"),
        pytest.param(
            TARGET,
            TargetFacts(True, (Finding("a", "fix a"), Finding("b", "fix b")), (Finding("no index", "CREATE INDEX"),)),
            [
                CheckResult("target table", FAIL, "a", "fix a"),
                CheckResult("target table", FAIL, "b", "fix b"),
                CheckResult("target table", WARN, "no index", "CREATE INDEX"),
            ],
            id="every mismatch fails and every weakness warns",
        ),
        pytest.param(
            TARGET,
            TargetFacts(True),
            [CheckResult("target table", PASS, "shop.orders fits the pipeline")],
            id="a table that fits passes",
        ),
    ],
)
def test_a_target_table_is_judged(target: TargetSettings, facts: TargetFacts, expected: list[CheckResult]) -> None:
    assert target_results(target, facts) == expected


def test_leftovers_that_housekeeping_has_not_reached_for_days_are_a_warning_with_both_ways_to_run_it() -> None:
    assert housekeeping_result(0, "warehouse").result is PASS
    warned = housekeeping_result(12, "warehouse")
    assert (warned.check, warned.result) == ("housekeeping", WARN)
    assert warned.found.startswith("12 staging tables are left over")
    assert "kafka_ingest_housekeeping" in warned.fix
    assert "python -m kafka_ingest housekeeping --connection warehouse" in warned.fix


# The schema registry.


class Subjects:
    """A registry that takes Avro and JSON Schema, and has one subject."""

    def kinds(self) -> list[str]:
        return ["JSON", "AVRO"]

    def latest(self, subject: str) -> RegisteredSchema:
        if subject != "orders-value":
            raise SchemaMissing("unknown")
        return RegisteredSchema("AVRO", "{}", {})


@pytest.mark.parametrize(
    ("value_format", "subject", "expected"),
    [
        (ValueFormat.AVRO, None, [("schema registry", PASS)]),
        (ValueFormat.PROTOBUF, None, [("schema registry", FAIL)]),
        (ValueFormat.AVRO, "orders-value", [("schema registry", PASS), ("subject orders-value", PASS)]),
        (ValueFormat.JSON_SCHEMA, "orders-value", [("schema registry", PASS), ("subject orders-value", FAIL)]),
        (ValueFormat.AVRO, "order-value", [("schema registry", PASS), ("subject order-value", WARN)]),
    ],
)
def test_a_registry_must_take_the_format_and_should_know_the_subject(
    value_format: ValueFormat, subject: str | None, expected: list[tuple[str, Verdict]]
) -> None:
    value = ValueSettings(value_format, (ColumnSettings("a", "text"),), subject)
    results = registry_results(replace(batch_settings(), value=value), Subjects())  # type: ignore[arg-type]
    assert [(result.check, result.result) for result in results] == expected


def test_the_registry_is_asked_only_by_a_pipeline_that_has_one() -> None:
    settings = pipeline_settings("orders")
    with_registry = replace(settings, batch=replace(settings.batch, registry_connection="reg"))
    checks = {result.check for result in ProbedWorld(settings, World()).preflight()}
    assert "schema registry" not in checks
    with pytest.raises(AssertionError, match="http connection reg was looked up"):
        ProbedWorld(with_registry, World()).preflight()


# Spark.

VERSIONS = {"confluent_kafka": "2.16.1", "msgspec": "0.22.0", "psycopg2": "2.9.13", "pyarrow": "26.0.1"}
DRIVER = InterpreterFacts("driver", "3.11.7", (*VERSIONS.items(), ("pyspark", "4.2.0")))


def with_version(name: str, version: str) -> InterpreterFacts:
    return replace(DRIVER, versions=tuple({**dict(DRIVER.versions), name: version}.items()))


@pytest.mark.parametrize(
    ("master", "verdict"),
    [
        (MasterFacts("local[*]"), PASS),
        (MasterFacts("spark://a:1", reachable=("a:1",)), PASS),
        (MasterFacts("spark://a:1,b:1", reachable=("a:1",), unreachable=("b:1: refused",)), WARN),
        (MasterFacts("spark://a:1", unreachable=("a:1: refused",)), FAIL),
    ],
)
def test_one_master_of_several_may_be_down(master: MasterFacts, verdict: Verdict) -> None:
    result = master_result(master)
    assert result.result is verdict
    assert all(words in result.found for words in master.unreachable)


def test_an_interpreter_with_everything_passes_with_its_versions() -> None:
    [result] = package_results(DRIVER, [DRIVER, DRIVER])
    assert result.result is PASS
    assert result.found == (
        "driver: Python 3.11.7, confluent_kafka 2.16.1, msgspec 0.22.0, psycopg2 2.9.13, pyarrow 26.0.1, pyspark 4.2.0"
    )


@pytest.mark.parametrize(
    ("worker", "fault"),
    [
        (with_version("pyarrow", "16.1.0"), "pyarrow 16.1.0 is older than 17"),
        (with_version("psycopg2", "2.9.8"), "psycopg2 2.9.8 is older than 2.9.9"),
        (
            replace(DRIVER, faults=(("msgspec", "No module named 'msgspec'"),)),
            "msgspec cannot be imported (No module named 'msgspec')",
        ),
        (replace(DRIVER, python="3.12.1"), "the driver has Python 3.11.7, and minor versions must be equal"),
    ],
)
def test_what_tasks_could_not_run_with_fails(worker: InterpreterFacts, fault: str) -> None:
    worker = replace(worker, host="worker")
    driver, found = package_results(DRIVER, [worker, DRIVER])
    assert (driver.result, found.result) == (PASS, FAIL)
    assert found.found == f"worker: Python {worker.python}: {fault}"


def test_versions_are_compared_as_numbers() -> None:
    assert [r.result for r in package_results(DRIVER, [with_version("confluent_kafka", "2.10.0rc1")])] == [PASS]


def probe(host: str, *, conf: tuple[tuple[str, str], ...] = (), secret: str = "") -> SparkPreflight:
    settings = replace(pipeline_settings("orders"), job=JobSettings(conf=conf))
    extra = {"spark.authenticate.secret": secret} if secret else {}
    return SparkPreflight(settings, spark_master_of(ConnectionValues("spark_default", "spark", host=host, extra=extra)))


@pytest.mark.parametrize(
    ("spark", "warnings"),
    [
        (probe("local[2]"), 0),
        (probe("local[2]", conf=(("spark.authenticate", "false"),)), 1),
        (probe("spark://127.0.0.1:1", secret="s3cret"), 0),
        (probe("spark://127.0.0.1:1", conf=(("spark.authenticate", "false"),)), 1),
    ],
)
def test_a_spark_that_gives_blocks_to_everybody_is_warned_of(spark: SparkPreflight, warnings: int) -> None:
    results = list(authentication_results(spark.master()))
    assert [result.result for result in results] == [WARN] * warnings
    assert "s3cret" not in repr(results)
    assert all("spark.authenticate.secret" in result.fix for result in results)


def test_every_address_of_a_standalone_master_is_tried() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        facts = probe(f"spark://127.0.0.1:{port},127.0.0.1:1,nowhere", secret="s3cret").master()
    assert facts.reachable == (f"127.0.0.1:{port}",)
    assert facts.unreachable == ("127.0.0.1:1: [Errno 111] Connection refused", "nowhere: expected HOST:PORT")
    assert not facts.is_this_python


def test_a_cluster_without_its_secret_fails_until_that_is_chosen() -> None:
    with pytest.raises(ConfigError, match="spark_default") as caught:
        probe("spark://127.0.0.1:1").master()
    assert '{"spark.authenticate": "false"}' in caught.value.found


def recorded_knocks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give the list in which the addresses end that are tried from now on; each accepts."""
    knocked: list[str] = []

    def accept(address: str) -> str:
        knocked.append(address)
        return ""

    monkeypatch.setattr("kafka_ingest.preflight.spark._refusal", accept)
    return knocked


@pytest.mark.parametrize(
    ("site", "addresses"),
    [
        ({"yarn.resourcemanager.address": "rm:8050"}, ["rm:8050"]),
        ({"yarn.resourcemanager.hostname": "rm"}, ["rm:8032"]),
        ({}, ["0.0.0.0:8032"]),
        (
            {
                "yarn.resourcemanager.ha.rm-ids": "a, b",
                "yarn.resourcemanager.hostname.a": "one",
                "yarn.resourcemanager.address.b": "two:8050",
            },
            ["one:8032", "two:8050"],
        ),
        (
            {
                "yarn.resourcemanager.hostname": "rm",
                "yarn.resourcemanager.address": "${yarn.resourcemanager.hostname}:8032",
            },
            ["rm:8032"],
        ),
    ],
)
def test_yarn_is_looked_for_where_its_own_file_says(
    site: dict[str, str], addresses: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = "".join(f"<property><name>{k}</name><value>{v}</value></property>" for k, v in site.items())
    (tmp_path / "yarn-site.xml").write_text(f"<configuration>{entries}</configuration>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    monkeypatch.delenv("YARN_CONF_DIR", raising=False)
    knocked = recorded_knocks(monkeypatch)
    facts = probe("yarn").master()
    assert knocked == addresses
    assert facts.uploads_spark
    assert facts.is_authenticated


def test_a_folder_without_yarns_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("YARN_CONF_DIR", str(tmp_path / "nothing"))
    with pytest.raises(ConfigError, match="YARN's address cannot be read") as caught:
        probe("yarn").master()
    assert "yarn-site.xml" in caught.value.found


def test_yarn_that_has_sparks_jars_gets_no_warning() -> None:
    assert list(upload_results(MasterFacts("yarn"))) == []
    [warning] = upload_results(MasterFacts("yarn", uploads_spark=True))
    assert warning.result is WARN
    assert "spark.yarn.archive" in warning.fix


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("k8s://https://api.example:6443", "api.example:6443"),
        ("k8s://https://api.example", "api.example:443"),
        ("k8s://api.example:6443", "api.example:6443"),
        ("k8s://http://127.0.0.1:8001", "127.0.0.1:8001"),
    ],
)
def test_the_api_server_of_kubernetes_is_knocked_at(url: str, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    knocked = recorded_knocks(monkeypatch)
    probe(url, conf=(("spark.kubernetes.container.image", "x"),)).master()
    assert knocked == [address]


@pytest.mark.parametrize(
    ("variables", "missing"), [({"PATH": ""}, "spark-submit"), ({"JAVA_HOME": "/nowhere"}, "Java")]
)
def test_a_machine_that_could_not_submit_the_job_is_told(
    variables: dict[str, str], missing: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.executable", str(tmp_path / "python3"))
    if missing == "Java":
        (tmp_path / "spark-submit").touch(mode=0o755)
    with pytest.raises(ConfigError, match=f"{missing} was not found"):
        list(installation_results())


def test_tasks_of_a_local_master_run_here_unless_another_python_is_named() -> None:
    assert probe("local[2]").master() == MasterFacts("local[2]")
    assert not probe("local[2]", conf=(("spark.pyspark.python", "/opt/python"),)).master().is_this_python


# The step asks everything, whatever fails on the way.


@dataclass
class World(KafkaPreflight, PostgresPreflight, SparkPreflight):
    """Kafka, database and Spark that are as they should be, but for the faults that a test names by method."""

    faults: dict[str, IngestError] = field(default_factory=dict)
    spark_master: MasterFacts = field(default_factory=lambda: MasterFacts("local[2]"))

    def answer(self, name: str) -> World:
        if name in self.faults:
            raise self.faults[name]
        return self

    def cluster(self) -> ClusterFacts:
        self.answer("cluster")
        return ClusterFacts("abc", "broker:9092", 3, "2.16.0")

    def topics(self, settings: PipelineSettings) -> Sequence[TopicFacts]:
        self.answer("topics")
        return [TopicFacts(STATE, 3, {"retention.ms": "3600000"})]

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

    def executors(self) -> Sequence[InterpreterFacts]:
        self.answer("executors")
        return [replace(this_interpreter(), host="worker")]


class ProbedWorld(PipelineWorld):
    """A pipeline's world whose probes are all one."""

    def __init__(self, settings: PipelineSettings, probe: World) -> None:
        super().__init__(settings, no_connection)
        self._probe = probe

    @contextmanager
    def kafka_probe(self) -> Iterator[World]:
        yield self._probe.answer("kafka")

    def database_probe(self) -> World:
        return self._probe.answer("database")

    def spark_probe(self) -> World:
        return self._probe.answer("spark")


def no_connection(conn_id: str, conn_type: str) -> ConnectionValues:
    raise AssertionError(f"{conn_type} connection {conn_id} was looked up")


def results_of(
    world: World,
    *,
    schedule: str = "*/20 * * * *",
    submit_job: bool = False,
    in_process_below_offsets: int | None = None,
) -> Sequence[CheckResult]:
    settings = replace(pipeline_settings("orders"), schedule=ScheduleSettings(schedule))
    settings = replace(settings, job=replace(settings.job, in_process_below_offsets=in_process_below_offsets))
    return ProbedWorld(settings, world).preflight(submit_job=submit_job)


ALL = (
    "kafka, topic orders, postgresql, ledger, privileges, target table, housekeeping, "
    "spark, spark-submit, python packages"
)
BEHIND_CONNECTIONS = {
    *("topic orders", "ledger", "privileges", "target table", "housekeeping", "spark-submit", "python packages")
}
NO_BROKER, NO_CONNECTION, GONE = BrokerUnavailable("x"), ConfigError("there is no connection"), DatabaseUnavailable("x")
NO_LEDGER, NO_RIGHT, NO_CORES = LedgerOutdated("x"), ConfigError("permission denied"), ConfigError("no cores")
LOCAL, CLUSTER = MasterFacts("local[2]"), MasterFacts("spark://m:1", reachable=("m:1",), is_this_python=False)


@pytest.mark.parametrize(
    ("faults", "failing", "missing"),
    [
        ({}, set(), set()),
        ({"kafka": NO_BROKER}, {"kafka"}, {"topic orders"}),
        ({"cluster": NO_BROKER}, {"kafka"}, {"topic orders"}),
        *(
            (dict.fromkeys(asked, NO_CONNECTION), {"kafka", "postgresql", "spark"}, BEHIND_CONNECTIONS)
            for asked in (("kafka", "database", "spark"), ("kafka", "server", "master"))
        ),
        # Each question is asked for itself.
        (
            {"topics": NO_BROKER, "ledger_version": NO_LEDGER, "missing_rights": GONE},
            {"topics", "ledger", "privileges"},
            set(),
        ),
        # A ledger that cannot be read is one line, and not a second one about housekeeping.
        ({"ledger_version": NO_LEDGER, "old_leftovers": NO_LEDGER}, {"ledger"}, {"housekeeping"}),
        ({"ledger_version": NO_RIGHT, "old_leftovers": NO_RIGHT}, {"ledger"}, {"housekeeping"}),
    ],
    ids=lambda part: ", ".join(sorted(part)) or "none",
)
def test_everything_is_looked_at_in_a_stable_order_and_a_fault_hides_nothing_else(
    faults: dict[str, IngestError], failing: set[str], missing: set[str]
) -> None:
    checks = (ALL.replace("topic orders", "topics") if "topics" in failing else ALL).split(", ")
    expected = [(check, FAIL if check in failing else PASS) for check in checks if check not in missing]
    assert [(line.check, line.result) for line in results_of(World(faults))] == expected


@pytest.mark.parametrize(
    ("faults", "master", "submit_job", "verdict"),
    [
        ({}, LOCAL, False, PASS),
        ({}, CLUSTER, False, WARN),
        ({}, CLUSTER, True, PASS),
        ({"executors": NO_CORES}, CLUSTER, True, FAIL),
    ],
)
def test_packages_of_a_cluster_are_looked_at_only_on_request(
    faults: dict[str, IngestError], master: MasterFacts, submit_job: bool, verdict: Verdict
) -> None:
    [*_, last] = results_of(World(faults, master), submit_job=submit_job)
    assert (last.check, last.result) == ("python packages", verdict)


@pytest.mark.parametrize(
    ("master", "submit_job", "looks"), [(LOCAL, False, 1), (CLUSTER, False, 2), (CLUSTER, True, 2)]
)
def test_where_small_batches_are_loaded_in_process_the_packages_of_this_python_are_looked_at(
    master: MasterFacts, submit_job: bool, looks: int
) -> None:
    results = results_of(World({}, master), submit_job=submit_job, in_process_below_offsets=50)
    packages = [line for line in results if line.check == "python packages"]
    assert (len(packages), packages[-1].result) == (looks, PASS)
    assert f"Python {sys.version_info.major}.{sys.version_info.minor}" in packages[-1].found


def test_retention_is_compared_with_the_pipelines_own_schedule() -> None:
    # One hour of retention is three runs every 20 minutes, and one run an hour.
    checks = {schedule: results_of(World(), schedule=schedule)[1].check for schedule in ("*/20 * * * *", "@hourly")}
    assert checks == {"*/20 * * * *": "topic orders", "@hourly": "topic orders: retention.ms"}


def test_a_fault_is_told_with_what_was_found_and_what_to_run() -> None:
    fault = ConfigError("cannot connect", found="refused", next_command="start it")
    assert failed("kafka", fault) == CheckResult("kafka", FAIL, "cannot connect: refused", "start it")
    assert failed("kafka", ConfigError("cannot connect")).found == "cannot connect"


def test_warnings_do_not_keep_a_pipeline_from_being_ready() -> None:
    assert is_ready([CheckResult("a", PASS, ""), CheckResult("b", WARN, "")])
    assert not is_ready([CheckResult("a", PASS, ""), CheckResult("b", WARN, ""), CheckResult("c", FAIL, "")])
