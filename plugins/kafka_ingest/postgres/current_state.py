"""The current state: the newest staged change of each key over what stands, within the publish transaction.

A version says which of two changes of a key is newer: by offset the higher generation, then the higher offset; else the
greater time or value, then topic, generation, partition and offset. A row has the version of the record that wrote it,
in its metadata columns; a removed row leaves its key and its version in the ledger (``removed_key``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import psycopg2
from psycopg2 import errorcodes, sql

from kafka_ingest.column_types import parse_column_type
from kafka_ingest.errors import RetryLater, TargetMismatch
from kafka_ingest.postgres import refusals
from kafka_ingest.postgres.catalog import read_hooks, target_identifiers
from kafka_ingest.postgres.database import Cursor, Identifiers, fetch_row, fetch_rows, run_query
from kafka_ingest.postgres.refusals import MOST_REFUSED, is_bad_data
from kafka_ingest.postgres.rows import replaced_arrays
from kafka_ingest.postgres.staging_tables import staging_table
from kafka_ingest.protocol.accounting import (
    FIRST_KEYS,
    AppliedChanges,
    Fold,
    KeptDeadLetters,
    Keys,
    UnknownValues,
)
from kafka_ingest.protocol.batch import Batch
from kafka_ingest.protocol.position import OffsetRange, TopicPartition
from kafka_ingest.protocol.staging import staging_name
from kafka_ingest.protocol.target import delete_settings, written_columns
from kafka_ingest.settings import Deletes, OrderBy, UpsertSettings

_FOLD = sql.Identifier("pg_temp", "kafka_ingest_fold")
#: Beyond the end of every file: a whole table is one stretch.
_FIRST, _LAST = "(0,0)", "(4294967295,0)"

#: Where a value is not known, the row is outdone by what stands, and no last one.
_PARTIAL_PUTS = """UNION ALL
    SELECT {keys}, {generation}, {offset_column}, s.ctid, true
    FROM {staged_partial} AS s
    JOIN pg_temp.kafka_ingest_known AS k ON k.place = s.ctid
    WHERE k.has_base OR s.stage_may_be_null"""

# ----------
# What the statements of a fold are composed of: the key, the order of versions, the columns.


class _Statements:
    """The identifiers of the fold's SQL files, for one batch.

    In these files ``n`` and ``f`` are keys of the fold, ``t`` a row of the target, ``s`` a staged row, ``d`` a staged
    delete, ``w`` a record that was read, ``o`` an old row, ``k`` where values are that did not travel.
    """

    def __init__(self, batch: Batch, upsert: UpsertSettings) -> None:
        self._settings, self._upsert = batch.settings, upsert
        self._written = written_columns(batch.settings)
        self._of_delete = {column.name for column in written_columns(delete_settings(batch.settings))}
        self._columns = [sql.Identifier(column.name) for column in self._written]
        self._key = [sql.Identifier(name) for name in upsert.key]
        self._aliases = [sql.Identifier(f"k{number}") for number in range(1, len(self._key) + 1)]
        stem = staging_name(batch.batch_id, batch.claim)
        parts = ("rows", "partial", "letters", "deletes", "dead_letters", "counted")
        self.names: dict[str, sql.Composable] = {
            **target_identifiers(batch.settings.target, batch.settings.metadata.identity),
            **{f"staged_{part}": staging_table(stem, part) for part in parts},
            **self._of_key(),
            **self._of_order(),
            **self._of_columns(_Whole()),
            "batch_column": sql.Identifier(batch.settings.metadata.batch_id),
            **dict.fromkeys(("joined_known", "partial_puts"), sql.SQL("")),
        }

    def _of_key(self) -> dict[str, sql.Composable]:
        return {
            "keys": _listed(self._key),
            "aliases": _listed(self._aliases),
            "keys_as": _listed([_pair("{} AS {}", *names) for names in zip(self._key, self._aliases, strict=True)]),
            "t_keys_as": _listed([_pair("t.{} AS {}", *names) for names in zip(self._key, self._aliases, strict=True)]),
            "t_is_n": self._equal("t.{} = n.{}", self._key, self._aliases),
            "t_is_f": self._equal("t.{} = f.{}", self._key, self._aliases),
            "t_is_w": self._equal("t.{} = w.{}", self._key, self._aliases),
            "f_is_s": self._equal("f.{} = s.{}", self._aliases, self._key),
            "f_is_o": self._equal("f.{} = o.{}", self._aliases, self._aliases),
            "f_key": self._text_of_key("f", self._aliases),
            "o_key": self._text_of_key("o", self._aliases),
            "f_key_hash": _hash(self._text_of_key("f", self._aliases)),
            "n_key_hash": _hash(self._text_of_key("n", self._aliases)),
            "w_key_hash": _hash(self._text_of_key("w", self._aliases)),
            "no_keys": _listed([sql.SQL("NULL")] * len(self._key)),
        }

    @staticmethod
    def _equal(text: str, left: Sequence[sql.Identifier], right: Sequence[sql.Identifier]) -> sql.Composed:
        return sql.SQL(" AND ").join([_pair(text, *names) for names in zip(left, right, strict=True)])

    def _text_of_key(self, alias: str, names: Sequence[sql.Identifier]) -> sql.Composed:
        """Return the key as an array of texts, the same for equal keys: 1.0 and 1.00 are one numeric."""
        types = {column.name: parse_column_type(column.type).name for column in self._written}
        texts = []
        for key, name in zip(self._upsert.key, names, strict=True):
            text = "trim_scale({}.{})::text" if types[key] == "numeric" else "{}.{}::text"
            texts.append(_pair(text, sql.SQL(alias), name))
        return sql.SQL("ARRAY[{}]::text[]").format(_listed(texts))

    def _of_order(self) -> dict[str, sql.Composable]:
        if self._upsert.order is OrderBy.OFFSET:
            column: sql.Composable = sql.SQL("NULL::text")
            of_row, type_name = column, "text"
            version = '({0}generation, {0}"offset")'
            newest_first, apart = 'generation DESC, "offset" DESC', ["topic", "partition"]
        else:
            name = self._upsert.order_column or self._settings.metadata.timestamp
            types = {column.name: column.type for column in self._written}
            column, of_row, type_name = sql.Identifier(name), sql.Identifier("t", name), types[name]
            version = '({0}order_value, {0}topic COLLATE "C", {0}generation, {0}partition, {0}"offset")'
            newest_first = 'order_value DESC, topic COLLATE "C" DESC, generation DESC, partition DESC, "offset" DESC'
            apart = []
        of_fold, standing = version.format("f."), version.format("f.have_").replace('have_"offset"', "have_offset")
        old = version.format("o.have_").replace('have_"offset"', "have_offset")
        return {
            "order_value": column,
            "t_order_value": of_row,
            "order_type": sql.SQL(parse_column_type(type_name).sql),
            "newest_first": sql.SQL(newest_first),
            "apart": _listed([*self._aliases, *map(sql.SQL, apart)]),
            "applies": sql.SQL(f"(f.have_offset IS NULL OR {of_fold} >= {standing})"),
            "stands_in": self._stands_in(of_fold, old),
            "has_row": sql.SQL("(NOT f.is_delete)" if self._upsert.deletes is not Deletes.MARK else "true"),
        }

    def _stands_in(self, of_fold: str, old: str) -> sql.Composable:
        """Return whether a key of the fold makes the row that is right without the old version.

        By offset any change of the batch does, except where a marked row keeps values: there it must be a row, for an
        older delete has lost them with the row. By time it must be newer: an older one need not be the newest of the
        older ones.
        """
        if self._upsert.order is not OrderBy.OFFSET:
            return sql.SQL(f"{of_fold} > {old}")
        if self._upsert.deletes is not Deletes.MARK:
            return sql.SQL("f.number IS NOT NULL")
        put = "EXISTS (SELECT FROM pg_temp.kafka_ingest_read AS w WHERE w.is_put AND {})"
        return _pair(put, self._equal("f.{} = w.{}", self._aliases, self._aliases))

    def _of_columns(self, values: _Whole) -> dict[str, sql.Composable]:
        names = [column.name for column in self._written]
        settings = {
            "settings_of_s": [values.of(name, is_new=False) for name in names],
            "settings_of_mark": [self._marked(name, values, is_new=False) for name in names],
        }
        return {
            "columns": _listed(self._columns),
            "columns_of_s": _listed([values.of(name, is_new=True) for name in names]),
            "columns_of_mark": _listed([self._marked(name, values, is_new=True) for name in names]),
            **{
                name: _listed([_pair("{} = {}", *pair) for pair in zip(self._columns, found, strict=True)])
                for name, found in settings.items()
            },
        }

    def of_partial(self, in_doubt: Sequence[str]) -> tuple[dict[str, sql.Composable], dict[str, sql.Composable]]:
        """Return what two statements are composed of where values of these columns did not travel with some row.

        The first tells where the values are, and the others write them.
        """
        filled = _Filled(in_doubt, self.names["staged_rows"], self.names["staged_partial"])
        deleted_at = self._upsert.deleted_at
        telling = {
            "is_marked": _pair("(t.{} IS NOT NULL)", sql.Identifier(deleted_at)) if deleted_at else sql.SQL("false"),
            "known_counts": filled.counts(),
            "known_places": filled.places(self.names["aliases"]),
            "partial_puts": sql.SQL(_PARTIAL_PUTS).format(**self.names),
        }
        writing = {
            "staged_rows": self.names["staged_partial"],
            "joined_known": sql.SQL("JOIN pg_temp.kafka_ingest_known AS k ON k.place = s.ctid"),
        }
        return telling, {**self.names, **writing, **self._of_columns(filled)}

    def _marked(self, name: str, values: _Whole, *, is_new: bool) -> sql.Composable:
        """Return what a column of a marked row gets: of the delete what it has, else the last value that is known."""
        if name == self._upsert.deleted_at:
            return sql.Identifier("d", self._settings.metadata.timestamp)
        if name in self._of_delete:
            return sql.Identifier("d", name)
        if self._upsert.order is not OrderBy.OFFSET:
            return sql.SQL("NULL")
        value = values.of(name, is_new=is_new)
        return (
            value
            if is_new
            else _pair("CASE WHEN f.put_place IS NULL THEN t.{} ELSE {} END", sql.Identifier(name), value)
        )


class _Whole:
    """The values of staged rows that have all of them."""

    def of(self, name: str, *, is_new: bool) -> sql.Composable:
        """Return the value of a column; ``is_new``: where no row stands."""
        return sql.Identifier("s", name)


class _Filled(_Whole):
    """The values of staged rows of which some did not travel: these are where ``fold_known`` has found them.

    Args:
        in_doubt: The columns.
        staged_rows: The staging table of whole rows.
        staged_partial: That of the others.
    """

    def __init__(self, in_doubt: Sequence[str], staged_rows: sql.Composable, staged_partial: sql.Composable) -> None:
        self._numbers = {name: number for number, name in enumerate(in_doubt, start=1)}
        self._tables = {"rows": staged_rows, "partial": staged_partial}

    def of(self, name: str, *, is_new: bool) -> sql.Composable:
        """Return the value of a column; ``is_new``: where no row stands, and so has none."""
        column = sql.Identifier(name)
        if name not in self._numbers:
            return super().of(name, is_new=is_new)
        parts = [_pair("WHEN {} <> ALL (s.stage_missing) THEN s.{}", sql.Literal(name), column)]
        for kind, table in self._tables.items():
            found = "WHEN k.{} = {} THEN (SELECT v.{} FROM {} AS v WHERE v.ctid = k.{})"
            parts.append(_pair(found, self._kind(name), sql.Literal(kind), column, table, self._place(name)))
        if not is_new:
            parts.append(_pair("WHEN k.{} = 'target' THEN t.{}", self._kind(name), column))
        return _pair("CASE {} END", sql.SQL(" ").join(parts))

    def counts(self) -> sql.Composable:
        known = (
            "count(*) FILTER (WHERE e.is_whole OR e.kind = 'partial' AND NOT e.is_torn AND {} <> ALL (e.missing)) "
            "OVER so_far AS {}"
        )
        return _listed([_pair(known, sql.Literal(name), self._count(name)) for name in self._numbers])

    def places(self, aliases: sql.Composable) -> sql.Composable:
        last = (
            "CASE WHEN e.{count} > 0 THEN first_value(e.{of}) OVER "
            "(PARTITION BY {aliases}, e.life, e.{count} "
            'ORDER BY e.is_first DESC, e.generation, e."offset", e.turn) END AS {name}'
        )
        named = [("kind", self._kind(name), name) for name in self._numbers]
        named += [("place", self._place(name), name) for name in self._numbers]
        return _listed(
            [
                sql.SQL(last).format(count=self._count(name), of=sql.Identifier(of), aliases=aliases, name=alias)
                for of, alias, name in named
            ]
        )

    def _count(self, name: str) -> sql.Identifier:
        return sql.Identifier(f"count{self._numbers[name]}")

    def _kind(self, name: str) -> sql.Identifier:
        return sql.Identifier(f"kind{self._numbers[name]}")

    def _place(self, name: str) -> sql.Identifier:
        return sql.Identifier(f"place{self._numbers[name]}")


def _listed(parts: Sequence[sql.Composable]) -> sql.Composed:
    return sql.SQL(", ").join(parts)


def _pair(text: str, *parts: sql.Composable) -> sql.Composed:
    return sql.SQL(text).format(*parts)


def _hash(key: sql.Composable) -> sql.Composed:
    """Return the SHA-256 of a key's text: a key may be longer than an index entry."""
    return sql.SQL("sha256(convert_to(({key})::text, getdatabaseencoding()))").format(key=key)


