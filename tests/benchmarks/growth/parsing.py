"""Times the import of the DAG file with hundreds of pipeline files, each run in a new process, as Airflow does it.

Airflow itself is imported before, as its dag processor does once for all files; that is no DAG file's cost.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from sandbox.paths import CHECKOUT

_SOURCE = CHECKOUT / "dags" / "pipelines" / "orders.yaml"

#: Runs in a process of its own and prints seconds: of the parts one by one, then of the DAG file as a whole.
_CHILD = """
import json, pathlib, runpy, sys, time
import airflow.sdk
begin = time.perf_counter()
from kafka_ingest.operators import pipeline_catalog, pipeline_dag
imported = time.perf_counter()
catalog = pipeline_catalog.read_catalog(pathlib.Path(sys.argv[1]))
read = time.perf_counter()
dags = [pipeline_dag.pipeline_dag(pipeline) for pipeline in catalog.pipelines]
built = time.perf_counter()
assert len(dags) == int(sys.argv[2]) and not catalog.errors
file = runpy.run_path(sys.argv[3])
again = time.perf_counter()
assert sum(name.startswith("kafka_to_postgres__") for name in file) >= len(dags)
print(json.dumps({"import": imported - begin, "read": read - imported, "build": built - read, "file": again - built}))
"""


def main() -> None:
    """Prints one JSON object: milliseconds a pipeline file, of each run and as medians."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--files", type=int, default=300, help="pipeline files (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="processes (%(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kafka-ingest-growth-") as folder:
        pipelines = Path(folder) / "pipelines"
        pipelines.mkdir()
        _write_pipelines(pipelines, options.files)
        runs = [_parse(pipelines, options.files, Path(folder)) for _ in range(options.rounds)]
    result: dict[str, Any] = {"files": options.files, "rounds": options.rounds, "seconds": runs}
    for part in ("read", "build", "file"):
        result[f"{part}_ms_per_file"] = median(run[part] for run in runs) / options.files * 1_000
    result["import_seconds"] = median(run["import"] for run in runs)
    print(
        f"the DAG file with {options.files} pipeline files: {result['file_ms_per_file']:.1f} ms a file"
        f" (reading it {result['read_ms_per_file']:.1f}, building its DAG {result['build_ms_per_file']:.1f}),"
        f" and {result['import_seconds']:.2f} s once for our operators and Airflow's providers",
        file=sys.stderr,
    )
    print(json.dumps(result))


def _write_pipelines(folder: Path, count: int) -> None:
    text = _SOURCE.read_text(encoding="utf-8")
    for number in range(count):
        name = f"orders_{number:04d}"
        renamed = text.replace("pipeline: orders ", f"pipeline: {name} ").replace("[orders]", f"[{name}]")
        (folder / f"{name}.yaml").write_text(renamed.replace("shop.orders", f"shop.{name}"), encoding="utf-8")


def _parse(pipelines: Path, count: int, home: Path) -> dict[str, float]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("AIRFLOW", "KAFKA_INGEST_"))}
    environment = kept | {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "KAFKA_INGEST_PIPELINES": str(pipelines),
        "PYTHONPATH": str(CHECKOUT / "plugins"),
    }
    dag_file = CHECKOUT / "dags" / "kafka_to_postgres.py"
    answer = subprocess.run(
        [sys.executable, "-c", _CHILD, str(pipelines), str(count), str(dag_file)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, float] = json.loads(answer.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
