"""What a parse of the main DAG file loads of the package: it is done again and again, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from sandbox.paths import CHECKOUT

#: Packages count as modules.
MOST_MODULES = 26


def loaded(program: str, home: Path) -> list[str]:
    """Return the modules of the package that a new process has loaded when it has run a program."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "KAFKA_INGEST_"))}
    environment = {
        **kept,
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "PYTHONPATH": str(CHECKOUT / "plugins"),
    }
    asked = f"{program}\nimport sys\nprint(*[name for name in sys.modules if name.split('.')[0] == 'kafka_ingest'])"
    done = subprocess.run(
        [sys.executable, "-c", asked], env=environment, cwd=home, capture_output=True, text=True, check=True
    )
    return sorted(done.stdout.splitlines()[-1].split())


def test_a_parse_of_the_pipelines_loads_26_modules_at_most(tmp_path: Path) -> None:
    dag_file = CHECKOUT / "dags" / "kafka_to_postgres.py"
    found = loaded(f"import runpy\nassert 'settings' in runpy.run_path({str(dag_file)!r})", tmp_path)
    assert "kafka_ingest.operators.tasks" in found
    assert len(found) <= MOST_MODULES, found


def test_the_package_itself_loads_nothing_until_somebody_asks_for_a_name(tmp_path: Path) -> None:
    assert loaded("import kafka_ingest", tmp_path) == ["kafka_ingest"]
