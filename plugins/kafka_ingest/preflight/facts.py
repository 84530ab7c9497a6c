"""What preflight asks of the world, and what it says about the answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from kafka_ingest.errors import IngestError
from kafka_ingest.settings import BatchSettings, PipelineSettings, ScheduleSettings
from kafka_ingest.spark.installation import InterpreterFacts

# ----------
# What preflight asks of the world: values as Kafka, PostgreSQL and Python gave them, and the ports that give them.
#
# Facts say what is there; ``core/preflight_*.py`` judge it.


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
        topic: Its name.
        has_topic_id: Whether the brokers tell a topic id (Kafka 2.8 and newer, KIP-516).
        partitions: Number of partitions.
        unreadable: Partitions without a leader, or whose offsets could not be had, with the broker's words.
        replication_factor: Number of replicas of the partition that has the fewest.
        settings: Effective settings as text by name; empty when they may not be read.
        refusal: The broker's words when the settings may not be read; empty otherwise.
        may_read: Whether the connection's user has the right READ; ``None`` where the broker does not tell.
    """

    topic: str
    has_topic_id: bool
    partitions: int
    unreadable: tuple[str, ...]
    replication_factor: int
    settings: Mapping[str, str] = field(default_factory=dict)
    refusal: str = ""
    may_read: bool | None = None

    def number(self, name: str) -> int | None:
        """Return a numeric setting; ``None`` where this broker does not know it."""
        return int(self.settings[name]) if name in self.settings else None


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """A PostgreSQL server that has answered.

    ``version_number`` is ``server_version_num``: 140005 is version 14.5; ``encoding`` is the database's.
    """

    version: str
    version_number: int
    database: str
    role: str
    encoding: str = "UTF8"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it must or should be, and the statement that makes it so."""

    found: str
    fix: str


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """The target table against the pipeline.

    Attributes:
        is_there: Whether the table exists.
        faults: Why the pipeline cannot load into it.
        weaknesses: Why reloads would be slow, or would fail.
        is_lost: The table is not there, but the ledger has rows in it: it must not be created.
    """

    is_there: bool
    faults: tuple[Finding, ...] = ()
    weaknesses: tuple[Finding, ...] = ()
    is_lost: bool = False


@dataclass(frozen=True, slots=True)
class MasterFacts:
    """The Spark master.

    Attributes:
        master: As spark-submit gets it.
        unreachable: Addresses of the master that refuse a TCP connection, with the reason.
        reachable: Addresses that accept one; both are empty for a local master.
        is_this_python: Whether tasks run on the interpreter that asks: a local master, and no other Python is named.
        is_authenticated: Whether Spark asks for a secret before it serves what tasks carry, passwords included.
    """

    master: str
    unreachable: tuple[str, ...] = ()
    reachable: tuple[str, ...] = ()
    is_this_python: bool = True
    is_authenticated: bool = True


class KafkaProbe(Protocol):
    """Kafka. Every method raises ``BrokerUnavailable`` without an answer, ``ConfigError`` where this client is refused.

    It is closed when the context that it is opened in ends.
    """

    def cluster(self) -> ClusterFacts:
        """Describe the cluster."""

    def topics(self, settings: PipelineSettings) -> Sequence[TopicFacts]:
        """Describe the pipeline's topics that exist, by name."""

    def limits(self) -> FetchLimits:
        """Return what the pipeline's connection lets its clients take in one answer."""


class DatabaseProbe(Protocol):
    """The target's database. Every method raises ``DatabaseUnavailable`` or ``ConfigError`` without an answer."""

    def server(self) -> ServerFacts:
        """Describe server, database and role."""

    def ledger_version(self) -> str:
        """Return the name of the ledger's newest migration.

        Raises:
            LedgerOutdated: The ledger is missing, older or newer than this package.
        """

    def missing_rights(self, settings: BatchSettings) -> Sequence[Finding]:
        """List rights that the role lacks on ledger, staging and database, and to create the table where it must."""

    def old_leftovers(self, days: int) -> int:
        """Count the staging tables of batches that were planned so many days ago and are planned no more.

        Raises:
            LedgerOutdated: The ledger is missing, older or newer than this package.
        """

    def target(self, settings: BatchSettings) -> TargetFacts:
        """Compare the target table, and the role's rights on it, with the pipeline."""


class SparkProbe(Protocol):
    """Spark, where the pipeline's job runs."""

    def master(self) -> MasterFacts:
        """Look for the master.

        Raises:
            ConfigError: The connection names no master that can be used.
        """

    def this_interpreter(self) -> InterpreterFacts:
        """Describe the interpreter that asks; the driver runs on it."""

    def executors(self) -> Sequence[InterpreterFacts]:
        """Run a small job that describes the interpreter of every executor.

        Raises:
            IngestError: The job did not succeed; ``found`` has its last words.
        """


@dataclass(frozen=True, slots=True)
class PreflightPorts:
    """What preflight needs from the world.

    A port is opened by the check that uses it, so that a broken connection fails that check and no other.

    Attributes:
        kafka: Opens Kafka.
        database: Opens the target's database.
        spark: Opens Spark.
        longest_interval_seconds: Gives the longest time between two runs of a schedule; ``None`` without a schedule.
    """

    kafka: Callable[[], AbstractContextManager[KafkaProbe]]
    database: Callable[[], DatabaseProbe]
    spark: Callable[[], SparkProbe]
    longest_interval_seconds: Callable[[ScheduleSettings], float | None]


# ----------
# Results of *preflight*: what is right and what is wrong around a pipeline, before it runs or when it does not.


class Verdict(StrEnum):
    """How a check came out.

    ``fail``: runs stop, or lose records, until somebody acts. ``warn``: runs work, but something that can be expected
    to happen (a lost broker, a missed run) would cost records, or a check could not be made.
    """

    PASS = "pass"  # noqa: S105 (no password)
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One line of the table.

    Attributes:
        check: What was looked at.
        result: How it came out.
        found: What is there.
        fix: What to run or to change; empty where nothing is to be done.
    """

    check: str
    result: Verdict
    found: str
    fix: str = ""


def failed(check: str, fault: IngestError) -> CheckResult:
    """Return the result of a check that could not get an answer."""
    found = f"{fault.what}: {fault.found}" if fault.found else fault.what
    return CheckResult(check, Verdict.FAIL, found, fault.next_command)


def is_ready(results: Iterable[CheckResult]) -> bool:
    """Whether no check failed; warnings do not count."""
    return all(result.result is not Verdict.FAIL for result in results)
