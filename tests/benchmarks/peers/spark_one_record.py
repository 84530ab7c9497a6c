"""Reference for the time that a start takes: a ``spark-submit`` with default options that reads one record of Kafka.

It writes nothing.
"""

from typing import Any

from tests.benchmarks.load import Load
from tests.benchmarks.peers.contender import run
from tests.benchmarks.peers.spark_submit import install, submit


def read_one_record(load: Load, _params: dict[str, Any]) -> None:
    """Reads one record of the topic."""
    submit("spark_one_record_application.py", load)


if __name__ == "__main__":
    run(read_one_record, install=install)
