"""Peer: Spark's Kafka source as a batch, ``from_json``, the JDBC writer, on ``local[2]`` with Spark's default options.

Avro records are read with ``from_avro`` and the schema that they were written with: it knows no registry, so the five
bytes before each record are cut off unread.

Spark's tasks commit one by one and no offsets are kept: a job that failed or is run again leaves or doubles rows. A
value that does not fit becomes a row of NULLs; an Avro record that its schema does not decode stops the job.
"""

from typing import Any

from tests.benchmarks.load import Load
from tests.benchmarks.peers.contender import run
from tests.benchmarks.peers.spark_submit import install, install_avro, submit
from tests.benchmarks.workloads import WORKLOADS


def load_records(load: Load, _params: dict[str, Any]) -> None:
    """Loads the topic."""
    more_jars = install_avro() if WORKLOADS[load.workload].format == "avro" else None
    submit("spark_jdbc_application.py", load, ["--master", "local[2]"], more_jars=more_jars)


def install_all() -> None:
    """Fetches all connectors."""
    install()
    install_avro()


if __name__ == "__main__":
    run(load_records, install=install_all)
