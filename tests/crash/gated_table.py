"""A target table whose CHECK holds up one record until the test lets it go.

Staging tables take over the target's CHECKs, so the gate stands in the middle of a task's COPY, or of the publish: no
hook in the product, and no guess about time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg2

from tests.crash.pipeline_at_risk import PipelineAtRisk
from tests.crash.process_tree import client_of
from tests.deadlines import until

_SCHEMA = """
    CREATE SCHEMA shop;
    CREATE SEQUENCE shop.passages;
    CREATE FUNCTION shop.gate() RETURNS boolean LANGUAGE plpgsql AS $$
    BEGIN
        IF nextval('shop.passages') = {passage} THEN
            {wait}
        END IF;
        RETURN true;
    END $$;
    CREATE TABLE shop.events (
        n bigint NOT NULL CHECK (n <> {gated} OR shop.gate()), text text, key text,
        kafka_topic text NOT NULL, kafka_generation integer NOT NULL, kafka_partition integer NOT NULL,
        kafka_offset bigint NOT NULL, kafka_timestamp timestamptz, batch_id uuid NOT NULL
    );
"""
#: The session of a load gives a lock 30 seconds; who looks for it again and again waits for none.
_WAIT = "PERFORM pg_advisory_xact_lock_shared(1);"
_WAIT_FOR_LONG = "WHILE NOT pg_try_advisory_xact_lock_shared(1) LOOP PERFORM pg_sleep(0.1); END LOOP;"
#: A Spark job has to start before the gate is reached; that took 40 s on a busy machine.
START_SECONDS = 400.0
#: Passages of a row whose task is run once.
STAGING, PUBLISHING = 1, 2


@dataclass(frozen=True)
class Gate:
    """The gate of a pipeline's table."""

    pipeline: PipelineAtRisk
    _lock: Any

    def waiting_client(self) -> int:
        """Waits until a COPY or a publish is held up; gives the process that sends it."""
        until(lambda: bool(self._waiting()), "somebody waits at the gate", START_SECONDS)
        return client_of(self._waiting()[0][0])

    def open(self) -> None:
        """Lets who waits go on, and everybody after."""
        with self._lock.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock_all()")

    def passages(self) -> int:
        """How often the gated record has come to the gate: once for each staging of it, and once for each publish."""
        [(found,)] = self.pipeline.files.query("SELECT last_value FROM shop.passages WHERE is_called")
        return int(found)

    def _waiting(self) -> list[tuple[Any, ...]]:
        return self.pipeline.files.query(
            "SELECT client_port FROM pg_stat_activity "
            "WHERE datname = current_database() AND wait_event IN ('advisory', 'PgSleep')"
        )


@contextmanager
def gated_table(
    pipeline: PipelineAtRisk, *, gated: int, passage: int = STAGING, for_long: bool = False
) -> Iterator[Gate]:
    """Makes the pipeline's table with a closed gate at the row with this ``n``; opens it at the end.

    Args:
        pipeline: The pipeline.
        gated: The row.
        passage: Which of its passages is held up; the others go through.
        for_long: Whether it is held up for longer than a session waits for a lock.
    """
    pipeline.files.query(_SCHEMA.format(gated=gated, passage=passage, wait=_WAIT_FOR_LONG if for_long else _WAIT))
    with closing(psycopg2.connect(**pipeline.files.database)) as lock:
        lock.autocommit = True
        with lock.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_lock(1)")
        yield Gate(pipeline, lock)