# ----------
# The fold of one publish, and of one replay of dead letters.


class CurrentState:
    """The staged changes of one batch, folded into the table. psycopg2's errors pass through.

    Args:
        cursor: The transaction, with batch and positions locked.
        batch: The claimed batch of an upsert pipeline.
        winners: Task and attempt of the winners as arrays.
    """

    def __init__(self, cursor: Cursor, batch: Batch, winners: Mapping[str, Any]) -> None:
        assert batch.settings.upsert is not None  # noqa: S101 - who calls it has looked
        self._cursor = cursor
        self._batch = batch
        self._upsert = batch.settings.upsert
        self._winners = winners
        self._statements = _Statements(batch, self._upsert)
        self._names = self._statements.names
        self._filling: dict[str, sql.Composable] | None = None
        self._has_read = False
        self._known_by: dict[str, Any] = {}

    def fold(
        self,
        replacing: Sequence[OffsetRange],
        kept: tuple[KeptDeadLetters, ...],
        *,
        with_resolved: bool,
        is_rebuild: bool = False,
        compacted: frozenset[str] = frozenset(),
    ) -> Fold:
        """Fold what is staged, and take away what was read again and is no row or delete of its key any more.

        Args:
            replacing: Ranges that read again what was loaded before.
            kept: Resolved dead letters that stay; what was staged in their place is left out already.
            with_resolved: Whether resolved dead letters that are read again are deleted, too.
            is_rebuild: Whether all that was not read goes, before anything is compared with it.
            compacted: Topics of which a record may be gone that had a value which later ones leave out: none is filled.

        Raises:
            TargetMismatch: Rows of these keys have no version.
        """
        self._run("give_hashes_memory")
        if replacing:
            self._run("fold_read", **self._winners)
            self._analyze("kafka_ingest_read")
            self._has_read = True
        self._known_by = {"is_rebuild": is_rebuild, "compacted": sorted(compacted)}
        unknown = self._fold_staged()
        unread = self._sweep() if is_rebuild and replacing else Keys()
        by_offset = self._upsert.order is OrderBy.OFFSET
        faults = self._row("fold_faults", is_by_offset=by_offset, first_keys=FIRST_KEYS)
        without_version = _keys(faults, "without_version")
        if without_version.count:
            raise self._without_version(without_version)
        lost = Keys()
        if replacing:
            with self._hash_joins():
                lost = self._let_go(replacing, with_resolved=with_resolved)
        self._find_last_puts()
        staged = self._row("count_staged_changes", **self._winners)
        return Fold(
            staged_rows=staged["rows"],
            staged_deletes=staged["deletes"],
            kept=kept,
            unknown=unknown,
            in_two_partitions=_keys(faults, "in_two_partitions"),
            lost=lost,
            unread=unread,
        )

    def _fold_staged(self) -> tuple[UnknownValues, ...]:
        """Fold what is staged, beside what stands; return the records that became dead letters."""
        unknown = self._tell_known()
        self._run("fold_newest", **self._winners)
        self._analyze("kafka_ingest_newest")
        self._run("fold_standing", pipeline=self._batch.pipeline)
        self._analyze("kafka_ingest_fold")
        return unknown

    def _tell_known(self) -> tuple[UnknownValues, ...]:
        """Find what the keys of rows had before of which values did not travel."""
        self._names, self._filling = self._statements.names, None
        if self._upsert.envelope is None:
            return ()
        in_doubt = [row["name"] for row in fetch_rows(self._cursor, "partial_columns", self._names, **self._winners)]
        if not in_doubt:
            return ()
        if not self._has_read:
            self._run("fold_nothing_read")
            self._has_read = True
        telling, self._filling = self._statements.of_partial(in_doubt)
        self._names = {**self._statements.names, **telling}
        self._run("fold_known", **self._winners, **self._known_by, pipeline=self._batch.pipeline)
        self._analyze("kafka_ingest_known")
        unknown = fetch_rows(self._cursor, "fold_unknown", self._names, first_offsets=FIRST_KEYS)
        return tuple(
            UnknownValues(
                TopicPartition(row["topic"], row["partition"]),
                row["records"],
                tuple(row["first_offsets"]),
                row["first_detail"],
            )
            for row in unknown
        )

    def _find_last_puts(self) -> None:
        if self._upsert.order is OrderBy.OFFSET and self._upsert.deletes is Deletes.MARK:
            self._run("fold_last_puts", **self._winners)

    def _let_go(self, replacing: Sequence[OffsetRange], *, with_resolved: bool) -> Keys:
        again = replaced_arrays(replacing)
        pipeline = self._batch.pipeline
        rows = self._row("let_go_rows", **again, first_keys=FIRST_KEYS)
        if rows["found"] != rows["gone"]:
            raise self._hooks_fault("rows whose record is none any more to be deleted", f"{rows['gone']} of them")
        removed = self._row("let_go_removed", **again, pipeline=pipeline, first_keys=FIRST_KEYS)
        self._run("delete_read_dead_letters", **again, pipeline=pipeline, with_resolved=with_resolved)
        return _keys(rows, "lost") + _keys(removed, "lost")

    def _sweep(self) -> Keys:
        """Take away rows and removed keys that a rebuild did not read, and close dead letters that it did not read.

        Returns:
            Keys whose row goes, and that the log does not hold at all.
        """
        pipeline = {"pipeline": self._batch.pipeline}
        with self._hash_joins():
            rows = self._row("sweep_rows", first_keys=FIRST_KEYS)
            if rows["found"] != rows["gone"]:
                raise self._hooks_fault("rows that the log does not hold to be deleted", f"{rows['gone']} of them")
            self._run("sweep_removed", **pipeline)
            self._run("close_unread_dead_letters", **pipeline)
        return _keys(rows, "unread")

    def write(self) -> Mapping[TopicPartition, AppliedChanges]:
        """Write the newest change of each key, unless what stands is newer; return what applied, by partition.

        Raises:
            RecordsRefused: The target refused single records; all of them are named.
            TargetMismatch: A trigger or rule dropped or altered rows.
            RetryLater: Somebody else inserted rows of the same keys meanwhile.
        """
        counted = fetch_rows(self._cursor, "count_folded", self._names)
        marks = self._upsert.deletes is Deletes.MARK
        # Deletes come first: a value that moves from a removed row to another one finds its place free.
        gone = 0 if marks else self._run("fold_remove_rows")
        written = self._written(_FIRST, _LAST)
        if isinstance(written, psycopg2.Error):
            raise self._refused(written)
        if not marks:
            by = {"pipeline": self._batch.pipeline}
            self._run("fold_remember_removed", **by, batch_id=self._batch.batch_id)
            self._run("fold_forget_removed", **by)
        self._require_written(counted, gone, written, marks=marks)
        return {
            TopicPartition(row["topic"], row["partition"]): AppliedChanges(
                rows=row["updates"] + row["inserts"], deletes=row["hits"] + row["misses"]
            )
            for row in counted
        }

    def resolve(self, *, pipeline: str, request_id: str) -> tuple[int, int]:
        """Mark the dead letters behind the changes as resolved, once these are written.

        Returns:
            How many are replayed, and how many a newer version of their key has superseded.
        """
        row = self._row("resolve_folded", pipeline=pipeline, request_id=request_id)
        return row["replayed"], row["superseded"]

    def _written(self, first: str, last: str) -> tuple[int, int] | psycopg2.Error:
        """Write a stretch of the fold; return how many rows were altered and how many were inserted."""
        found: list[int] = []

        def write() -> int:
            updates = inserts = 0
            for is_partial, names in ((False, self._names), (True, self._filling)):
                if names is None:
                    continue

                def run(query: str, names: Identifiers = names, *, is_partial: bool = is_partial) -> int:
                    return run_query(self._cursor, query, names, is_partial=is_partial, first=first, last=last)

                updates, inserts = updates + run("fold_update_rows"), inserts + run("fold_insert_rows")
                if self._upsert.deletes is Deletes.MARK:
                    updates, inserts = updates + run("fold_mark_rows"), inserts + run("fold_insert_marked")
            found.extend((updates, inserts))
            return 0

        answer = refusals.attempted(self._cursor, write)
        return answer if isinstance(answer, psycopg2.Error) else (found[0], found[1])

    def _refused(self, error: psycopg2.Error) -> Exception:
        """Find every refused record; nothing that this writes is committed.

        Where the newest change of a key is refused, the one before it would be written, and may be refused, too. All
        are named at once: a load reads its refused records a second time, and no third time.
        """
        if error.pgcode == errorcodes.UNIQUE_VIOLATION and (taken := self._taken()).count:
            return RetryLater(
                "somebody else inserted rows of the same keys while the batch was published; nothing was published",
                expected="keys without a row, as they were when the batch was folded",
                found=str(taken),
                next_command="none: a retry finds these rows",
            )
        found: list[tuple[tuple[str, int, int] | None, psycopg2.Error]] = []
        answer: tuple[int, int] | psycopg2.Error = error
        while isinstance(answer, psycopg2.Error):
            more = self._refused_now()
            found += more
            if (
                not more
                or not all(record and is_bad_data(fault) for record, fault in more)
                or len(found) > MOST_REFUSED
            ):
                break
            self._leave_out([record for record, _ in more if record])
            answer = self._written(_FIRST, _LAST)
        return refusals.refused_records(iter(found), error, self._batch)

    def _refused_now(self) -> list[tuple[tuple[str, int, int] | None, psycopg2.Error]]:
        """Return the newest changes that the target refuses; all others are written, and taken back."""

        def attempt(first: str, last: str) -> int | psycopg2.Error:
            answer = self._written(first, last)
            return answer if isinstance(answer, psycopg2.Error) else 0

        found: list[tuple[tuple[str, int, int] | None, psycopg2.Error]] = []
        self._cursor.execute("SAVEPOINT refusals")
        for place, fault in islice(refusals.refused_places(self._cursor, _FOLD, attempt), MOST_REFUSED + 1):
            found.append((self._record_at(place), fault))
            if found[-1][0] is None or not is_bad_data(fault):
                break
        self._cursor.execute("ROLLBACK TO SAVEPOINT refusals")
        return found

    def _leave_out(self, records: Sequence[tuple[str, int, int]]) -> None:
        """Fold once more without these records."""
        topic, partition, offset = (list(part) for part in zip(*records, strict=True))
        self._run("leave_out_staged", record_topic=topic, record_partition=partition, record_offset=offset)
        self._run("drop_fold")
        self._fold_staged()
        self._find_last_puts()

    def _taken(self) -> Keys:
        return _keys(self._row("count_taken_keys", first_keys=FIRST_KEYS), "taken")

    def _record_at(self, place: str) -> tuple[str, int, int] | None:
        row = fetch_row(self._cursor, "folded_record_at", place=place)
        return (row["topic"], row["partition"], row["offset"]) if row else None

    def _require_written(
        self, counted: Sequence[Mapping[str, Any]], gone: int, written: tuple[int, int], *, marks: bool
    ) -> None:
        """Require that each change had its effect: rows were locked, so that only triggers and rules can prevent it."""
        updates, inserts, hits, misses = (
            sum(row[part] for row in counted) for part in ("updates", "inserts", "hits", "misses")
        )
        expected = (0, updates + hits, inserts + misses) if marks else (hits, updates, inserts)
        found = (gone, *written)
        if found != expected:
            told = "{} rows deleted, {} altered, {} inserted"
            raise self._hooks_fault(told.format(*expected), told.format(*found))
        if read_hooks(self._cursor, self._batch.settings.target):
            self._require_standing()

    def _require_standing(self) -> None:
        run_query(self._cursor, "run_deferred_triggers")
        compared = self._row("compare_folded", batch_id=self._batch.batch_id, first_keys=FIRST_KEYS)
        wrong = _keys(compared, "wrong")
        if wrong.count:
            raise self._hooks_fault("every key as its newest record says", f"otherwise {wrong}")

    def _hooks_fault(self, expected: str, found: str) -> TargetMismatch:
        hooks = read_hooks(self._cursor, self._batch.settings.target)
        return refusals.hooks_fault(self._batch, hooks, expected=expected, found=found)

    def _without_version(self, keys: Keys) -> TargetMismatch:
        metadata, target = self._batch.settings.metadata, self._batch.settings.target
        return TargetMismatch(
            f"rows of {target} do not say which record they hold; nothing was published",
            expected=f"values in {metadata.topic}, {metadata.generation}, {metadata.partition}, {metadata.offset}"
            " and in the column of the order, in every row of the table",
            found=str(keys),
            next_command="delete these rows, which the next batches write as they come, or set these columns, then "
            "clear load_batch",
        )

    @contextmanager
    def _hash_joins(self) -> Iterator[None]:
        """Compare all that was read with all that stands in one pass; a fault ends the transaction, and the setting."""
        self._run("prefer_hash_joins", is_wanted=True)
        yield
        self._run("prefer_hash_joins", is_wanted=False)

    def _analyze(self, table: str) -> None:
        run_query(self._cursor, "analyze_fold", {"fold_table": sql.Identifier(table)})

    def _run(self, query: str, **parameters: object) -> int:
        return run_query(self._cursor, query, self._names, **parameters)

    def _row(self, query: str, **parameters: object) -> dict[str, Any]:
        (row,) = fetch_rows(self._cursor, query, self._names, **parameters)
        return row


def _keys(row: Mapping[str, Any], what: str) -> Keys:
    return Keys(row[what], tuple(row[f"first_{what}"] or ()))
