"""Airflow for tests that execute operators in this process: its files go to a folder that is thrown away.

Airflow reads its environment when it is first imported, so this cannot be a fixture: import this module before it.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

_HOME = tempfile.mkdtemp(prefix="kafka_ingest_airflow_")
atexit.register(shutil.rmtree, _HOME, ignore_errors=True)
os.environ["AIRFLOW_HOME"] = _HOME
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
# Operators may be executed outside a task runner.
os.environ["AIRFLOW__CORE__UNIT_TEST_MODE"] = "True"
