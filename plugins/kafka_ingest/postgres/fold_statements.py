"""What the SQL of a fold is composed of: the key, the order of versions, the columns, and where values are found."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg2 import sql

from kafka_ingest.column_types import parse_column_type
from kafka_ingest.postgres.catalog import target_identifiers
from kafka_ingest.postgres.staging_tables import staging_table
from kafka_ingest.protocol.batch import Batch
from kafka_ingest.protocol.staging import staging_name
from kafka_ingest.protocol.target import delete_settings, written_columns
from kafka_ingest.settings import HISTORY_COLUMNS, BatchSettings, Deletes, OrderBy, UpsertSettings

#: Where a value is not known, the row is outdone by what stands, and no last one.
_PARTIAL_PUTS = """UNION ALL
    SELECT {keys}, {generation}, {offset_column}, s.ctid, true
    FROM {staged_partial} AS s
    JOIN pg_temp.kafka_ingest_known AS k ON k.place = s.ctid
    WHERE k.has_base OR s.stage_may_be_null"""


class FoldStatements:
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
            "t_key": self._text_of_key("t", self._key),
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

    def of_history(self, settings: BatchSettings) -> dict[str, sql.Composable]:
        """Return what the statement is composed of that writes the history, which is the target of these settings."""
        names = [column.name for column in self._written if column.name != self._upsert.deleted_at]
        deletes = [sql.Identifier(name) if name in self._of_delete else sql.SQL("NULL") for name in names]
        columns, (change, unavailable) = list(map(sql.Identifier, names)), map(sql.Identifier, HISTORY_COLUMNS)
        assert settings.upsert is not None  # noqa: S101 - a history has a key
        return {
            "history": sql.Identifier(settings.target.schema, settings.target.table),
            "columns": _listed(columns),
            "columns_of_delete": _listed(deletes),
            "settings_of_excluded": _listed([_pair("{} = excluded.{}", column, column) for column in columns]),
            "change": change,
            "unavailable": unavailable,
            "identity": _listed(list(map(sql.Identifier, settings.upsert.key))),
        }

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
            # What a marked row has came from the row before its delete, which is this one where it is read again.
            parts.append(_pair("WHEN k.{} = 'target' OR k.is_outdone THEN t.{}", self._kind(name), column))
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
