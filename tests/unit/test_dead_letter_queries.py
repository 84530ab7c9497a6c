"""The statements that choose dead letters say the same condition, each in its own place."""

from __future__ import annotations

import re

from kafka_ingest.postgres.database import sql_names, sql_text

CONDITION = re.compile(r"AND \(%\(batch_id\)s::uuid IS NULL OR .* d\.\"offset\" < place\.range_end\) \) \)")


def condition(name: str) -> str | None:
    """Return what a statement asks of batch, generation, reason and place, with one name for the table."""
    words = re.sub(r"\s+", " ", sql_text(f"queries/{name}").replace("dead_letter.", "d."))
    found = CONDITION.search(words)
    return found and found[0]


def test_listed_counted_exported_and_replayed_are_the_same_dead_letters() -> None:
    names = [name for name in sql_names("queries") if "%(reasons)s" in sql_text(f"queries/{name}")]
    assert names == ["choose_dead_letters", "count_dead_letters", "export_dead_letters", "list_dead_letters"]
    conditions = {condition(name) for name in names}
    assert len(conditions) == 1
    assert None not in conditions
