"""Starts a module of the crash tests as the job's entries start: without pandas, for which Arrow would look.

Started as ``python -m tests.crash.started MODULE ARGUMENT...``.
"""

from __future__ import annotations

import runpy
import sys

from spark_jobs.process import start_arrow_without_pandas

if __name__ == "__main__":
    start_arrow_without_pandas()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
