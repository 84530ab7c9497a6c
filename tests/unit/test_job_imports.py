"""What the processes of a load do not load: it would cost every load up to a second."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


def loaded(program: str, *libraries: str) -> list[str]:
    """Return those of the libraries that a new process has loaded when it has run the program."""
    environment = {**os.environ, "PYTHONPATH": f"{CHECKOUT / 'plugins'}:{CHECKOUT}"}
    asked = f"{program}\nimport sys\nprint(*[name for name in {libraries!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", asked], env=environment, check=True, capture_output=True, text=True)
    return done.stdout.split()


def test_the_driver_does_without_arrow() -> None:
    program = "import spark_jobs.load_job, spark_jobs.spark_runner"
    assert loaded(program, "pyspark", "pyarrow", "numpy", "pandas") == ["pyspark"]


def test_the_process_that_resolves_dead_letters_does_without_spark_and_pandas() -> None:
    program = (
        "import runpy, sys\n"
        "from contextlib import suppress\n"
        "with suppress(SystemExit):\n"  # it has no environment, and ends
        "    runpy.run_module('spark_jobs.replay_dead_letters', run_name='__main__')"
    )
    libraries = ("pyspark", "py4j", "pyarrow", "pandas")
    assert set(loaded(program, *libraries)) & set(libraries) == {"pyarrow"}


def test_a_worker_does_without_pandas() -> None:
    program = "from spark_jobs.worker_daemon import preload\npreload()"
    assert loaded(program, "spark_jobs.stage", "pyarrow", "pandas") == ["spark_jobs.stage", "pyarrow"]


def test_a_worker_that_spark_started_by_itself_does_without_pandas_too() -> None:
    program = (
        "from contextlib import suppress\n"
        "from spark_jobs import spark_runner\n"
        "with suppress(AttributeError):\n"
        "    spark_runner._stage(None, None, 0, is_last=True)"
    )
    assert loaded(program, "spark_jobs.stage", "pyarrow", "pandas") == ["spark_jobs.stage", "pyarrow"]


def test_pandas_can_still_be_loaded_afterwards() -> None:
    program = "from spark_jobs.process import start_arrow_without_pandas\nstart_arrow_without_pandas()\nimport pandas"
    assert loaded(program, "pandas") == ["pandas"]
