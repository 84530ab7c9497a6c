"""Reads ranges with Spark's own Kafka source: the oracle of ``test_range_reader_oracle``. Run by spark-submit.

Arguments: a JSON file of reads, and the file to write. A read is {"isolation_level": ..., "ranges": {topic: {partition:
[start, end]}}}; the answer is one JSON object a line, one line a record, with the number of its read.
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any, TextIO

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as f

Ranges = dict[str, dict[str, list[int]]]


def main() -> None:
    request, answer = Path(sys.argv[1]), Path(sys.argv[2])
    asked = json.loads(request.read_text(encoding="utf-8"))
    spark = SparkSession.builder.getOrCreate()
    with answer.open("w", encoding="utf-8") as out:
        for number, read in enumerate(asked["reads"]):
            _write(out, number, _rows(spark, asked["bootstrap"], read))
    spark.stop()


def _rows(spark: SparkSession, bootstrap: str, read: dict[str, Any]) -> list[Row]:
    ranges: Ranges = read["ranges"]
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "kafka.isolation.level": read["isolation_level"],
        "assign": json.dumps({topic: [int(number) for number in by] for topic, by in ranges.items()}),
        "startingOffsets": json.dumps(_bounds(ranges, 0)),
        "endingOffsets": json.dumps(_bounds(ranges, 1)),
        "includeHeaders": "true",
        "failOnDataLoss": "true",
    }
    frame = spark.read.format("kafka").options(**options).load()
    time_ms = f.unix_millis("timestamp").alias("timestamp_ms")
    return frame.select("topic", "partition", "offset", time_ms, "timestampType", "key", "value", "headers").collect()


def _bounds(ranges: Ranges, which: int) -> dict[str, dict[str, int]]:
    return {topic: {number: bounds[which] for number, bounds in by.items()} for topic, by in ranges.items()}


def _write(out: TextIO, number: int, rows: list[Row]) -> None:
    for row in rows:
        headers = row.headers and [[header.key, _text(header.value)] for header in row.headers]
        record = {
            "read": number,
            "topic": row.topic,
            "partition": row.partition,
            "offset": row.offset,
            "timestamp_ms": row.timestamp_ms,
            "timestamp_type": row.timestampType,
            "key": _text(row.key),
            "value": _text(row.value),
            "headers": headers or None,
        }
        out.write(json.dumps(record) + "\n")


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode("ascii")


if __name__ == "__main__":
    main()
