"""What a fold costs the target: at most one look-up in the index of the key for each key of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from kafka_ingest.settings import Deletes
from tests.state_bench import Change, StateBench, state_settings

LOOK_UPS = "SELECT idx_scan FROM pg_stat_user_indexes WHERE schemaname = 'shop' AND relname = 'orders'"


@pytest.mark.parametrize("deletes", [Deletes.REMOVE, Deletes.MARK])
def test_a_batch_looks_each_of_its_keys_up_once(database: Mapping[str, Any], deletes: Deletes) -> None:
    """300 rows; then 90 records of 40 keys, of which 5 are deleted and 10 are new. Nothing but the index finds rows."""
    bench = StateBench(database, partial(state_settings, deletes=deletes))
    name = database["dbname"]
    for setting in ("enable_seqscan", "enable_hashjoin", "enable_mergejoin", "enable_bitmapscan"):
        bench.query(f'ALTER DATABASE "{name}" SET {setting} = off')
    for key in range(300):
        bench.append(Change(f"k{key}", (key, key)))
    bench.live()
    [(before,)] = bench.query(LOOK_UPS)
    for note in (1, 2):
        for key in range(270, 310):
            bench.append(Change(f"k{key}", (note, note)))
    for key in range(280, 290):
        bench.append(Change(f"k{key}", None if key % 2 else (3, 3)))
    bench.live()
    [(after,)] = bench.query(LOOK_UPS)
    assert after - before == 40
    assert bench.table() == bench.folded()
