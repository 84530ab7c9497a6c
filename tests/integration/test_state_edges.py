"""The edges of current state on a real PostgreSQL: keys of every kind, and what equal ones are."""

from __future__ import annotations

import base64
import random
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import psycopg2
import pytest

from kafka_ingest.postgres.migrations import migrate
from kafka_ingest.protocol.batch import Batch
from kafka_ingest.settings import (
    BatchSettings,
    ColumnSettings,
    Deletes,
    DeleteWhen,
    KeyFormat,
    KeySettings,
    OrderBy,
    UpsertSettings,
    ValueFormat,
    ValueSettings,
)
from sandbox.postgres import PostgresServer
from tests.builders import batch_settings
from tests.integration.test_role_settings import HOSTILE
from tests.state_bench import TOPIC, StateBench

ID = ColumnSettings("id", "text", ("id",), required=True, from_key=True)
NOTE = ColumnSettings("note", "bigint", ("note",))
REMOVE = UpsertSettings(("id",), OrderBy.OFFSET, Deletes.REMOVE)
MARK = replace(REMOVE, deletes=Deletes.MARK, deleted_at="deleted_at")
IDENTITY = (
    "kafka_topic text, kafka_generation integer, kafka_partition integer, kafka_offset bigint, "
    "kafka_timestamp timestamptz, batch_id uuid"
)


def settings_of(*columns: ColumnSettings, upsert: UpsertSettings = REMOVE, **changes: Any) -> BatchSettings:
    value = ValueSettings(ValueFormat.JSON_COLUMNS, columns or (ID, NOTE))
    return replace(batch_settings(), value=value, upsert=upsert, **changes)


def bench_of(
    params: Mapping[str, Any],
    *columns: ColumnSettings,
    upsert: UpsertSettings = REMOVE,
    partitions: int = 1,
    **changes: Any,
) -> StateBench:
    settings = settings_of(*columns, upsert=upsert, **changes)
    return StateBench(params, lambda _: settings, partitions)


def made(params: Mapping[str, Any], *statements: str, **settings: Any) -> StateBench:
    """A bench whose table exists before the first plan."""
    bench = bench_of(params, **settings)
    for statement in ("CREATE SCHEMA shop", *statements):
        bench.query(statement)
    return bench


def put(bench: StateBench, key: object, note: object = 1, partition: int = 0, *, at: int = 0) -> None:
    bench.send({"id": key}, {"note": note}, partition, at=at)


def remove(bench: StateBench, key: object, partition: int = 0, *, at: int = 0) -> None:
    bench.send({"id": key}, None, partition, at=at)


def notes(bench: StateBench) -> dict[Any, Any]:
    """Return the note of each key, and require that every invariant holds."""
    assert bench.violations() == []
    assert bench.state_violations() == []
    return dict(bench.query("SELECT id, note FROM shop.orders"))


def removed(bench: StateBench) -> list[int]:
    """Return the offsets of the removed keys' deletes."""
    return [offset for (offset,) in bench.query('SELECT "offset" FROM kafka_ingest.removed_key ORDER BY "offset"')]


def dead(bench: StateBench) -> list[tuple[int, str]]:
    """Return offset and reason of the open dead letters."""
    return bench.query(
        'SELECT "offset", reason FROM kafka_ingest.dead_letter WHERE resolved_at IS NULL ORDER BY "offset"'
    )


def counted(batch: Batch, bench: StateBench) -> tuple[int, ...]:
    """Return rows, deletes, superseded, dead letters and tombstones of a batch, as the ledger has them."""
    (found,) = bench.query(
        "SELECT rows, deletes, superseded, dead_letters, tombstones FROM kafka_ingest.batch WHERE batch_id = %s",
        batch.batch_id,
    )
    return found


# ----------
# Puts and deletes of one key, however they are cut into batches.


def test_insert_delete_insert_of_one_key_end_as_the_last(database: Mapping[str, Any]) -> None:
    bench = bench_of(database)
    for key, cuts in enumerate([(3,), (1, 1, 1), (2, 1), (1, 2)]):
        put(bench, str(key), 1)
        remove(bench, str(key))
        put(bench, str(key), 3)
        for cut in cuts:
            bench.live(cut)
        assert notes(bench) == dict.fromkeys(map(str, range(key + 1)), 3)
        assert removed(bench) == []
    remove(bench, "0")
    bench.live()
    assert notes(bench) == {"1": 3, "2": 3, "3": 3}
    assert removed(bench) == [12]


