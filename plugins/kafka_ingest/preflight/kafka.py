"""Preflight of Kafka: topics, rights, retention against the schedule; and of its schema registry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from kafka_ingest.errors import SchemaMissing
from kafka_ingest.kafka.client import library_version
from kafka_ingest.kafka.log import ConfigAnswer, KafkaAdmin, KafkaLog
from kafka_ingest.kafka.registry import SCHEMA_KINDS, SchemaRegistry
from kafka_ingest.preflight.checks import CheckResult, Verdict, answered
from kafka_ingest.protocol.log import TopicState
from kafka_ingest.protocol.log_faults import grant, grant_read
from kafka_ingest.settings import BatchSettings, PipelineSettings, ScheduleSettings, TopicIdentity

#: One interval until the next run, one for a run that fails, one for a person to act.
RETENTION_INTERVALS = 3
#: Protocol overhead of an answer beside its records (CONFIGURATION.md of librdkafka 2.16, receive.message.max.bytes).
RESPONSE_OVERHEAD_BYTES = 512

#: librdkafka's own defaults (CONFIGURATION.md, 2.16); the second follows the first where only the first is set higher.
_FETCH_BYTES = 52_428_800
_RESPONSE_BYTES = 100_000_000

_HOUR, _DAY = 3600, 86_400

# ----------
# Facts: what Kafka and the pipeline's connection say.


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """A Kafka cluster that has answered.

    Attributes:
        cluster_id: Its id.
        bootstrap: Where it was asked.
        brokers: Number of brokers that it lists.
        client_version: Version of librdkafka.
    """

    cluster_id: str
    bootstrap: str
    brokers: int
    client_version: str


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """What the pipeline's client takes in one answer.

    Attributes:
        fetch_bytes: ``fetch.max.bytes``: what it asks for. A single larger record batch comes whole all the same.
        response_bytes: ``receive.message.max.bytes``: a larger answer is refused, for ever.
    """

    fetch_bytes: int
    response_bytes: int


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """One topic of the pipeline.

    Attributes:
        state: Its id, its partitions and the right to read it, as a plan sees them.
        replication_factor: Number of replicas of the partition that has the fewest.
        config: Its settings as they apply, as text by name, or the broker's words when they may not be read.
    """

    state: TopicState
    replication_factor: int
    config: ConfigAnswer

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings that may be read."""
        return {} if isinstance(self.config, str) else self.config

    def number(self, name: str) -> int | None:
        """Return a numeric setting; ``None`` where this broker does not know it."""
        return int(self.settings[name]) if name in self.settings else None

    def concern(self, about: str, verdict: Verdict, found: str, fix: str) -> CheckResult:
        """Return the line of one concern."""
        return CheckResult(f"topic {self.state.topic}: {about}", verdict, found, fix)


# ----------
# The probe asks: about the cluster, and the pipeline's topics with their replicas and settings.


class KafkaPreflight:
    """A real cluster, as the pipeline's connection reaches it.

    Every question raises ``BrokerUnavailable`` without an answer, ``ConfigError`` where this client is refused.

    Args:
        config: librdkafka configuration, as ``client_config`` returns it.
        admin: Asks for cluster, replicas and settings.
        log: Asks for topic ids, leaders and offsets, as a plan does.
    """

    def __init__(self, config: Mapping[str, str], admin: KafkaAdmin, log: KafkaLog) -> None:
        self._config = config
        self._admin = admin
        self._log = log

    def cluster(self) -> ClusterFacts:
        """Describe the cluster."""
        found = self._admin.cluster()
        bootstrap = self._config["bootstrap.servers"]
        return ClusterFacts(str(found.cluster_id), bootstrap, len(found.nodes), library_version())

    def topics(self, settings: PipelineSettings) -> Sequence[TopicFacts]:
        """Describe the pipeline's topics that exist, by name."""
        states = self._log.snapshot(settings.plan.topics, settings.batch.isolation_level).topics
        described = self._admin.describe(states)
        configs = self._admin.describe_configs(described)
        return [
            TopicFacts(states[name], min(len(info.replicas) for info in described[name].partitions), configs[name])
            for name in sorted(described)
        ]

    def limits(self) -> FetchLimits:
        """Return what the pipeline's connection lets its clients take in one answer."""
        fetch = int(self._config.get("fetch.max.bytes", _FETCH_BYTES))
        least = max(_RESPONSE_BYTES, fetch + RESPONSE_OVERHEAD_BYTES)
        return FetchLimits(fetch, int(self._config.get("receive.message.max.bytes", least)))


