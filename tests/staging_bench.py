"""A target table and one attempt's staging tables in a real database, for tests of staging."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import psycopg2
from psycopg2 import sql

from kafka_ingest.postgres.staging_tables import PostgresStaging, staging_table
from kafka_ingest.postgres.target import PostgresTarget
from kafka_ingest.protocol.batch import Batch
from kafka_ingest.protocol.staging import StageContext, staging_name
from kafka_ingest.settings import BatchSettings, ColumnSettings, ValueFormat, ValueSettings
from tests.builders import batch_settings, planned_batch

#: Definitions of the metadata columns of a table that a test makes itself.
METADATA_COLUMNS = (
    "kafka_topic text NOT NULL, kafka_generation integer NOT NULL, kafka_partition integer NOT NULL,"
    " kafka_offset bigint NOT NULL, kafka_timestamp timestamptz, batch_id uuid NOT NULL"
)


def json_settings(*columns: ColumnSettings, **changes: Any) -> BatchSettings:
    """Settings of a pipeline that fills columns from JSON objects; every column's path is its name."""
    named = tuple(replace(column, path=column.path or (column.name,)) for column in columns)
    return replace(batch_settings(), value=ValueSettings(ValueFormat.JSON_COLUMNS, named), **changes)


class StagingBench:
    """One batch with its claim, its target and its staging tables."""

    def __init__(self, params: Mapping[str, Any], settings: BatchSettings) -> None:
        self.params = params
        self.settings = settings
        self.batch: Batch = replace(planned_batch(), settings=settings)
        self.stem = staging_name(self.batch.batch_id, self.batch.claim)
        self.target = PostgresTarget(params)
        self.staging = PostgresStaging(params)

    def prepare(self) -> None:
        self.target.prepare(self.settings)
        self.staging.create(self.batch)

    def context(self, **changes: Any) -> StageContext:
        context = StageContext(
            batch_id=self.batch.batch_id,
            claim=self.batch.claim,
            settings=self.settings,
            target=self.target.shape(self.settings),
            kafka={},
            postgres=self.params,
        )
        return replace(context, **changes)

    @contextmanager
    def connection(self) -> Iterator[Any]:
        with closing(psycopg2.connect(**self.params)) as connection:
            yield connection
            connection.commit()

    def run(self, statement: str | sql.Composable) -> None:
        with self.connection() as connection, connection.cursor() as cursor:
            cursor.execute(statement)

    def query(self, statement: str | sql.Composable) -> list[tuple[Any, ...]]:
        with self.connection() as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            rows: list[tuple[Any, ...]] = cursor.fetchall()
            return rows

    def staged(self, part: str, columns: Sequence[str], order_by: str) -> list[tuple[Any, ...]]:
        """Rows of a staging table."""
        names = sql.SQL(", ").join(map(sql.Identifier, columns))
        statement = sql.SQL("SELECT {} FROM {} ORDER BY {}, stage_attempt")
        return self.query(statement.format(names, staging_table(self.stem, part), sql.Identifier(order_by)))

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        return self.staged("rows", columns, self.settings.metadata.offset)

    def dead_letters(self, *columns: str) -> list[tuple[Any, ...]]:
        return self.staged("dead_letters", columns, "offset")

    def tables(self, claim: int = 1) -> list[str]:
        """The parts of a claim's staging that exist."""
        stem = staging_name(self.batch.batch_id, claim)
        statement = sql.SQL(
            "SELECT tablename::text FROM pg_tables WHERE schemaname = 'kafka_ingest_staging' ORDER BY 1"
        )
        names = [name for (name,) in self.query(statement)]
        return [name.removeprefix(f"{stem}_") for name in names if name.startswith(f"{stem}_")]
