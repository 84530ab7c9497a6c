"""Airflow executes every file below ``plugins/`` that ``.airflowignore`` does not name, under its bare file name."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox.paths import CHECKOUT

_SCRIPT = """
import json, sys
import airflow
from airflow import plugins_manager

plugins_manager.ensure_plugins_loaded()
report = {
    "plugins": [info["name"] for info in plugins_manager.get_plugin_info()],
    # In Airflow 3.1 it is a dictionary of the module.
    "errors": getattr(plugins_manager, "get_import_errors", lambda: plugins_manager.import_errors)(),
    "executed": sorted(
        name for name, module in sys.modules.items()
        if "." not in name and (getattr(module, "__file__", "") or "").startswith(sys.argv[1])
    ),
}
print("REPORT" + json.dumps(report))
"""


def load_plugins(plugins: Path, home: Path, syntax: str = "glob") -> dict[str, object]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("AIRFLOW")} | {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(plugins),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAG_IGNORE_FILE_SYNTAX": syntax,
    }
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(plugins)], env=environment, capture_output=True, text=True, check=True
    )
    line = next(line for line in done.stdout.splitlines() if line.startswith("REPORT"))
    report: dict[str, object] = json.loads(line.removeprefix("REPORT"))
    return report


@pytest.mark.parametrize("syntax", ["glob", "regexp"])
def test_airflow_executes_the_plugin_file_alone(tmp_path: Path, syntax: str) -> None:
    report = load_plugins(CHECKOUT / "plugins", tmp_path, syntax)

    assert report["executed"] == ["kafka_ingest_plugin"]  # not even the package: the plugin does not need it
    assert report["errors"] == {}
    assert "kafka_ingest" in report["plugins"]  # type: ignore[operator]


def test_without_the_ignore_file_the_package_is_executed_file_by_file(tmp_path: Path) -> None:
    """Why the file is there: this fails on the day when Airflow no longer needs it.

    ``__main__.py`` is left out of the copy: executed as a plugin it would end the process.
    """
    left_out = shutil.ignore_patterns(".airflowignore", "__main__.py", "__pycache__")
    shutil.copytree(CHECKOUT / "plugins", tmp_path / "plugins", ignore=left_out)
    report = load_plugins(tmp_path / "plugins", tmp_path / "home")

    assert {"kafka_ingest_plugin", "errors", "ranges"} <= set(report["executed"])  # type: ignore[call-overload]
