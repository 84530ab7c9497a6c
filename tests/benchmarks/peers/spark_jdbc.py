"""Peer: Spark's Kafka source as a batch, ``from_json``, the JDBC writer, on ``local[2]`` with Spark's default options.

Spark's tasks commit one by one and no offsets are kept: a job that failed or is run again leaves or doubles rows. A
value that does not fit becomes a row of NULLs.
"""

from typing import Any

from tests.benchmarks.load import Load
from tests.benchmarks.peers.contender import run
from tests.benchmarks.peers.spark_submit import install, submit


def load_records(load: Load, _params: dict[str, Any]) -> None:
    """Loads the topic."""
    submit("spark_jdbc_application.py", load, ["--master", "local[2]"])


if __name__ == "__main__":
    run(load_records, install=install)
