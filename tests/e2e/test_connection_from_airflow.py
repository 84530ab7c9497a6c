"""The command line finds connections that exist in Airflow's own database alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


def test_a_connection_of_airflows_database_is_found_and_a_missing_one_is_named(tmp_path: Path) -> None:
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("AIRFLOW")}
    environment = {
        **inherited,
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "PYTHONPATH": f"{CHECKOUT / 'plugins'}{os.pathsep}{CHECKOUT}",
    }

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *command], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )

    def airflow(*arguments: str) -> None:
        done = run("-m", "airflow", *arguments)
        assert done.returncode == 0, done.stderr

    airflow("db", "migrate")
    extra = ("--conn-host", "db.example", "--conn-login", "etl", "--conn-password", 'p"a\\s%', "--conn-schema", "shop")
    airflow("connections", "add", "warehouse", "--conn-type", "postgres", *extra)
    program = "from kafka_ingest.cli.command import postgres_params; print(postgres_params('{}'))"
    found = run("-c", program.format("warehouse"))
    assert found.stdout.splitlines()[-1] == str(
        {
            "host": "db.example",
            "user": "etl",
            "password": 'p"a\\s%',
            "dbname": "shop",
            "fallback_application_name": "warehouse",
        }
    )
    missing = run("-c", program.format("nowhere"))
    assert "ConfigError: there is no connection nowhere" in missing.stderr
