"""Whatever call the Kafka client refuses while a range is read, the reader raises an error of this package."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafka_ingest.errors import BrokerUnavailable, ConfigError
from kafka_ingest.protocol.staging import Split
from spark_jobs.reader import KafkaRangeReader


class RefusingConsumer:
    """A consumer on which one call fails."""

    def __init__(self, call: str) -> None:
        self._call = call

    def __getattr__(self, name: str) -> Any:
        def answer(*_: object) -> Any:
            if name == self._call:
                raise KafkaException(KafkaError(KafkaError._FATAL, "the client is in a bad state"))
            return []

        return answer


@pytest.mark.parametrize("call", ["assign", "seek", "poll", "unassign"])
def test_a_call_that_the_client_refuses_is_an_error_of_this_package(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with KafkaRangeReader(
        {"bootstrap.servers": "127.0.0.1:1", "group.id": "none"}, no_progress_timeout_seconds=1
    ) as it:
        monkeypatch.setattr(it, "_consumer", RefusingConsumer(call))
        with pytest.raises(BrokerUnavailable, match=r"orders\[0\] cannot be read at offset 5") as caught:
            list(it.read(Split(0, "orders", 0, 0, 5, 9, leader_epoch=1)))
    assert caught.value.found == "the client is in a bad state"


def test_settings_that_make_no_client_where_the_task_runs_are_a_fault_of_configuration() -> None:
    missing = {"bootstrap.servers": "127.0.0.1:1", "group.id": "none", "security.protocol": "SSL"}
    with pytest.raises(ConfigError, match="make no Kafka client"):
        KafkaRangeReader({**missing, "ssl.ca.location": "/not/on/this/machine.pem"})
