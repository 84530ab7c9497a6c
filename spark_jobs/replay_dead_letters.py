"""Entry of the job that replays dead letters, without Spark.

Started by ``kafka_ingest/spark/replay.py`` with the environment of ``kafka_ingest/spark/submission.py``. It writes the
outcome file and ends with a code of ``kafka_ingest/errors.py``.
"""

from __future__ import annotations

import sys

from spark_jobs.process import die_with_parent, leave_no_core_file, start_arrow_without_pandas

if __name__ == "__main__":
    # Before the job's libraries are loaded: nobody waits any more for the answer to a parent that is gone.
    die_with_parent()
    leave_no_core_file()
    start_arrow_without_pandas()

    from spark_jobs.replay_job import main

    sys.exit(main())
