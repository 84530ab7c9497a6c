"""Warnings before loss, on real Kafka and PostgreSQL: retention comes close, the plan says so, the batch keeps it."""

from __future__ import annotations

import re
from datetime import timedelta

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from kafka_ingest.protocol.position import TopicPartition as Place
from sandbox.kafka import KafkaBroker
from tests.contracts.test_group_mirror_contract import offsets_of
from tests.integration.pipeline_under_test import FedPipeline, PipelineUnderTest
from tests.services import TopicFactory


def delete_before(broker: KafkaBroker, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        future.result(timeout=30)


def two_hours_pass(pipeline: PipelineUnderTest) -> None:
    pipeline.query(
        "UPDATE kafka_ingest.log_observation SET rate_from_at = rate_from_at - %s, seen_at = seen_at - %s",
        timedelta(hours=2),
        timedelta(hours=2),
    )


def test_retention_that_comes_close_is_warned_of_in_offsets_and_time(
    pipeline: FedPipeline, kafka_broker: KafkaBroker
) -> None:
    """100 are loaded; then 90 are deleted in two hours, and 20 wait: ten offsets are 800 seconds."""
    name = pipeline.open(alerts={"min_headroom_seconds": 3_600})
    pipeline.send(*["x"] * 100)
    assert pipeline.load_here()["warnings"] == []
    two_hours_pass(pipeline)
    pipeline.send(*["x"] * 20)
    delete_before(kafka_broker, name, 90)

    _, preview, _ = pipeline.command("plan", pipeline.name, "--dry-run")
    [shown] = preview["warnings"]
    [kept] = pipeline.load_here()["warnings"]
    for warning in (shown, kept):
        found = re.match(
            rf"{name}\[0\]: retention is 10 offsets behind .* 100, about (\d+) seconds .* 20 offsets wait", warning
        )
        assert found is not None
        assert 800 <= int(found[1]) <= 900  # the test's own time comes on top: 900 are 13 minutes
    assert pipeline.load_here()["warnings"] == []  # everything is loaded: nothing can be lost


def test_a_run_of_the_command_line_copies_the_position_to_the_pipeline_s_group(
    pipeline: FedPipeline, topic: TopicFactory, kafka_broker: KafkaBroker
) -> None:
    name = topic()
    pipeline.name = name.replace("-", "_")  # a group of the test's own
    pipeline.write(name, mirror_group=True)
    pipeline.send(*["x"] * 7, to=name)
    pipeline.load()
    assert offsets_of(kafka_broker.bootstrap, f"kafka_ingest.{pipeline.name}", name) == {Place(name, 0): 7}
