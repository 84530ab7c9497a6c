"""What preflight makes of a cluster and its topics."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_ingest.preflight.facts import CheckResult, ClusterFacts, FetchLimits, TopicFacts, Verdict
from kafka_ingest.preflight.kafka import cluster_result, spelled, topic_results
from kafka_ingest.settings import PipelineSettings, TopicIdentity, TopicSelection
from tests.builders import pipeline_settings

HOUR, DAY = 3600, 86_400
LIMITS = FetchLimits(fetch_bytes=52_428_800, response_bytes=100_000_000)
GOOD = {
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    "cleanup.policy": "delete",
    "retention.ms": "604800000",
    "retention.bytes": "-1",
    "max.message.bytes": "1048588",
}
ORDERS = TopicFacts("orders", has_topic_id=True, partitions=3, unreadable=(), replication_factor=3, settings=GOOD)
ALTER = "kafka-configs.sh --bootstrap-server BROKER --alter --entity-type topics --entity-name orders --add-config "


def judged(
    *topics: TopicFacts,
    settings: PipelineSettings | None = None,
    limits: FetchLimits = LIMITS,
    interval: float | None = HOUR,
) -> list[CheckResult]:
    return list(topic_results(settings or pipeline_settings("orders"), topics, limits, interval))


def with_settings(**changes: str) -> TopicFacts:
    return replace(ORDERS, settings={**GOOD, **{name.replace("_", "."): value for name, value in changes.items()}})


def short(results: list[CheckResult]) -> list[tuple[str, str]]:
    return [(result.check.removeprefix("topic orders: "), result.result.value) for result in results]


def test_a_cluster_is_named_and_what_it_does_not_tell_is_said() -> None:
    result = cluster_result(ClusterFacts("abc", "broker:9092", brokers=3, client_version="2.16.0"))
    assert (result.check, result.result, result.fix) == ("kafka", Verdict.PASS, "")
    assert result.found == (
        "cluster abc at broker:9092, brokers: 3; client: librdkafka 2.16.0; "
        "version of the brokers: unknown, Kafka does not tell"
    )


def test_a_missing_right_to_read_fails_with_the_one_grant_that_it_needs() -> None:
    [result] = judged(replace(ORDERS, may_read=False))
    assert (result.check, result.result) == ("topic orders: rights", Verdict.FAIL)
    assert result.fix.startswith(
        "kafka-acls.sh --bootstrap-server BROKER --add --allow-principal User:NAME --operation Read --topic orders,"
    )
    assert judged(replace(ORDERS, may_read=True)) == judged(ORDERS)


def test_a_topic_without_concerns_is_one_line_with_its_settings() -> None:
    assert judged(ORDERS) == [
        CheckResult(
            "topic orders",
            Verdict.PASS,
            "partitions: 3, replication factor: 3, min.insync.replicas: 2, cleanup.policy: delete, "
            "retention.ms: 604800000, max.message.bytes: 1048588",
        )
    ]


def test_every_concern_of_a_topic_is_a_line_of_its_own() -> None:
    bad = TopicFacts(
        "orders",
        has_topic_id=False,
        partitions=2,
        unreadable=("partition 1: no leader",),
        replication_factor=1,
        settings={
            "min.insync.replicas": "2",
            "unclean.leader.election.enable": "true",
            "cleanup.policy": "compact,delete",
            "retention.ms": "60000",
            "retention.bytes": "1073741824",
            "max.message.bytes": "200000000",
        },
    )
    assert short(judged(bad)) == [
        ("leaders", "fail"),
        ("topic id", "fail"),
        ("replication factor", "warn"),
        ("min.insync.replicas", "warn"),
        ("unclean.leader.election.enable", "warn"),
        ("cleanup.policy", "warn"),
        ("retention.ms", "fail"),
        ("retention.bytes", "warn"),
        ("max.message.bytes", "fail"),
    ]


def test_a_missing_topic_fails_and_the_others_are_still_judged() -> None:
    results = judged(ORDERS, settings=pipeline_settings("orders", "returns"))
    assert [(result.check, result.result) for result in results] == [
        ("topic returns", Verdict.FAIL),
        ("topic orders", Verdict.PASS),
    ]


def test_a_pattern_that_matches_nothing_fails() -> None:
    settings = pipeline_settings()
    settings = replace(settings, plan=replace(settings.plan, topics=TopicSelection(pattern="shop_.*")))
    assert [(r.result, r.found) for r in judged(settings=settings)] == [(Verdict.FAIL, "no topic matches shop_.*")]
    assert [r.check for r in judged(ORDERS, settings=settings)] == ["topic orders"]


def test_a_topic_without_an_id_is_no_concern_where_the_pipeline_says_so() -> None:
    settings = pipeline_settings("orders")
    settings = replace(settings, batch=replace(settings.batch, topic_identity=TopicIdentity.NONE))
    assert [r.result for r in judged(replace(ORDERS, has_topic_id=False), settings=settings)] == [Verdict.PASS]


@pytest.mark.parametrize(
    ("retention_ms", "interval", "verdict"),
    [
        (3 * DAY * 1000, DAY, None),
        (3 * DAY * 1000 - 1, DAY, Verdict.WARN),
        (DAY * 1000, DAY, Verdict.WARN),
        (DAY * 1000 - 1, DAY, Verdict.FAIL),
        (-1, DAY, None),  # for ever
        (1, None, None),  # no schedule to compare with
    ],
)
def test_retention_must_outlast_three_intervals_and_fails_below_one(
    retention_ms: int, interval: float | None, verdict: Verdict | None
) -> None:
    results = judged(with_settings(retention_ms=str(retention_ms)), interval=interval)
    assert [r.result for r in results] == [verdict or Verdict.PASS]


def test_short_retention_says_how_long_it_should_be() -> None:
    [result] = judged(with_settings(retention_ms="7200000"), interval=HOUR)
    assert result.found == "2 h, shorter than 3 schedule intervals (the longest: 1 h)"
    assert result.fix == ALTER + "retention.ms=10800000, or a schedule that runs more often"


def test_a_topic_that_is_only_compacted_has_no_retention() -> None:
    topic = with_settings(cleanup_policy="compact", retention_ms="1", retention_bytes="1")
    assert short(judged(topic)) == [("cleanup.policy", "warn")]


@pytest.mark.parametrize(
    ("replicas", "in_sync", "concerns"),
    [
        (3, 2, []),
        (3, 1, [("min.insync.replicas", "warn")]),
        (2, 2, []),
        (2, 3, [("min.insync.replicas", "warn")]),
        (1, 1, [("replication factor", "warn")]),
    ],
)
def test_an_acknowledged_record_should_be_on_two_brokers(
    replicas: int, in_sync: int, concerns: list[tuple[str, str]]
) -> None:
    topic = replace(with_settings(min_insync_replicas=str(in_sync)), replication_factor=replicas)
    assert short(judged(topic)) == (concerns or [("topic orders", "pass")])


@pytest.mark.parametrize(
    ("largest", "verdict"),
    [
        (52_428_800, Verdict.PASS),
        (52_428_801, Verdict.WARN),
        (99_999_488, Verdict.WARN),  # with 512 bytes of overhead it is exactly 100,000,000
        (99_999_489, Verdict.FAIL),
    ],
)
def test_a_record_batch_must_fit_into_an_answer_of_the_broker(largest: int, verdict: Verdict) -> None:
    assert [r.result for r in judged(with_settings(max_message_bytes=str(largest)))] == [verdict]


def test_an_answer_that_is_too_small_says_how_large_it_must_be() -> None:
    [result] = judged(with_settings(max_message_bytes="2000"), limits=FetchLimits(1000, 2000))
    assert result.fix == "receive.message.max.bytes: 2512 in the extra of the Kafka connection"


def test_settings_that_may_not_be_read_are_a_warning_with_the_brokers_words() -> None:
    topic = replace(ORDERS, settings={}, refusal="Broker: Topic authorization failed")
    [result] = judged(topic)
    assert result.result is Verdict.WARN
    assert result.found == "its settings could not be read: Broker: Topic authorization failed"
    assert "DESCRIBE_CONFIGS" in result.fix


def test_a_setting_that_an_old_broker_does_not_know_is_no_concern() -> None:
    assert [r.result for r in judged(replace(ORDERS, settings={"retention.ms": "-1"}))] == [Verdict.PASS]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.5, "0.5 s"), (60, "1 min"), (5400, "1.5 h"), (86_400, "1 d"), (604_800, "7 d")]
)
def test_durations_are_told_in_their_largest_unit(seconds: float, text: str) -> None:
    assert spelled(seconds) == text
