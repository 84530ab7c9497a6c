"""Entry of the Spark job, which loads one planned batch.

Started by spark-submit with ``--pipeline NAME --batch-id UUID`` and the environment of
``kafka_ingest/spark/submission.py``. It prints progress, writes the outcome file and ends with a code of
``kafka_ingest/errors.py``.
"""

from __future__ import annotations

import sys

from spark_jobs.process import die_with_parent, leave_no_core_file, prefer_installed_pyspark

if __name__ == "__main__":
    # Before the job's libraries are loaded: a driver whose spark-submit is gone must not get as far as a claim.
    die_with_parent()
    leave_no_core_file()
    prefer_installed_pyspark()

    from spark_jobs.load_job import main

    sys.exit(main())
