"""Peer: what a careful team builds from Spark's own parts to load each record exactly once.

Spark's Kafka source reads exactly the range from the kept offsets to the end, ``from_json`` decodes it, the JDBC
writer fills an unlogged staging table of this run, and one transaction writes ``INSERT … SELECT`` and the end offsets.
Spark is set as for the peer ``spark_jdbc``.

It is exact when it is restarted, and when two of it run: offsets advance only from where the run began. A task whose
rows were staged twice stops it, as does a value that does not fit: it has no dead letters. What a killed run has staged
stays.
"""

from typing import Any

from tests.benchmarks.load import Load
from tests.benchmarks.peers.contender import run
from tests.benchmarks.peers.spark_submit import install, submit


def load_records(load: Load, _params: dict[str, Any]) -> None:
    """Loads what the topic holds after the kept offsets."""
    submit("spark_staged_application.py", load, ["--master", "local[2]"])


if __name__ == "__main__":
    run(load_records, install=install)
