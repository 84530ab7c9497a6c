"""Limit: binary COPY of rows that are finished, by two streams into the table. The files were written before.

The database can take rows no faster than this from outside; a load also has to read, decode and stage them.
"""

from __future__ import annotations

import json

from tests.benchmarks.limits.finished_rows import copy_by_streams
from tests.benchmarks.load import load_of_command


def main() -> None:
    """Copies all files of the folder into the table."""
    load, params = load_of_command(str(__doc__))
    print(json.dumps({"records_per_second": load.records / copy_by_streams(params, load.table, load.folder)}))


if __name__ == "__main__":
    main()