def test_what_a_batch_counts_is_what_became_of_each_record(database: Mapping[str, Any]) -> None:
    bench = bench_of(database)
    for note in (1, 2, "not a number"):
        put(bench, "a", note)
    remove(bench, "b")
    bench.send(None, None)
    assert counted(bench.live(), bench) == (1, 1, 1, 1, 1)
    put(bench, "b", 1)
    remove(bench, "b")
    remove(bench, "a")
    assert counted(bench.live(), bench) == (0, 2, 1, 0, 0)
    assert notes(bench) == {}


def test_a_tombstone_of_an_unknown_key_keeps_older_puts_away(database: Mapping[str, Any]) -> None:
    bench = bench_of(database)
    put(bench, "a", 1)
    remove(bench, "a")
    entries = bench.log.topics[TOPIC].partitions[0].entries
    not_yet_seen = entries.pop(0)
    assert counted(bench.live(), bench) == (0, 1, 0, 0, 0)
    entries[0] = not_yet_seen
    assert counted(bench.reload(0, 0, 1), bench) == (0, 0, 1, 0, 0)
    assert notes(bench) == {}
    assert removed(bench) == [1]


@pytest.mark.parametrize("deletes", [Deletes.REMOVE, Deletes.MARK])
def test_the_same_delete_twice_is_one(database: Mapping[str, Any], deletes: Deletes) -> None:
    bench = bench_of(database, upsert=MARK if deletes is Deletes.MARK else REMOVE)
    put(bench, "a", 1)
    for _ in range(2):
        remove(bench, "a")
        remove(bench, "a")
        bench.live()
    assert notes(bench) == ({"a": 1} if deletes is Deletes.MARK else {})
    assert removed(bench) == ([] if deletes is Deletes.MARK else [4])


# ----------
# Keys.


def test_a_key_of_two_columns_is_equal_only_as_a_whole(database: Mapping[str, Any]) -> None:
    tenant = replace(ID, name="tenant", path=("tenant",))
    bench = bench_of(database, ID, tenant, NOTE, upsert=replace(REMOVE, key=("tenant", "id")))
    texts = ("", "a", "b", "a,b", "NULL", "{}", '"', "\\", "a\nb", " ")
    keys = [{"tenant": tenant, "id": id_} for tenant in texts for id_ in texts]
    for key in keys:
        bench.send(key, {"note": 1})
    bench.live()
    assert bench.query("SELECT count(*) FROM shop.orders") == [(100,)]
    for key in keys[::2]:
        bench.send(key, None)
    bench.live()
    left = {(key["tenant"], key["id"]) for key in keys[1::2]}
    assert set(bench.query("SELECT tenant, id FROM shop.orders")) == left
    bench.reload(0, 0, 100)
    assert set(bench.query("SELECT tenant, id FROM shop.orders")) == left
    assert bench.query("SELECT count(*) FROM kafka_ingest.removed_key") == [(50,)]
    for key in keys[::2]:
        bench.send(key, {"note": 2})
    bench.live()
    assert bench.query("SELECT count(*), sum(note) FROM shop.orders") == [(100, 150)]
    assert removed(bench) == []


def test_keys_that_only_look_alike_are_different_keys(database: Mapping[str, Any]) -> None:
    alike = ["straße", "Straße", "strasse", "straße ", " straße", "é", "e\u0301", "ﬁ", "fi", "", "\u200b", "0", "00"]
    bench = bench_of(database)
    for number, key in enumerate(alike):
        put(bench, key, number)
    bench.live()
    assert notes(bench) == {key: number for number, key in enumerate(alike)}
    for key in alike[::2]:
        remove(bench, key)
    bench.live()
    assert notes(bench) == {key: number for number, key in enumerate(alike) if number % 2}
    bench.reload(0, 0, len(alike))
    assert notes(bench) == {key: number for number, key in enumerate(alike) if number % 2}


