"""The soak's own pipeline: orders like the example's, and time-outs that end a dead holder's hold in seconds.

It appends every order to its table, or keeps the newest order of each key there.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from sandbox.orders import PIPELINE_COLUMNS
from sandbox.paths import private_folder

PIPELINE = "soak"
TOPIC = "soak"
TABLE = ("shop", "soak")
DAG_ID = f"kafka_to_postgres__{PIPELINE}"
#: A silent attempt loses its hold after this time; a frozen driver stays frozen for longer.
HEARTBEAT_TIMEOUT_SECONDS = 4
#: From a plan to its claim: other runs of the pipeline wait this long for a run that died in between.
START_TIMEOUT_SECONDS = 10


class SoakMode(StrEnum):
    """What the pipeline makes of the topic."""

    APPEND = "append"  #: one row a record
    UPSERT = "upsert"  #: one row a key: its newest record; tombstones remove it


_TARGETS = {
    SoakMode.APPEND: f"""\
tombstones: count
target: {{table: {".".join(TABLE)}, create_table: true}}
""",
    SoakMode.UPSERT: f"""\
target:
  {{table: {".".join(TABLE)}, create_table: true, mode: upsert, key: [customer_key], order: offset, deletes: remove}}
""",
}
_FILE = f"""\
pipeline: {PIPELINE}
schedule: null
kafka: {{topics: [{TOPIC}]}}
first_run: earliest
{PIPELINE_COLUMNS}\
dead_letters: {{max_count: 1_000_000, max_ratio: 0.5}}  # a rebuild reads every malformed record of the soak at once
hold:
  start_timeout_seconds: {START_TIMEOUT_SECONDS}
  heartbeat_timeout_seconds: {HEARTBEAT_TIMEOUT_SECONDS}
  heartbeat_interval_seconds: 1
spark: {{no_progress_timeout_seconds: 30, tasks: 3}}
airflow: {{owner: soak, retries: 3, retry_delay_seconds: 1}}
"""


def write_pipeline(folder: Path, mode: SoakMode = SoakMode.APPEND) -> None:
    """Write the pipeline file into a folder that ``KAFKA_INGEST_PIPELINES`` names."""
    (private_folder(folder) / f"{PIPELINE}.yaml").write_text(_FILE + _TARGETS[mode], encoding="utf-8")
