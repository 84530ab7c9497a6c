"""Python's side of a local executor: PySpark's own daemon, which forks a worker for each task that runs at once.

The imports of a task are loaded before the first fork, so once and not by each worker. Spark starts it
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

    # A task that needs a missing package fails at it, too, and that error is the one to report.
    with suppress(ImportError):
        preload()

    daemon.manager()
