"""Limit: what the protocol allows on this machine: binary COPY by two streams, then one ``INSERT … SELECT`` and COMMIT.

The rows are finished, in files that were written before; the streams fill an unlogged table as staging does, and the
transaction fills the table as a publish does. A load also has to start, read and decode.
"""

from __future__ import annotations

import json

from tests.benchmarks.limits.finished_rows import copy_by_streams
from tests.benchmarks.limits.insert_select import STAGED, insert_staged
from tests.benchmarks.load import load_of_command


def main() -> None:
    """Copies, then inserts and commits; says how long each took."""
    load, params = load_of_command(str(__doc__))
    copying = copy_by_streams(params, STAGED, load.folder)
    inserting = insert_staged(params, load.table)
    rate = load.records / (copying + inserting)
    print(json.dumps({"records_per_second": rate, "copy_seconds": copying, "insert_seconds": inserting}))


if __name__ == "__main__":
    main()
