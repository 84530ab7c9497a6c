"""The application of ``spark_one_record``, run by ``spark-submit``."""

from pyspark.sql import SparkSession

from tests.benchmarks.load import load_of_command


def main() -> None:
    load, _ = load_of_command("reads one record with Spark's Kafka source")
    spark = SparkSession.builder.appName("spark-one-record").getOrCreate()
    messages = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", load.bootstrap)
        .option("subscribe", load.topic)
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .load()
    )
    records = messages.limit(1).collect()
    spark.stop()
    if len(records) != 1:
        raise SystemExit(f"expected one record, found {len(records)}")


if __name__ == "__main__":
    main()
