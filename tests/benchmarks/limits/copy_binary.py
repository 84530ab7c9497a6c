"""Limit: binary COPY of rows that are finished, by two streams into the table. The files were written before.

The database can take rows no faster than this from outside; a load also has to read, decode and stage them.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from pathlib import Path

from tests.benchmarks.limits.finished_rows import read_finished_rows
from tests.benchmarks.load import load_of_command


def main() -> None:
    """Copies all files of the folder into the table at once, one process a file."""
    load, params = load_of_command(str(__doc__))
    files = sorted(Path(load.folder).glob("*.binary"))
    with multiprocessing.get_context("spawn").Pool(len(files)) as pool:
        begin = time.perf_counter()
        pool.starmap(read_finished_rows, [(params, load.table, path) for path in files])
        seconds = time.perf_counter() - begin
    print(json.dumps({"records_per_second": load.records / seconds}))


if __name__ == "__main__":
    main()
