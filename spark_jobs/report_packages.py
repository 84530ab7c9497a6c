"""Entry of a small Spark job in which every executor reports its Python and the packages that a load imports.

Started by spark-submit with ``--report-file PATH``, which it writes when all have answered. Reads no data.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spark_jobs.process import die_with_parent

#: Less than its submitter waits for it, so that nothing is left in YARN's queue.
_QUEUE_SECONDS = 240.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job; an error of Spark passes through, its trace is the job's last output."""
    parser = argparse.ArgumentParser(prog="report_packages.py", description="Say which packages executors have.")
    parser.add_argument("--report-file", required=True, type=Path, help="where to write what they say")
    options = parser.parse_args(arguments)

    from kafka_ingest.spark.installation import write_report
    from spark_jobs.spark_start import SparkStart

    spark = SparkStart(_QUEUE_SECONDS).run()
    try:
        write_report(options.report_file, _interpreters(spark))
    finally:
        spark.stop()
    return 0


def _interpreters(spark: Any) -> set[Any]:
    """Ask with a task for each core: Spark deals tasks out in turns, so every present executor gets one.

    Source: ``TaskSchedulerImpl.resourceOffers`` (Spark 4.2). Executors that come while others answer are asked, too.
    """
    found: set[Any] = set()
    asked = 0
    while (cores := int(spark.defaultParallelism)) > asked:
        asked = cores
        found.update(spark.parallelize(range(cores), cores).map(_report).collect())
    return found


def _report(_task: int) -> Any:
    from kafka_ingest.spark.installation import this_interpreter

    return this_interpreter()


if __name__ == "__main__":
    die_with_parent()
    sys.exit(main())