SPELLINGS = [
    ("boolean", True, True, False),
    ("smallint", 1, 1.0, -1),
    ("bigint", 9007199254740993, 9007199254740993, 9007199254740992),
    ("numeric", 1, 1.00, 1.01),
    ("numeric", 100, 1e2, 1000),
    ("numeric(9,2)", 1.5, 1.50, 1.05),
    ("text", "a", "a", "A"),
    ("character varying(5)", "a", "a", "a "),
    ("date", "2026-01-31", "2026-01-31", "2026-01-30"),
    ("time without time zone", "12:00:00", "12:00:00.000", "12:00:00.001"),
    ("timestamp without time zone", "2026-01-01T12:00:00", "2026-01-01T12:00:00.000", "2026-01-01T12:00:01"),
    (
        "timestamp with time zone",
        "2026-01-01T12:00:00Z",
        "2026-01-01T13:00:00+01:00",
        "2026-01-01T12:00:00+01:00",
    ),
    (
        "uuid",
        "6d0f6e5c-3f0a-4a39-9d1f-0d5f3f7c9a10",
        "6D0F6E5C3F0A4A399D1F0D5F3F7C9A10",
        "6d0f6e5c-3f0a-4a39-9d1f-0d5f3f7c9a11",
    ),
    ("bytea", "AP8=", "AP8=", "AP9c"),
]


@pytest.mark.parametrize("deletes", [Deletes.REMOVE, Deletes.MARK])
def test_a_key_is_its_values_however_they_are_spelled(database: Mapping[str, Any], deletes: Deletes) -> None:
    names = [f"k{number}" for number in range(len(SPELLINGS))]
    columns = [replace(ID, name=n, path=(n,), type=kind[0]) for n, kind in zip(names, SPELLINGS, strict=True)]
    upsert = replace(MARK if deletes is Deletes.MARK else REMOVE, key=tuple(names))
    bench = bench_of(database, *columns, NOTE, upsert=upsert)
    live = "deleted_at IS NULL" if deletes is Deletes.MARK else "true"
    key, again = ({n: kind[at] for n, kind in zip(names, SPELLINGS, strict=True)} for at in (1, 2))
    others = [{**key, name: kind[3]} for name, kind in zip(names, SPELLINGS, strict=True)]
    of_others = list(range(1, len(others) + 1))

    def left() -> list[int]:
        assert bench.violations() == []
        assert bench.state_violations() == []
        return [note for (note,) in bench.query(f"SELECT note FROM shop.orders WHERE {live} ORDER BY note")]

    bench.send(key, {"note": 0})
    for number, other in enumerate(others, start=1):
        bench.send(other, {"note": number})
    bench.live()
    assert left() == [0, *of_others]
    bench.send(again, None)
    bench.live()
    assert left() == of_others
    bench.reload(0, 0, 1)
    assert left() == of_others
    bench.send(again, {"note": 100})
    bench.live()
    assert left() == [*of_others, 100]
    assert removed(bench) == []
    for other in others:
        bench.send(other, None)
    bench.send(key, {"note": 101})
    bench.live()
    assert left() == [101]


def test_zeros_behind_the_point_are_one_key_and_the_row_has_those_of_its_newest_record(
    database: Mapping[str, Any],
) -> None:
    bench = bench_of(database, replace(ID, type="numeric"), NOTE)
    for key in (b"1.0", b"1.00", b"1.000"):
        bench.log.append(TOPIC, b'{"note": 1}', key=b'{"id": %s}' % key)
        bench.live()
        assert bench.query("SELECT id::text FROM shop.orders") == [(key.decode(),)]
    bench.log.append(TOPIC, None, key=b'{"id": 1}')
    bench.live()
    bench.log.append(TOPIC, b'{"note": 1}', key=b'{"id": 1.0}')
    bench.live()
    assert removed(bench) == []


def test_long_keys_load_and_one_that_no_index_holds_is_a_dead_letter_of_its_own(database: Mapping[str, Any]) -> None:
    noise = base64.b85encode(random.Random(1).randbytes(8_000)).decode()
    assert len(noise) == 10_000
    bench = bench_of(database)
    put(bench, "a", 1)
    put(bench, "x" * 10_000, 2)
    put(bench, noise, 3)
    put(bench, "b", 4)
    bench.live()
    assert notes(bench) == {"a": 1, "x" * 10_000: 2, "b": 4}
    assert dead(bench) == [(2, "refused_by_database")]
    for key in ("x" * 10_000, noise):
        remove(bench, key)
    bench.live()
    assert notes(bench) == {"a": 1, "b": 4}
    assert removed(bench) == [4, 5]
    bench.reload(0, 0, 4)
    assert notes(bench) == {"a": 1, "b": 4}
    # The put is older than the delete of its key now, so that no index need hold it.
    assert dead(bench) == []


