"""Airflow for tests without services: its files go to a folder that is thrown away, and no database is made."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

_HOME = tempfile.mkdtemp(prefix="kafka_ingest_airflow_")
atexit.register(shutil.rmtree, _HOME, ignore_errors=True)
# Read by Airflow when it is first imported, so it cannot wait for a fixture.
os.environ["AIRFLOW_HOME"] = _HOME
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
# Operators may be executed outside a task runner.
os.environ["AIRFLOW__CORE__UNIT_TEST_MODE"] = "True"
