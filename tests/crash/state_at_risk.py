"""A pipeline whose table holds the current state and whose runs are killed: the table is the fold at every moment."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg2

from sandbox.state_verification import Newest
from tests.crash.mixed_topic import MixedTopic
from tests.crash.pipeline_at_risk import SECTIONS, PipelineAtRisk
from tests.crash.state_topic import OFFSETS, PARTITIONS, State, StateTopic

#: Three runs work off the topic; the one in the middle alters, removes and writes anew.
OFFSETS_PER_RUN = 22
ENDS = dict.fromkeys(range(PARTITIONS), OFFSETS)

# One statement sees one moment.
_SEEN = """
    SELECT (SELECT coalesce(json_agg(json_build_array(partition, committed_offset)), '[]')
            FROM kafka_ingest.committed_offset),
           (SELECT coalesce(json_agg(json_build_array(id, kafka_partition, kafka_offset, note)), '[]') FROM {table}),
           (SELECT coalesce(json_agg(json_build_array(key[1], partition, "offset", NULL)), '[]')
            FROM kafka_ingest.removed_key),
           (SELECT coalesce(json_agg(json_build_array(partition, "offset")), '[]')
            FROM kafka_ingest.dead_letter WHERE resolved_at IS NULL)
"""


@dataclass
class StateAtRisk(PipelineAtRisk):
    """A pipeline of one row a key, and the topic that it folds.

    Attributes:
        log: The topic.
        note: The member that the table's notes are of.
    """

    log: StateTopic = field(kw_only=True)
    note: str = "note"

    def write(self, note: str = "note", **sections: Any) -> None:
        """Write the pipeline file; rows take their notes from this member of the records."""
        columns = [
            {"name": "id", "type": "text", "from": "key"},
            {"name": "note", "type": "bigint", "path": f"$.{note}"},
        ]
        target = {"table": self.files.table, "create_table": True, "mode": "upsert", "key": ["id"], "order": "offset"}
        deletes = {"deletes": "remove", "delete_when": {"path": "$.gone", "equals": True}}
        of_append = {"key": None, "tombstones": None, "limit": {"offsets_per_run": OFFSETS_PER_RUN}}
        value = {"format": "json", "columns": columns}
        all_sections = {**SECTIONS, **of_append, "value": value, "target": {**target, **deletes}, **sections}
        self.files.write(self.log.name, **all_sections)

    def load_everything(self) -> None:
        """Load what is there before a run that reads it again."""
        self.write(limit={"offsets_per_run": PARTITIONS * OFFSETS})
        self.run("before")
        self.require_every_record_once()

    def seen(self) -> tuple[State, dict[int, int]]:
        """Return what a reader sees at one moment, and the positions."""
        with closing(psycopg2.connect(**self.files.database)) as connection, connection.cursor() as cursor:
            return look(cursor, self.files.table)

    def require_all_or_nothing(self) -> None:
        """The table is the fold of what lies below the positions; every invariant holds."""
        found, positions = self.seen()
        assert found == self.log.folded(positions, self.note)
        self.require_invariants()

    def require_every_record_once(self) -> None:
        """The table is the fold of the whole topic; every invariant holds, and the audit says so."""
        self.require_every_value_once()
        code, violations, notes = self.files.command("audit", self.name, "--all")
        assert (code, violations) == (0, []), notes

    def require_every_value_once(self) -> None:
        """The table is the fold of the whole topic; every invariant holds."""
        found, positions = self.seen()
        assert positions == ENDS
        assert found == self.log.folded(ENDS, self.note)
        self.require_invariants()
        assert self.ledger.state_violations(self.name) == []

    def everything(self) -> list[tuple[Any, ...]]:
        """Return all that a run may change, removed keys among it."""
        removed = "SELECT count(*), sum(hashtextextended(t::text, 0)) FROM kafka_ingest.removed_key t"
        return [*self.files.query(removed), *super().everything()]


def state_at_risk(files: Any, topic: StateTopic) -> StateAtRisk:
    """Return a pipeline of the topic; nothing is loaded yet."""
    of_append = MixedTopic(topic.name, Counter(), 0, tuple(ENDS.values()))
    pipeline = StateAtRisk(files, of_append, log=topic)
    pipeline.write()
    return pipeline


def look(cursor: Any, table: str) -> tuple[State, dict[int, int]]:
    """Return what the database holds at one moment, and the positions."""
    cursor.execute("SELECT to_regclass(%s) IS NOT NULL", (table,))
    if cursor.fetchone() == (False,):
        return State({}, {}, frozenset()), {}
    cursor.execute(_SEEN.format(table=table))
    positions, rows, removed, dead_letters = cursor.fetchone()
    by_key = [{key: Newest(*rest) for key, *rest in one} for one in (rows, removed)]
    return State(by_key[0], by_key[1], frozenset((p, o) for p, o in dead_letters)), dict(positions)


class Reader(threading.Thread):
    """Somebody who reads all the time, and notes every moment at which the table is no fold that it may be."""

    def __init__(self, pipeline: StateAtRisk, *also: State) -> None:
        super().__init__(name="reader", daemon=True)
        self._pipeline, self._also = pipeline, also
        self._note = pipeline.note
        self._end = threading.Event()
        self.torn: list[State] = []

    def run(self) -> None:
        with closing(psycopg2.connect(**self._pipeline.files.database)) as connection:
            connection.autocommit = True
            while not self._end.wait(0.01):
                with connection.cursor() as cursor:
                    found, positions = look(cursor, self._pipeline.files.table)
                if found not in (self._pipeline.log.folded(positions, self._note), *self._also):
                    self.torn.append(found)

    def end(self) -> None:
        self._end.set()
        self.join()


@contextmanager
def read_all_the_time(pipeline: StateAtRisk, *also: State) -> Iterator[None]:
    """Let somebody read while the block runs, who may only see whole folds.

    Args:
        pipeline: The pipeline; what its positions and its notes say may be seen.
        also: What else may be seen.
    """
    reader = Reader(pipeline, *also)
    reader.start()
    try:
        yield
    finally:
        reader.end()
    assert reader.torn == []
