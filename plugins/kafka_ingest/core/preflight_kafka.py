"""Judges cluster and topics: what could lose records before they are read, or keep them from being read.

Settings: https://kafka.apache.org/42/configuration/topic-configs/. Retention deletes whole segments, so a record lives
at least ``retention.ms``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kafka_ingest.core.log_checks import grant_read
from kafka_ingest.core.preflight import CheckResult, Verdict
from kafka_ingest.core.preflight_facts import ClusterFacts, FetchLimits, TopicFacts
from kafka_ingest.core.settings import PipelineSettings, TopicIdentity

#: One interval until the next run, one for a run that fails, one for a person to act.
RETENTION_INTERVALS = 3
#: Protocol overhead of an answer beside its records (CONFIGURATION.md of librdkafka 2.16, receive.message.max.bytes).
RESPONSE_OVERHEAD_BYTES = 512

_HOUR, _DAY = 3600, 86_400


def cluster_result(cluster: ClusterFacts) -> CheckResult:
    """Says which cluster answers, and the versions that can be known.

    Kafka's protocol tells no version of a broker; what follows from topic ids is said with each topic.
    """
    found = (
        f"cluster {cluster.cluster_id} at {cluster.bootstrap}, brokers: {cluster.brokers}; "
        f"client: librdkafka {cluster.client_version}; version of the brokers: unknown, Kafka does not tell"
    )
    return CheckResult("kafka", Verdict.PASS, found)


def topic_results(
    settings: PipelineSettings, topics: Sequence[TopicFacts], limits: FetchLimits, interval_seconds: float | None
) -> Iterator[CheckResult]:
    """Judges every topic: a line for each concern, or one line that says that there is none.

    Args:
        settings: The pipeline.
        topics: Its topics that exist.
        limits: What its clients take in one answer.
        interval_seconds: Longest time between two scheduled runs; ``None`` without a schedule.
    """
    yield from _missing_topics(settings, topics)
    for topic in topics:
        concerns = [
            *_partition_concerns(settings, topic),
            *_setting_concerns(topic, limits, interval_seconds),
        ]
        yield from concerns or [CheckResult(_name(topic), Verdict.PASS, _summary(topic))]


def _missing_topics(settings: PipelineSettings, topics: Sequence[TopicFacts]) -> Iterator[CheckResult]:
    selection = settings.plan.topics
    there = {topic.topic for topic in topics}
    for name in selection.names:
        if name not in there:
            fix = "create the topic, or correct kafka.topics in the pipeline file"
            yield CheckResult(f"topic {name}", Verdict.FAIL, "no such topic, or not visible to this client", fix)
    if selection.pattern is not None and not there:
        fix = "create a topic, or correct kafka.pattern in the pipeline file"
        yield CheckResult("topics", Verdict.FAIL, f"no topic matches {selection.pattern}", fix)


def _partition_concerns(settings: PipelineSettings, topic: TopicFacts) -> Iterator[CheckResult]:
    if topic.may_read is False:
        fix = grant_read(topic.topic, settings.batch.kafka_connection)
        yield CheckResult(
            f"{_name(topic)}: rights", Verdict.FAIL, "the right READ is missing: no record can be read", fix
        )
    if topic.unreadable:
        fix = "bring their brokers back; on_partition_fault: leave_out loads the others meanwhile"
        yield CheckResult(f"{_name(topic)}: leaders", Verdict.FAIL, "; ".join(topic.unreadable), fix)
    if not topic.has_topic_id and settings.batch.topic_identity is TopicIdentity.TOPIC_ID:
        found = "no topic id: the brokers are older than 2.8, and a re-created topic could not be told from this one"
        fix = "upgrade the brokers, or set topic_identity: none in the pipeline file"
        yield CheckResult(f"{_name(topic)}: topic id", Verdict.FAIL, found, fix)
    if topic.replication_factor < 2:
        found = f"replication factor {topic.replication_factor}: a lost disk loses records that were not read yet"
        fix = "three replicas, on a cluster of at least three brokers: kafka-reassign-partitions.sh"
        yield CheckResult(f"{_name(topic)}: replication factor", Verdict.WARN, found, fix)


def _setting_concerns(topic: TopicFacts, limits: FetchLimits, interval_seconds: float | None) -> Iterator[CheckResult]:
    if topic.refusal:
        found = f"its settings could not be read: {topic.refusal}"
        yield CheckResult(_name(topic), Verdict.WARN, found, "grant DESCRIBE_CONFIGS on it to the connection's user")
        return
    yield from _durability_concerns(topic)
    yield from _retention_concerns(topic, interval_seconds)
    yield from _size_concerns(topic, limits)


def _durability_concerns(topic: TopicFacts) -> Iterator[CheckResult]:
    in_sync, replicas = topic.number("min.insync.replicas"), topic.replication_factor
    check = f"{_name(topic)}: min.insync.replicas"
    if in_sync is not None and in_sync > replicas:
        found = f"{in_sync}, more than the {replicas} replicas: no producer with acks=all can write"
        yield CheckResult(check, Verdict.WARN, found, _alter(topic, "min.insync.replicas", max(1, replicas - 1)))
    elif in_sync == 1 and replicas > 1:
        found = "1: an acknowledged record may be on one broker alone, and is lost with it"
        yield CheckResult(check, Verdict.WARN, found, _alter(topic, "min.insync.replicas", 2))
    if topic.settings.get("unclean.leader.election.enable") == "true":
        found = "true: an election may cut off the log's end, and with it records that were read or wait to be read"
        fix = _alter(topic, "unclean.leader.election.enable", "false")
        yield CheckResult(f"{_name(topic)}: unclean.leader.election.enable", Verdict.WARN, found, fix)


def _retention_concerns(topic: TopicFacts, interval_seconds: float | None) -> Iterator[CheckResult]:
    policy = topic.settings.get("cleanup.policy", "delete")
    if "compact" in policy:
        found = (
            f"{policy}: records with a newer one of the same key may be gone before they are read; a reload stops there"
        )
        fix = _alter(topic, "cleanup.policy", "delete") + ", where every record counts"
        yield CheckResult(f"{_name(topic)}: cleanup.policy", Verdict.WARN, found, fix)
    if "delete" not in policy:
        return
    yield from _short_retention(topic, interval_seconds)
    by_size = topic.number("retention.bytes")
    if by_size is not None and by_size >= 0:
        found = f"{by_size:,} bytes a partition: how long records live depends on the traffic"
        fix = _alter(topic, "retention.bytes", -1) + ", or make sure that it holds three intervals of the busiest day"
        yield CheckResult(f"{_name(topic)}: retention.bytes", Verdict.WARN, found, fix)


def _short_retention(topic: TopicFacts, interval_seconds: float | None) -> Iterator[CheckResult]:
    retention_ms = topic.number("retention.ms")
    if retention_ms is None or retention_ms < 0 or interval_seconds is None:
        return
    wanted_ms = round(RETENTION_INTERVALS * interval_seconds * 1000)
    if retention_ms >= wanted_ms:
        return
    # Shorter than one interval: every run finds that a part of its records is gone.
    verdict = Verdict.FAIL if retention_ms < interval_seconds * 1000 else Verdict.WARN
    found = (
        f"{spelled(retention_ms / 1000)}, shorter than {RETENTION_INTERVALS} schedule intervals "
        f"(the longest: {spelled(interval_seconds)})"
    )
    fix = _alter(topic, "retention.ms", wanted_ms) + ", or a schedule that runs more often"
    yield CheckResult(f"{_name(topic)}: retention.ms", verdict, found, fix)


def _size_concerns(topic: TopicFacts, limits: FetchLimits) -> Iterator[CheckResult]:
    largest = topic.number("max.message.bytes")
    if largest is None or largest <= limits.fetch_bytes:
        return
    needed = largest + RESPONSE_OVERHEAD_BYTES
    check = f"{_name(topic)}: max.message.bytes"
    if needed > limits.response_bytes:
        found = (
            f"{largest:,}: a record batch of that size does not fit into an answer of {limits.response_bytes:,} bytes"
        )
        fix = f"receive.message.max.bytes: {needed} in the extra of the Kafka connection"
        yield CheckResult(check, Verdict.FAIL, found, fix)
        return
    # A batch larger than what was asked for comes whole (KIP-74), so that a client makes progress.
    found = (
        f"{largest:,}: a task asks for {limits.fetch_bytes:,} bytes at once, and must hold a larger record batch whole"
    )
    fix = "memory for it on the Spark workers, or a smaller max.message.bytes"
    yield CheckResult(check, Verdict.WARN, found, fix)


def spelled(seconds: float) -> str:
    """Gives a duration in the largest unit that it reaches."""
    for size, unit in ((_DAY, "d"), (_HOUR, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds:.4g} s"


def _summary(topic: TopicFacts) -> str:
    parts = [f"partitions: {topic.partitions}", f"replication factor: {topic.replication_factor}"]
    names = ("min.insync.replicas", "cleanup.policy", "retention.ms", "max.message.bytes")
    parts += [f"{name}: {topic.settings[name]}" for name in names if name in topic.settings]
    return ", ".join(parts)


def _name(topic: TopicFacts) -> str:
    return f"topic {topic.topic}"


def _alter(topic: TopicFacts, name: str, value: object) -> str:
    where = f"--entity-type topics --entity-name {topic.topic}"
    return f"kafka-configs.sh --bootstrap-server BROKER --alter {where} --add-config {name}={value}"
