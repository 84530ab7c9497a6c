"""The same events in a log in memory and in a real one, so that one test runs on both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from confluent_kafka.cimpl import NewPartitions, NewTopic

from kafka_ingest.kafka.client import client_config
from kafka_ingest.kafka.log import KafkaLog
from kafka_ingest.protocol.ports import Log
from kafka_ingest.protocol.roll_back import RollBackLog
from kafka_ingest.settings import IsolationLevel
from spark_jobs.reader import KafkaRangeReader
from spark_jobs.records import RangeReader
from tests.deadlines import until
from tests.fakes.log import FakeLog
from tests.fakes.range_reader import FakeRangeReader

SECONDS = 30.0


class Transaction(Protocol):
    """A transaction that is open until it is ended; records are in the log before it is."""

    def produce(self, *values: bytes | None) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...


class WholeLog(Log, RollBackLog, Protocol):
    """Every port that asks Kafka for what the planner, the publisher and a roll-back must know."""


class LogWorld(Protocol):
    """What can happen to a log."""

    def create(self, partitions: int = 1, cleanup_policy: str = "delete") -> str: ...
    def produce(
        self, topic: str, *values: bytes | None, partition: int = 0, timestamp_ms: int | None = None
    ) -> None: ...
    def begin(self, topic: str, *values: bytes | None, partition: int = 0) -> Transaction: ...
    def delete_records(self, topic: str, partition: int, before: int) -> None: ...
    def add_partitions(self, topic: str, total: int) -> None: ...
    def recreate(self, topic: str) -> None: ...
    def delete(self, topic: str) -> None: ...
    def log(self) -> WholeLog: ...
    def reader(self, isolation_level: IsolationLevel) -> RangeReader: ...
    def close(self) -> None: ...


class FakeWorld:
    """The log in memory."""

    def __init__(self) -> None:
        self._log = FakeLog()

    def create(self, partitions: int = 1, cleanup_policy: str = "delete") -> str:
        topic = f"topic-{len(self._log.topics)}"
        self._log.create_topic(topic, partitions)
        self._log.topics[topic].cleanup_policy = cleanup_policy
        return topic

    def produce(self, topic: str, *values: bytes | None, partition: int = 0, timestamp_ms: int | None = None) -> None:
        self._log.append(topic, *values, partition=partition, timestamp_ms=timestamp_ms)

    def begin(self, topic: str, *values: bytes | None, partition: int = 0) -> Transaction:
        return self._log.begin(topic, *values, partition=partition)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        self._log.delete_records(topic, partition, before)

    def add_partitions(self, topic: str, total: int) -> None:
        self._log.add_partitions(topic, total)

    def recreate(self, topic: str) -> None:
        self._log.recreate_topic(topic)

    def delete(self, topic: str) -> None:
        self._log.delete_topic(topic)

    def log(self) -> WholeLog:
        return self._log

    def reader(self, isolation_level: IsolationLevel) -> RangeReader:
        return FakeRangeReader(self._log, isolation_level)

    def close(self) -> None:
        pass


class KafkaTransaction:
    """A producer of its own, so that several transactions can be open at once."""

    def __init__(self, bootstrap: str, topic: str, partition: int, name: str) -> None:
        self._where: dict[str, Any] = {"topic": topic, "partition": partition}
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        # The broker aborts a transaction that is open for longer than this (a minute by default).
        timeout = {"transaction.timeout.ms": 600_000}
        self._producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "log_level": 0, **timeout})
        self._producer.init_transactions(SECONDS)
        self._producer.begin_transaction()
        self.is_open = True

    def produce(self, *values: bytes | None) -> None:
        for value in values:
            self._producer.produce(**self._where, value=value)
        assert self._producer.flush(SECONDS) == 0

    def commit(self) -> None:
        self._end(self._producer.commit_transaction)

    def abort(self) -> None:
        self._end(self._producer.abort_transaction)

    def _end(self, end: Callable[[float], None]) -> None:
        """End the transaction and wait for its marker, which the broker writes after it has answered."""
        before = self._high_watermark()
        end(SECONDS)
        self.is_open = False
        until(lambda: self._high_watermark() > before, "the transaction's marker is in the log")

    def _high_watermark(self) -> int:
        where = TopicPartition(self._where["topic"], self._where["partition"])
        (answer,) = self._admin.list_offsets({where: OffsetSpec.latest()}).values()
        return int(answer.result(SECONDS).offset)


class KafkaWorld:
    """A broker."""

    def __init__(self, bootstrap: str, create: Callable[..., str]) -> None:
        self._bootstrap = bootstrap
        self._create = create
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
        self._transactions: list[KafkaTransaction] = []
        self._opened: list[Any] = []

    def create(self, partitions: int = 1, cleanup_policy: str = "delete") -> str:
        times = {"message.timestamp.after.max.ms": str(2**63 - 1), "retention.ms": "-1"}
        return self._create(partitions, {**times, "cleanup.policy": cleanup_policy})

    def produce(self, topic: str, *values: bytes | None, partition: int = 0, timestamp_ms: int | None = None) -> None:
        more = {} if timestamp_ms is None else {"timestamp": timestamp_ms}
        failed: list[Any] = []
        for value in values:
            self._producer.produce(
                topic, value, partition=partition, on_delivery=lambda e, _: failed.append(e) if e else None, **more
            )
        assert self._producer.flush(SECONDS) == 0
        assert not failed, failed

    def begin(self, topic: str, *values: bytes | None, partition: int = 0) -> Transaction:
        name = f"{topic}-{partition}-{len(self._transactions)}"
        transaction = KafkaTransaction(self._bootstrap, topic, partition, name)
        self._transactions.append(transaction)
        transaction.produce(*values)
        return transaction

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        self._wait(self._admin.delete_records([TopicPartition(topic, partition, before)]).values())

    def add_partitions(self, topic: str, total: int) -> None:
        self._wait(self._admin.create_partitions([NewPartitions(topic, total)]).values())

    def recreate(self, topic: str) -> None:
        self.delete(topic)
        until(lambda: self._try_to_create(topic), f"{topic} can be created again")

    def delete(self, topic: str) -> None:
        self._wait(self._admin.delete_topics([topic]).values())

    def log(self) -> WholeLog:
        log = KafkaLog(self._config(IsolationLevel.READ_COMMITTED), timeout_seconds=SECONDS, sample_seconds=SECONDS)
        self._opened.append(log)
        return log

    def reader(self, isolation_level: IsolationLevel) -> RangeReader:
        reader = KafkaRangeReader(self._config(isolation_level), no_progress_timeout_seconds=4)
        self._opened.append(reader)
        return reader

    def close(self) -> None:
        for opened in self._opened:
            opened.close()
        for transaction in self._transactions:
            if transaction.is_open:
                transaction.abort()

    def _config(self, isolation_level: IsolationLevel) -> dict[str, str]:
        return client_config({"bootstrap.servers": self._bootstrap}, isolation_level, client_id="test")

    def _try_to_create(self, topic: str) -> bool:
        try:
            self._wait(self._admin.create_topics([NewTopic(topic, 1, 1)]).values())
        except KafkaException:  # the deletion is still under way
            return False
        return True

    def _wait(self, futures: Sequence[Any]) -> None:
        for future in futures:
            future.result(SECONDS)
