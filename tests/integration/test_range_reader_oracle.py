"""Reader and Spark's Kafka source agree, record by record, on every kind of log. Spark runs once for all scenarios."""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kafka_ingest.kafka.client import client_config
from kafka_ingest.protocol.staging import Split
from sandbox.kafka import KafkaBroker
from spark_jobs.reader import KafkaRangeReader
from tests.integration.oracle_scenarios import SCENARIOS, Sandbox, Scenario
from tests.integration.run_spark import run_spark
from tests.services import FreshTopics

ORACLE = Path(__file__).with_name("spark_oracle.py")

Record = tuple[Any, ...]


@pytest.fixture(scope="module")
def scenarios(kafka_broker: KafkaBroker) -> Iterator[Mapping[str, Scenario]]:
    topics = FreshTopics(kafka_broker.bootstrap)
    box = Sandbox(kafka_broker.bootstrap, topics.create)
    yield {name: build(box) for name, build in SCENARIOS.items()}
    box.world.close()
    topics.delete_all()


@pytest.fixture(scope="module")
def oracle(
    kafka_broker: KafkaBroker, scenarios: Mapping[str, Scenario], tmp_path_factory: pytest.TempPathFactory
) -> Mapping[tuple[str, int], list[Record]]:
    """What Spark read, by topic and number of the read."""
    folder = tmp_path_factory.mktemp("oracle")
    reads = list(spark_reads(scenarios))
    asked = {"bootstrap": kafka_broker.bootstrap, "reads": [read for _, read in reads]}
    (folder / "reads.json").write_text(json.dumps(asked), encoding="utf-8")
    run_spark(ORACLE, "spark-sql-kafka-0-10", folder / "reads.json", folder / "records.jsonl")
    found: dict[tuple[str, int], list[Record]] = defaultdict(list)
    for line in (folder / "records.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        found[record["topic"], reads[record["read"]][0]].append(as_record(record))
    return found


def spark_reads(scenarios: Mapping[str, Scenario]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Puts the first ranges of all topics into one Spark read, the second ones into the next, and so on."""
    grouped: dict[tuple[int, str], dict[str, dict[str, list[int]]]] = defaultdict(dict)
    for scenario in scenarios.values():
        for number, bounds in enumerate(scenario.reads):
            by_partition = {str(partition): list(ends) for partition, ends in bounds.items()}
            grouped[number, scenario.isolation_level.value][scenario.topic] = by_partition
    for (number, isolation_level), ranges in grouped.items():
        yield number, {"isolation_level": isolation_level, "ranges": ranges}


def as_record(found: Mapping[str, Any]) -> Record:
    headers = found["headers"] and tuple((name, decoded(value)) for name, value in found["headers"])
    place = (found["partition"], found["offset"], found["timestamp_ms"], found["timestamp_type"])
    return (*place, decoded(found["key"]), decoded(found["value"]), headers)


def decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def read_with_ours(bootstrap: str, scenario: Scenario, number: int) -> list[Record]:
    config = client_config({"bootstrap.servers": bootstrap}, scenario.isolation_level, client_id="ours")
    found: list[Record] = []
    with KafkaRangeReader(config, no_progress_timeout_seconds=20) as reader:
        for partition, (start, end) in scenario.reads[number].items():
            for batch in reader.read(Split(0, scenario.topic, partition, 0, start, end)):
                found += map(as_plain, batch.to_pylist())
    return found


def as_plain(row: Mapping[str, Any]) -> Record:
    assert row["headers_readable"]
    headers = row["headers"] and tuple((header["name"], header["value"]) for header in row["headers"])
    place = (row["partition"], row["offset"], row["timestamp_ms"], row["timestamp_type"])
    return (*place, row["key"], row["value"], headers)


@pytest.mark.parametrize("name", SCENARIOS)
def test_reader_and_sparks_source_give_the_same_records(
    name: str,
    kafka_broker: KafkaBroker,
    scenarios: Mapping[str, Scenario],
    oracle: Mapping[tuple[str, int], list[Record]],
) -> None:
    scenario = scenarios[name]
    for number in range(len(scenario.reads)):
        ours = read_with_ours(kafka_broker.bootstrap, scenario, number)
        theirs = oracle.get((scenario.topic, number), [])
        assert sorted(ours, key=place_of) == sorted(theirs, key=place_of), scenario.reads[number]


def place_of(record: Record) -> tuple[int, int]:
    return record[0], record[1]


#: Number of records of each read, worked out by hand from the scenario's text: so that both being empty is no proof.
KNOWN_COUNTS = {
    "plain": [2_000, 500, 1],
    "empty": [0],
    "transactions": [5, 0, 0, 3, 0, 3],
    "transactions, uncommitted": [5, 2],
    "interleaved transactions": [3, 2],
    "large": [5, 1],
    "compressed with zstd": [3_000, 66],
}


@pytest.mark.parametrize("name", KNOWN_COUNTS)
def test_the_number_of_records_is_the_one_worked_out_by_hand(
    name: str, kafka_broker: KafkaBroker, scenarios: Mapping[str, Scenario]
) -> None:
    scenario = scenarios[name]
    counts = [len(read_with_ours(kafka_broker.bootstrap, scenario, n)) for n in range(len(scenario.reads))]
    assert counts == KNOWN_COUNTS[name]
