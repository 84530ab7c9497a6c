"""What is copied to the consumer group, and when nothing is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_ingest.errors import BrokerUnavailable, ConfigError, DatabaseUnavailable
from kafka_ingest.protocol.audit import mirror_group
from kafka_ingest.protocol.ledger_view import PlanView, ServedTopic
from kafka_ingest.protocol.ports import GroupMirror
from kafka_ingest.protocol.position import TopicPartition
from tests.builders import CLUSTER, pipeline_settings, position, view_of
from tests.fakes.group_mirror import FakeGroupMirror

MIRRORED = replace(pipeline_settings(), watch=replace(pipeline_settings().watch, mirror_group=True))
ORDERS, RETURNS = TopicPartition("orders", 0), TopicPartition("returns", 0)
VIEW = view_of(position(0, 7), position(0, 3, topic="returns"))


@pytest.fixture
def groups() -> FakeGroupMirror:
    return FakeGroupMirror({ORDERS, RETURNS})


def test_every_committed_offset_is_copied(groups: FakeGroupMirror) -> None:
    assert mirror_group(MIRRORED, lambda: VIEW, lambda: groups)
    assert groups.groups == {"kafka_ingest.orders": {ORDERS: 7, RETURNS: 3}}


def test_retired_topics_are_not_copied(groups: FakeGroupMirror) -> None:
    served = (ServedTopic("orders", CLUSTER, "orders"), ServedTopic("orders", CLUSTER, "returns", is_retired=True))
    assert mirror_group(MIRRORED, lambda: replace(VIEW, served=served), lambda: groups)
    assert groups.groups == {"kafka_ingest.orders": {ORDERS: 7}}


def test_nothing_is_copied_unless_the_pipeline_says_so(groups: FakeGroupMirror) -> None:
    assert not mirror_group(pipeline_settings(), lambda: VIEW, lambda: groups)
    assert groups.groups == {}


def test_a_failure_to_copy_is_a_warning(groups: FakeGroupMirror, caplog: pytest.LogCaptureFixture) -> None:
    groups.failure = BrokerUnavailable("Kafka does not answer")
    assert not mirror_group(MIRRORED, lambda: VIEW, lambda: groups)
    assert [(r.levelname, "Kafka does not answer" in r.getMessage()) for r in caplog.records] == [("WARNING", True)]


def test_a_connection_that_cannot_be_used_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> GroupMirror:
        raise ConfigError("The Kafka connection cannot be used")

    assert not mirror_group(MIRRORED, lambda: VIEW, broken)
    assert "cannot be used" in caplog.text


def test_a_ledger_that_cannot_be_read_is_a_warning(groups: FakeGroupMirror, caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> PlanView:
        raise DatabaseUnavailable("PostgreSQL cannot be reached")

    assert not mirror_group(MIRRORED, broken, lambda: groups)
    assert "PostgreSQL cannot be reached" in caplog.text
    assert not mirror_group(MIRRORED, lambda: None, lambda: groups)
    assert "the ledger could not be read" in caplog.text
    assert groups.groups == {}