@contextmanager
def kafka_preflight(config: Mapping[str, str], *, timeout_seconds: float) -> Iterator[KafkaPreflight]:
    """Open the probe, and close its clients at the end."""
    with (
        closing(KafkaAdmin(config, timeout_seconds=timeout_seconds)) as admin,
        KafkaLog(config, timeout_seconds=timeout_seconds) as log,
    ):
        yield KafkaPreflight(config, admin, log)


# ----------
# The judge says what could lose records before they are read, or keep them from being read.
#
# Settings: https://kafka.apache.org/42/configuration/topic-configs/. Retention deletes whole segments, so a record
# lives at least ``retention.ms``.


def kafka_results(settings: PipelineSettings, probe: KafkaPreflight) -> Iterator[CheckResult]:
    """Ask and judge: the cluster, and then the topics."""
    yield cluster_result(probe.cluster())
    interval = longest_interval_seconds(settings.schedule)
    yield from answered("topics", lambda: topic_results(settings, probe.topics(settings), probe.limits(), interval))


def cluster_result(cluster: ClusterFacts) -> CheckResult:
    """Say which cluster answers, and the versions that can be known.

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
    """Judge every topic: a line for each concern, or one line that says that there is none.

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
            *_setting_concerns(settings.batch, topic, limits, interval_seconds),
        ]
        yield from concerns or [CheckResult(f"topic {topic.state.topic}", Verdict.PASS, _summary(topic))]


def _missing_topics(settings: PipelineSettings, topics: Sequence[TopicFacts]) -> Iterator[CheckResult]:
    selection = settings.plan.topics
    there = {topic.state.topic for topic in topics}
    for name in selection.names:
        if name not in there:
            fix = "create the topic, or correct kafka.topics in the pipeline file"
            yield CheckResult(f"topic {name}", Verdict.FAIL, "no such topic, or not visible to this client", fix)
    if selection.pattern is not None and not there:
        fix = "create a topic, or correct kafka.pattern in the pipeline file"
        yield CheckResult("topics", Verdict.FAIL, f"no topic matches {selection.pattern}", fix)


def _partition_concerns(settings: PipelineSettings, topic: TopicFacts) -> Iterator[CheckResult]:
    if topic.state.may_read is False:
        fix = grant_read(topic.state.topic, settings.batch.kafka_connection)
        yield topic.concern("rights", Verdict.FAIL, "the right READ is missing: no record can be read", fix)
    if unreadable := "; ".join(_unreadable(topic.state)):
        fix = "bring their brokers back; on_partition_fault: leave_out loads the others meanwhile"
        yield topic.concern("leaders", Verdict.FAIL, unreadable, fix)
    if topic.state.topic_id is None and settings.batch.topic_identity is TopicIdentity.TOPIC_ID:
        found = "no topic id: the brokers are older than 2.8, and a re-created topic could not be told from this one"
        fix = "upgrade the brokers, or set topic_identity: none in the pipeline file"
        yield topic.concern("topic id", Verdict.FAIL, found, fix)
    if topic.replication_factor < 2:
        found = f"replication factor {topic.replication_factor}: a lost disk loses records that were not read yet"
        fix = "three replicas, on a cluster of at least three brokers: kafka-reassign-partitions.sh"
        yield topic.concern("replication factor", Verdict.WARN, found, fix)


def _unreadable(state: TopicState) -> Iterator[str]:
    """Yield the partitions without a leader, or whose offsets could not be had, with the broker's words."""
    for number, partition in sorted(state.partitions.items()):
        if partition.end_offset is None:
            yield f"partition {number}: {partition.fault or 'no leader'}"


def _setting_concerns(
    batch: BatchSettings, topic: TopicFacts, limits: FetchLimits, interval_seconds: float | None
) -> Iterator[CheckResult]:
    if isinstance(topic.config, str):
        found = f"its settings could not be read: {topic.config}"
        fix = grant("DescribeConfigs", f"--topic {topic.state.topic}", batch.kafka_connection)
        yield CheckResult(f"topic {topic.state.topic}", Verdict.WARN, found, fix)
        return
    yield from _durability_concerns(topic)
    # What compaction takes, a pipeline that wants every record misses, and one of the current state does not.
    yield from _state_concerns(topic, interval_seconds) if batch.upsert else _compaction_concerns(topic)
    yield from _retention_concerns(topic, interval_seconds)
    yield from _size_concerns(topic, limits)


