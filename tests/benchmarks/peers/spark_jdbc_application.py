"""The application of the peer ``spark_jdbc``, run by ``spark-submit``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation calls it
from pyspark.sql.avro.functions import from_avro

from tests.benchmarks.load import Load, load_of_command
from tests.benchmarks.workloads import WORKLOADS, Workload

#: Tasks of one load at least: a large partition is split, so two cores stay busy to the end.
_TASKS = 8
_METADATA = ("topic", "partition", "offset", "timestamp")
_TYPES = {
    "bigint": "BIGINT",
    "integer": "INT",
    "text": "STRING",
    "timestamptz": "TIMESTAMP",
    "jsonb": "STRING",  # from_json gives nested values as their text, and PostgreSQL casts it
    "double precision": "DOUBLE",
    "boolean": "BOOLEAN",
}


def main() -> None:
    load, params = load_of_command("Spark's Kafka source, from_json, JDBC")
    spark = SparkSession.builder.appName("spark-jdbc").getOrCreate()
    messages = read(spark, load, {"subscribe": load.topic, "startingOffsets": "earliest", "endingOffsets": "latest"})
    write(rows(messages, WORKLOADS[load.workload]), load, params)
    spark.stop()


def read(spark: SparkSession, load: Load, which: Mapping[str, str]) -> DataFrame:
    """Return the records that the options ``which`` of Spark's Kafka source choose."""
    return (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", load.bootstrap)
        .options(**which)
        .option("minPartitions", max(_TASKS, load.partitions))
        .load()
    )


def rows(messages: DataFrame, workload: Workload, *, json_mode: str = "PERMISSIVE") -> DataFrame:
    """Return the columns of the table. What does not fit is NULL, or with the mode ``FAILFAST`` stops the job."""
    record = _from_avro(workload) if workload.format == "avro" else _from_json(workload, json_mode)
    metadata = [F.col(name).alias(f"kafka_{name}") for name in _METADATA]
    columns = [_written(name, kind, workload) for name, kind in workload.columns.items()]
    return messages.select(record.alias("record"), *metadata).select(*columns, *(f"kafka_{name}" for name in _METADATA))


def _from_json(workload: Workload, mode: str) -> Column:
    schema = ", ".join(
        f"{name} {_TYPES.get(kind, kind.replace('numeric', 'DECIMAL'))}" for name, kind in workload.columns.items()
    )
    return F.from_json(F.col("value").cast("string"), schema, {"mode": mode})


def _from_avro(workload: Workload) -> Column:
    return from_avro(F.expr(f"substring(value, {len(workload.frame(0)) + 1})"), workload.schema)


def _written(name: str, kind: str, workload: Workload) -> Column:
    value = F.col(f"record.{name}")
    return F.to_json(value).alias(name) if kind == "jsonb" and workload.format == "avro" else value


def write(frame: DataFrame, load: Load, params: Mapping[str, Any]) -> None:
    """Appends to the table."""
    (
        frame.write.format("jdbc")
        .option("url", f"jdbc:postgresql://{params['host']}:{params['port']}/{params['dbname']}")
        .option("driver", "org.postgresql.Driver")
        .option("user", params["user"])
        .option("password", params["password"])
        .option("dbtable", f"public.{load.table}")
        .option("batchsize", 10_000)
        .option("reWriteBatchedInserts", "true")
        .option("stringtype", "unspecified")
        .mode("append")
        .save()
    )


if __name__ == "__main__":
    main()
