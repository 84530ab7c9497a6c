"""Reads Avro records with Spark's ``from_avro``: the oracle of ``test_avro_oracle``. Run by spark-submit.

Arguments: a JSON list of {"schema": ..., "records": [base64, ...]}, and the file to write: the documents of each, in
which a decimal is {"decimal": ...}, bytes are base64, and times are ISO 8601, with Z where they are in UTC.
"""

from __future__ import annotations

import base64
import json
import math
import sys
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import Row, SparkSession
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, TimestampType


def main() -> None:
    request, answer = Path(sys.argv[1]), Path(sys.argv[2])
    spark = SparkSession.builder.getOrCreate()
    found = [_documents(spark, asked) for asked in json.loads(request.read_text(encoding="utf-8"))]
    answer.write_text(json.dumps(found), encoding="utf-8")
    spark.stop()


def _documents(spark: SparkSession, asked: dict[str, Any]) -> list[Any]:
    records = [(number, base64.b64decode(text)) for number, text in enumerate(asked["records"])]
    frame = spark.createDataFrame(records, "number int, value binary").orderBy("number")
    read = frame.select(from_avro("value", json.dumps(asked["schema"]), {"mode": "FAILFAST"}).alias("read"))
    return [_document(row["read"], read.schema["read"].dataType) for row in read.collect()]


def _document(value: Any, of: DataType) -> Any:
    if isinstance(value, Row) and isinstance(of, StructType):
        return {member.name: _document(value[member.name], member.dataType) for member in of}
    if isinstance(value, list) and isinstance(of, ArrayType):
        return [_document(item, of.elementType) for item in value]
    if isinstance(value, dict) and isinstance(of, MapType):
        return {key: _document(item, of.valueType) for key, item in value.items()}
    if isinstance(value, datetime):
        return value.isoformat() + ("Z" if isinstance(of, TimestampType) else "")
    return _single(value)


def _single(value: Any) -> Any:
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


if __name__ == "__main__":
    main()
