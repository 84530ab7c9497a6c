"""Versions of what is installed for the peers and nowhere else in the project."""

from importlib.metadata import version

#: Spark's connectors must be of the version of PySpark.
SPARK = version("pyspark")
#: The newest versions on Maven Central and PyPI in November 2026.
POSTGRES_JDBC = "42.7.14"
DEBEZIUM = "3.6.0.Final"
DLT = "1.31.0"
CONFLUENT_KAFKA_OF_DLT = "2.16.1"