def _durability_concerns(topic: TopicFacts) -> Iterator[CheckResult]:
    name, replicas = "min.insync.replicas", topic.replication_factor
    in_sync = topic.number(name)
    if in_sync is not None and in_sync > replicas:
        found = f"{in_sync}, more than the {replicas} replicas: no producer with acks=all can write"
        yield topic.concern(name, Verdict.WARN, found, _alter(topic, name, max(1, replicas - 1)))
    elif in_sync == 1 and replicas > 1:
        found = "1: an acknowledged record may be on one broker alone, and is lost with it"
        yield topic.concern(name, Verdict.WARN, found, _alter(topic, name, 2))
    if topic.settings.get("unclean.leader.election.enable") == "true":
        found = "true: an election may cut off the log's end, and with it records that were read or wait to be read"
        fix = _alter(topic, "unclean.leader.election.enable", "false")
        yield topic.concern("unclean.leader.election.enable", Verdict.WARN, found, fix)


def _compaction_concerns(topic: TopicFacts) -> Iterator[CheckResult]:
    policy = topic.settings.get("cleanup.policy", "delete")
    if "compact" in policy:
        found = (
            f"{policy}: records with a newer one of the same key may be gone before they are read; a reload stops there"
        )
        fix = _alter(topic, "cleanup.policy", "delete") + ", where every record counts"
        yield topic.concern("cleanup.policy", Verdict.WARN, found, fix)


def _retention_concerns(topic: TopicFacts, interval_seconds: float | None) -> Iterator[CheckResult]:
    policy = topic.settings.get("cleanup.policy", "delete")
    if "delete" not in policy:
        return
    yield from _short_retention(topic, interval_seconds)
    by_size = topic.number("retention.bytes")
    if by_size is not None and by_size >= 0:
        found = f"{by_size:,} bytes a partition: how long records live depends on the traffic"
        fix = _alter(topic, "retention.bytes", -1) + ", or make sure that it holds three intervals of the busiest day"
        yield topic.concern("retention.bytes", Verdict.WARN, found, fix)


def _state_concerns(topic: TopicFacts, interval_seconds: float | None) -> Iterator[CheckResult]:
    """Yield what endangers a table that holds the current state: deletes that expire, a log that forgets its keys."""
    if "compact" not in topic.settings.get("cleanup.policy", "delete"):
        if topic.number("retention.ms") != -1:
            found = "delete: a rebuild takes away the rows of keys whose newest record is older than retention"
            yield topic.concern("cleanup.policy", Verdict.WARN, found, _alter(topic, "cleanup.policy", "compact"))
        return
    stays_ms = topic.number("delete.retention.ms")
    if stays_ms is None or interval_seconds is None or stays_ms >= RETENTION_INTERVALS * interval_seconds * 1000:
        return
    verdict = Verdict.FAIL if stays_ms < interval_seconds * 1000 else Verdict.WARN
    found = (
        f"{spelled(stays_ms / 1000)}, shorter than {RETENTION_INTERVALS} schedule intervals (the longest: "
        f"{spelled(interval_seconds)}): deletes may be gone before they are read, which stops the pipeline"
    )
    fix = _alter(topic, "delete.retention.ms", round(RETENTION_INTERVALS * interval_seconds * 1000))
    yield topic.concern("delete.retention.ms", verdict, found, fix + ", or a schedule that runs more often")


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
    yield topic.concern("retention.ms", verdict, found, fix)


def _size_concerns(topic: TopicFacts, limits: FetchLimits) -> Iterator[CheckResult]:
    largest = topic.number("max.message.bytes")
    if largest is None or largest <= limits.fetch_bytes:
        return
    needed = largest + RESPONSE_OVERHEAD_BYTES
    if needed > limits.response_bytes:
        found = (
            f"{largest:,}: a record batch of that size does not fit into an answer of {limits.response_bytes:,} bytes"
        )
        fix = f"receive.message.max.bytes: {needed} in the extra of the Kafka connection"
        yield topic.concern("max.message.bytes", Verdict.FAIL, found, fix)
        return
    # A batch larger than what was asked for comes whole (KIP-74), so that a client makes progress.
    found = (
        f"{largest:,}: a task asks for {limits.fetch_bytes:,} bytes at once, and must hold a larger record batch whole"
    )
    fix = "memory for it on the Spark workers, or a smaller max.message.bytes"
    yield topic.concern("max.message.bytes", Verdict.WARN, found, fix)


