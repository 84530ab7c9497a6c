"""Python's side of a local executor: PySpark's own daemon, which forks a worker for each task that runs at once.

What a task imports is loaded before the first fork, so that it is loaded once and not by each worker. Started by Spark
in place of ``pyspark.daemon`` (``spark.python.daemon.module``, Spark 4.2).
"""

from __future__ import annotations

from contextlib import suppress

from spark_jobs.process import prefer_installed_pyspark


def preload() -> None:
    """Load what a task imports."""
    from spark_jobs.process import start_arrow_without_pandas

    start_arrow_without_pandas()
    import spark_jobs.reader
    import spark_jobs.spark_runner
    import spark_jobs.stage  # noqa: F401


if __name__ == "__main__":
    prefer_installed_pyspark()

    import pyspark.worker  # noqa: F401 (for the workers)
    from pyspark import daemon

    # What is missing is missed again by the task that needs it, and its error is the one that is told.
    with suppress(ImportError):
        preload()

    daemon.manager()