def test_a_part_of_the_key_may_fill_other_columns_too(database: Mapping[str, Any]) -> None:
    copy = replace(ID, name="copy", required=False)
    bench = bench_of(database, ID, copy, replace(ID, name="id_of_value", from_key=False, required=False))
    bench.send({"id": "a"}, {"id": "A"})
    bench.send({"id": "b"}, {})
    bench.live()
    assert bench.query("SELECT id, copy, id_of_value FROM shop.orders ORDER BY id") == [
        ("a", "a", "A"),
        ("b", "b", None),
    ]
    bench.send({"id": "a"}, None)
    bench.live()
    assert bench.query("SELECT id FROM shop.orders") == [("b",)]


@pytest.mark.parametrize("upsert", [REMOVE, MARK], ids=["remove", "mark"])
def test_a_table_may_hold_nothing_but_keys(database: Mapping[str, Any], upsert: UpsertSettings) -> None:
    bench = bench_of(database, ID, upsert=upsert)
    for key in ("a", "b", "a"):
        bench.send({"id": key}, "anything")
    bench.live(2)
    bench.live()
    bench.send({"id": "b"}, None)
    bench.live()
    live = "deleted_at IS NULL" if upsert is MARK else "true"
    assert bench.query(f"SELECT id, kafka_offset FROM shop.orders WHERE {live}") == [("a", 2)]
    assert bench.violations() == []


def test_the_record_key_as_it_is_may_be_the_key(database: Mapping[str, Any]) -> None:
    bench = bench_of(database, NOTE, key=KeySettings(KeyFormat.RAW, "id", required=True))
    for name in (b"\x00", b"\xff", b"", b"\x00"):
        bench.log.append(TOPIC, b'{"note": 1}', key=name)
    bench.log.append(TOPIC, None, key=b"\xff")
    bench.live(2)
    bench.live()
    assert sorted(bytes(found) for (found,) in bench.query("SELECT id FROM shop.orders")) == [b"", b"\x00"]


@pytest.fixture
def latin1(postgres_server: PostgresServer) -> Iterator[dict[str, Any]]:
    """Parameters of a database with the ledger, in LATIN1."""
    name = f"state_latin1_{uuid.uuid4().hex[:16]}"
    with closing(psycopg2.connect(**postgres_server.params())) as server:
        server.autocommit = True
        cursor = server.cursor()
        cursor.execute(f"CREATE DATABASE {name} ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
        try:
            params = {**postgres_server.params(), "dbname": name, "client_encoding": "UTF8"}
            migrate(params)
            yield params
        finally:
            cursor.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_a_key_that_a_database_in_latin1_cannot_hold_is_a_dead_letter(latin1: dict[str, Any]) -> None:
    bench = bench_of(latin1)
    for key in ("ü", "日", "u"):
        put(bench, key)
        remove(bench, key)
        put(bench, key, 2)
    bench.live(4)
    bench.live()
    assert notes(bench) == {"ü": 2, "u": 2}
    assert [offset for offset, _ in dead(bench)] == [3, 4, 5]
    remove(bench, "ü")
    bench.live()
    bench.reload(0, 0, 3)
    assert notes(bench) == {"u": 2}


BY_RATIO = replace(
    REMOVE, order=OrderBy.COLUMN, order_column="ratio", delete_when=DeleteWhen(("gone",), "true"), key=("at", "raw")
)


def test_settings_of_the_database_change_no_key_and_no_version(database: Mapping[str, Any]) -> None:
    """A removed key is found by its text, and its place in the order is a text: both must be written alike."""
    columns = (
        ColumnSettings("at", "timestamp with time zone", ("at",), required=True, from_key=True),
        ColumnSettings("raw", "bytea", ("raw",), required=True, from_key=True),
        ColumnSettings("ratio", "double precision", ("ratio",), required=True),
    )
    bench = bench_of(database, *columns, upsert=BY_RATIO)
    key = {"at": "2026-03-04T05:06:07Z", "raw": "AFw="}
    bench.send(key, {"ratio": 0.30000000000000004, "gone": True})
    bench.live()
    for name, value in HOSTILE.items():
        if bench.query("SELECT current_setting(%s, true) IS NOT NULL", name) == [(True,)]:
            bench.query(f"ALTER DATABASE {database['dbname']} SET {name} = '{value}'")
    bench.send(key, {"ratio": 0.3})
    bench.live()
    assert bench.query("SELECT count(*) FROM shop.orders") == [(0,)]
    assert removed(bench) == [0]
    bench.send(key, {"ratio": 0.30000000000000005})
    bench.live()
    assert bench.query("SELECT kafka_offset FROM shop.orders") == [(2,)]
    assert removed(bench) == []
    assert bench.violations() == []