def spelled(seconds: float) -> str:
    """Return a duration in the largest unit that it reaches."""
    for size, unit in ((_DAY, "d"), (_HOUR, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds:.4g} s"


def _summary(topic: TopicFacts) -> str:
    parts = [f"partitions: {len(topic.state.partitions)}", f"replication factor: {topic.replication_factor}"]
    names = ("min.insync.replicas", "cleanup.policy", "retention.ms", "max.message.bytes")
    parts += [f"{name}: {topic.settings[name]}" for name in names if name in topic.settings]
    return ", ".join(parts)


def _alter(topic: TopicFacts, name: str, value: object) -> str:
    where = f"--entity-type topics --entity-name {topic.state.topic}"
    return f"kafka-configs.sh --bootstrap-server BROKER --alter {where} --add-config {name}={value}"


# ----------
# How far apart the runs of a schedule are.

#: Any moment will do, and the same one always gives the same answer.
_FROM = datetime(2025, 1, 1, tzinfo=UTC)
#: A year and a month hold every weekday, month's end and season; two runs at least, however rare they are.
_UNTIL = _FROM + timedelta(days=396)
#: More than a day of a run every minute, so that a night without runs is seen, in a few tenths of a second.
_MOST_RUNS = 2_000
#: Airflow's own preset, which croniter does not know (airflow/utils/dates.py, 3.3).
_PRESETS = {"@quarterly": "0 0 1 */3 *"}


def longest_interval_seconds(schedule: ScheduleSettings) -> float | None:
    """Return the longest time between two runs; ``None`` for a pipeline that only runs by hand.

    It is taken from a year's runs, 2,000 at most, in UTC: a change of the clock can add an hour.
    """
    if schedule.schedule is None:
        return None
    moments = _runs(_PRESETS.get(schedule.schedule, schedule.schedule))
    return max((later - earlier).total_seconds() for earlier, later in pairwise(moments))


def _runs(cron: str) -> list[datetime]:
    # Airflow brings croniter; it has no type information.
    from croniter import croniter  # type: ignore[import-untyped]

    runs = croniter(cron, _FROM, ret_type=datetime)
    moments: list[datetime] = [runs.get_next(), runs.get_next()]
    while moments[-1] < _UNTIL and len(moments) < _MOST_RUNS:
        moments.append(runs.get_next())
    return moments


# ----------
# The schema registry: whether it answers, takes the pipeline's formats, and knows the subjects that are named.


def registry_results(settings: BatchSettings, registry: SchemaRegistry) -> Iterator[CheckResult]:
    """Ask and judge: the registry, and then the subjects that the pipeline names."""
    kinds = registry.kinds()
    parts = [part for part in (settings.value, settings.key) if part and part.format in SCHEMA_KINDS]
    wanted = [SCHEMA_KINDS[part.format] for part in parts]
    if missing := sorted({*wanted} - {*kinds}):
        fix = "use a registry that has them, or another format"
        yield CheckResult("schema registry", Verdict.FAIL, f"no schemas of the kind {', '.join(missing)}", fix)
    else:
        yield CheckResult("schema registry", Verdict.PASS, f"answers; schemas of the kinds {', '.join(sorted(kinds))}")
    for part, kind in zip(parts, wanted, strict=True):
        if part.subject:
            yield _subject_result(part.subject, kind, registry)


def _subject_result(subject: str, kind: str, registry: SchemaRegistry) -> CheckResult:
    check = f"subject {subject}"
    try:
        found = registry.latest(subject).kind
    except SchemaMissing:
        fix = "register the schema, or correct subject in the pipeline file: until then every record is a dead letter"
        return CheckResult(check, Verdict.WARN, "no such subject in the schema registry", fix)
    if found != kind:
        fix = "correct the format in the pipeline file"
        return CheckResult(check, Verdict.FAIL, f"its schemas are of the kind {found}, not {kind}", fix)
    return CheckResult(check, Verdict.PASS, f"schemas of the kind {kind}")
