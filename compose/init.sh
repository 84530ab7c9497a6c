#!/usr/bin/env bash
# Makes Airflow's tables, its one user and the ledger. Safe to run again.
set -euo pipefail

umask 077
python - <<'PY'
import json, os, pathlib

target = pathlib.Path("/opt/airflow/state/passwords.json")
target.write_text(json.dumps({"admin": os.environ["AIRFLOW_ADMIN_PASSWORD"]}))
PY
airflow db migrate
python -m kafka_ingest migrate
