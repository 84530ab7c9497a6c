"""The pipeline of the peer ``dlt_load``, run by the Python of dlt's environment."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dlt  # type: ignore[import-not-found]  # it is in an environment of its own
from confluent_kafka import Consumer, Message, TopicPartition

from tests.benchmarks.load import Load, load_of_command
from tests.benchmarks.workloads import WORKLOADS

#: As dlt's verified source.
_RECORDS_A_BATCH = 3_000
_TIMEOUT_SECONDS = 30
_TYPES: dict[str, dict[str, Any]] = {
    "bigint": {"data_type": "bigint"},
    "integer": {"data_type": "bigint", "precision": 32},
    "text": {"data_type": "text"},
    "double precision": {"data_type": "double"},
    "boolean": {"data_type": "bool"},
    "timestamptz": {"data_type": "timestamp"},
    "jsonb": {"data_type": "json"},
}
_METADATA = {
    "kafka_topic": {"data_type": "text"},
    "kafka_partition": {"data_type": "bigint", "precision": 32},
    "kafka_offset": {"data_type": "bigint"},
    "kafka_timestamp": {"data_type": "timestamp"},
}


def main() -> None:
    load, params = load_of_command("loads a topic with dlt")
    credentials = {"drivername": "postgresql", **params, "database": params["dbname"], "username": params["user"]}
    pipeline = dlt.pipeline(
        pipeline_name=f"{load.table}_dlt",
        pipelines_dir=str(Path(load.folder) / "dlt"),
        destination=dlt.destinations.postgres(
            credentials={k: v for k, v in credentials.items() if k not in {"dbname", "user"}}
        ),
        dataset_name=f"{load.table}_dlt",
    )
    columns = WORKLOADS[load.workload].columns
    hints = {name: _hint(kind) for name, kind in columns.items()} | _METADATA
    resource = dlt.resource(messages(load), name=load.table, columns=hints, write_disposition="append")
    pipeline.run(resource).raise_on_failed_jobs()


def messages(load: Load) -> Iterator[list[dict[str, Any]]]:
    """Return records as dlt's source does: in lists, from the offsets of dlt's state up to the present end."""
    columns = list(WORKLOADS[load.workload].columns)
    consumer = Consumer({"bootstrap.servers": load.bootstrap, "group.id": "bench-dlt", "auto.offset.reset": "earliest"})
    with closing(consumer):
        offsets = dlt.current.resource_state().setdefault("offsets", {})
        left = _left(consumer, load, offsets)
        consumer.assign([TopicPartition(load.topic, p, offsets.get(str(p), 0)) for p in left])
        while any(offsets.get(str(partition), 0) < end for partition, end in left.items()):
            found = consumer.consume(_RECORDS_A_BATCH, _TIMEOUT_SECONDS)
            if not found:
                raise TimeoutError(f"no message for {_TIMEOUT_SECONDS} s, expected the ends {left}, found {offsets}")
            yield [_record(columns, message) for message in found]
            offsets.update({str(message.partition()): message.offset() + 1 for message in found})


def _left(consumer: Consumer, load: Load, offsets: Mapping[str, int]) -> dict[int, int]:
    partitions = consumer.list_topics(load.topic).topics[load.topic].partitions
    ends = {p: consumer.get_watermark_offsets(TopicPartition(load.topic, p))[1] for p in partitions}
    return {partition: end for partition, end in ends.items() if offsets.get(str(partition), 0) < end}


def _record(columns: list[str], message: Message) -> dict[str, Any]:
    value = json.loads(message.value())
    return {
        **{name: value.get(name) for name in columns},
        "kafka_topic": message.topic(),
        "kafka_partition": message.partition(),
        "kafka_offset": message.offset(),
        "kafka_timestamp": datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC),
    }


def _hint(kind: str) -> Mapping[str, Any]:
    decimal = re.fullmatch(r"numeric\((\d+),(\d+)\)", kind)
    if decimal is None:
        return _TYPES[kind]
    return {"data_type": "decimal", "precision": int(decimal[1]), "scale": int(decimal[2])}


if __name__ == "__main__":
    main()
