"""The cluster policy of docs/managed-airflow.md sends the task that needs Java to another queue, and no other task."""

from __future__ import annotations

import json
import re
from pathlib import Path

from kafka_ingest.integrity import load
from sandbox.paths import CHECKOUT


def test_the_documented_policy_moves_the_load_and_nothing_else(tmp_path: Path) -> None:
    page = (CHECKOUT / "docs" / "managed-airflow.md").read_text(encoding="utf-8")
    [policy] = re.findall(r"(?ms)^```python\n(.*?)^```$", page)
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "airflow_local_settings.py").write_text(policy, encoding="utf-8")
    report = load(CHECKOUT / "dags", tmp_path)
    assert report["import_errors"] == {}
    tasks = [task["__var"] for dag in report["dags"] for task in json.loads(dag["serialized"])["dag"]["tasks"]]
    queues = {task["task_id"]: task.get("queue", "default") for task in tasks}
    assert queues["load_batch"] == "spark"
    assert {queue for task_id, queue in queues.items() if task_id != "load_batch"} == {"default"}
