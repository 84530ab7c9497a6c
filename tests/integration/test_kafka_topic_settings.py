"""What Kafka tells of a topic's settings, and what it says where it does not tell them."""

from __future__ import annotations

from kafka_ingest.kafka.log import KafkaAdmin
from sandbox.kafka import KafkaBroker
from tests.services import TopicFactory


def test_settings_of_a_topic_are_those_that_apply_and_a_missing_topic_is_told_in_the_brokers_words(
    kafka_broker: KafkaBroker, topic: TopicFactory
) -> None:
    name = topic(1, {"cleanup.policy": "compact,delete", "retention.ms": "60000"})
    admin = KafkaAdmin({"bootstrap.servers": kafka_broker.bootstrap}, timeout_seconds=30)

    answers = admin.describe_configs([name, "nowhere"])

    settings = answers[name]
    assert not isinstance(settings, str)
    assert (settings["cleanup.policy"], settings["retention.ms"]) == ("compact,delete", "60000")
    assert settings["unclean.leader.election.enable"] == "false"
    assert answers["nowhere"] == "Broker: Unknown topic or partition"
    assert admin.describe_configs([]) == {}
