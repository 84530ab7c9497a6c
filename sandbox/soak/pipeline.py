"""The soak's own pipeline: orders like the example's, and time-outs that end a dead holder's hold in seconds."""

from __future__ import annotations

from pathlib import Path

from sandbox.paths import private_folder

PIPELINE = "soak"
TOPIC = "soak"
TABLE = ("shop", "soak")
DAG_ID = f"kafka_to_postgres__{PIPELINE}"
#: A silent attempt loses its hold after this time; a frozen driver stays frozen for longer.
HEARTBEAT_TIMEOUT_SECONDS = 4
#: From a plan to its claim: other runs of the pipeline wait this long for a run that died in between.
START_TIMEOUT_SECONDS = 10

_FILE = f"""\
pipeline: {PIPELINE}
schedule: null
kafka: {{topics: [{TOPIC}]}}
first_run: earliest
value:
  format: json
  columns:
    - {{name: order_id, type: bigint, required: true}}
    - {{name: customer, type: text}}
    - {{name: status, type: varchar(20)}}
    - {{name: amount, type: "numeric(12,2)"}}
    - {{name: currency, type: varchar(3)}}
    - {{name: ordered_at, type: timestamptz}}
    - {{name: note, type: text}}
    - {{name: lines, type: jsonb}}
    - {{name: tags, type: "text[]"}}
key: {{format: text, column: customer_key}}
tombstones: count
target: {{table: {".".join(TABLE)}, create_table: true}}
dead_letters: {{max_ratio: 0.5}}
hold:
  start_timeout_seconds: {START_TIMEOUT_SECONDS}
  heartbeat_timeout_seconds: {HEARTBEAT_TIMEOUT_SECONDS}
  heartbeat_interval_seconds: 1
spark: {{no_progress_timeout_seconds: 30, tasks: 3}}
airflow: {{owner: soak, retries: 3, retry_delay_seconds: 1}}
"""


def write_pipeline(folder: Path) -> None:
    """Write the pipeline file into a folder that ``KAFKA_INGEST_PIPELINES`` names."""
    (private_folder(folder) / f"{PIPELINE}.yaml").write_text(_FILE, encoding="utf-8")
