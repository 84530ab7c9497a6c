"""What happens to the log: producers, transactions, retention, compaction, elections, deletion, another cluster."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from kafka_ingest.protocol.position import TopicPartition
from tests.fakes.log import Fate
from tests.protocol_model.observed_log import stable_offsets
from tests.protocol_model.schedule import Meanwhile, Schedule, growth, index, meanwhile, pick, values
from tests.protocol_model.situations import Happened

MAX_PARTITIONS = 3


def _has_topics(schedule: Schedule) -> bool:
    return bool(schedule.world.log.log.topics)


class LogRules(Schedule):
    """Events of the log."""

    @precondition(_has_topics)
    @rule(where=index, values=values)
    def records_are_produced(self, where: int, values: list[bytes | None]) -> None:
        log = self.world.log
        log.append(pick(log.places(), where), *values)

    @precondition(lambda self: _has_topics(self) and len(self.world.log.transactions) < 2)
    @rule(where=index, values=values)
    def a_transaction_begins(self, where: int, values: list[bytes | None]) -> None:
        log = self.world.log
        place = pick(log.places(), where)
        log.begin(place)
        log.append(place, *values, transaction=log.transactions[-1])

    @precondition(lambda self: bool(self.world.log.transactions))
    @rule(which=index, fate=st.sampled_from([Fate.COMMITTED, Fate.ABORTED]))
    def a_transaction_ends(self, which: int, fate: Fate) -> None:
        log = self.world.log
        log.end(pick(log.transactions, which), fate)

    @precondition(_has_topics)
    @rule(where=index)
    def partitions_are_added(self, where: int) -> None:
        log = self.world.log.log
        topic = pick(sorted(log.topics), where)
        if len(log.topics[topic].partitions) < MAX_PARTITIONS:
            log.add_partitions(topic, len(log.topics[topic].partitions) + 1)

    @precondition(_has_topics)
    @rule(where=index, which=index)
    def a_record_is_compacted_away(self, where: int, which: int) -> None:
        log = self.world.log
        place = pick(log.places(), where)
        # The last entry stays: Kafka never compacts the active segment.
        if offsets := stable_offsets(log.log.partition(place))[:-1]:
            self.world.happened.add(Happened.COMPACTED)
            log.compact(place, pick(offsets, which))

    @precondition(_has_topics)
    @rule(where=index, offsets=st.integers(1, 6))
    def records_that_were_loaded_are_deleted(self, where: int, offsets: int) -> None:
        place = pick(self.world.log.places(), where)
        self._delete_records(place, offsets, self.world.committed_offset(place))

    @precondition(lambda self: _has_topics(self) and self.may_be_disastrous())
    @rule(where=index, offsets=st.integers(1, 6))
    def records_are_deleted_before_they_are_loaded(self, where: int, offsets: int) -> None:
        self.disasters += 1
        place = pick(self.world.log.places(), where)
        self._delete_records(place, offsets, self.world.log.log.partition(place).high_watermark)

    def _delete_records(self, place: TopicPartition, offsets: int, at_most: int) -> None:
        partition = self.world.log.log.partition(place)
        before = min(partition.log_start + offsets, at_most, partition.high_watermark)
        if before > partition.log_start:
            self.world.happened.add(Happened.RECORDS_DELETED)
            self.world.log.delete_records(place, before)

    @precondition(_has_topics)
    @rule(where=index, offsets=st.integers(1, 6), then=growth, meanwhile=meanwhile)
    def records_that_were_not_loaded_are_truncated(
        self, where: int, offsets: int, then: list[bytes | None], meanwhile: Meanwhile
    ) -> None:
        """An unclean election; the log grows again."""
        place = pick(self.world.log.places(), where)
        with self.attempt_under_way(meanwhile):
            self._truncate(place, offsets, self.world.committed_offset(place), then)

    @precondition(lambda self: _has_topics(self) and self.may_be_disastrous())
    @rule(where=index, offsets=st.integers(1, 6), then=growth)
    def records_that_were_loaded_are_truncated(self, where: int, offsets: int, then: list[bytes | None]) -> None:
        self.disasters += 1
        place = pick(self.world.log.places(), where)
        self._truncate(place, offsets, 0, then)

    def _truncate(self, place: TopicPartition, offsets: int, at_least: int, then: list[bytes | None]) -> None:
        partition = self.world.log.log.partition(place)
        to = max(partition.high_watermark - offsets, partition.log_start, at_least)
        if to < partition.high_watermark:
            self.world.happened.add(Happened.TRUNCATED)
            self.world.log.truncate(place, to)
            self.world.log.append(place, *then)

    @precondition(lambda self: _has_topics(self) and self.may_be_disastrous())
    @rule(where=index, partitions=st.sampled_from([2, 1, MAX_PARTITIONS, 0]), then=growth, meanwhile=meanwhile)
    def a_topic_is_deleted(self, where: int, partitions: int, then: list[bytes | None], meanwhile: Meanwhile) -> None:
        """And created again, shorter or longer, unless with no partition."""
        self.disasters += 1
        log = self.world.log
        topic = pick(sorted(log.log.topics), where)
        self.world.happened.add(Happened.TOPIC_DELETED)
        with self.attempt_under_way(meanwhile):
            log.delete_topic(topic)
            if partitions:
                log.create_topic(topic, partitions)
            for number in range(partitions):
                log.append(TopicPartition(topic, number), *then)

    @precondition(lambda self: "returns" not in self.world.log.log.topics)
    @rule(partitions=st.integers(1, 2))
    def a_topic_joins(self, partitions: int) -> None:
        self.world.log.create_topic("returns", partitions)
