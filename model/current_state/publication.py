"""Publish: one transaction that folds what was staged into the table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from model.current_state.records import (
    NOT_SENT,
    Kind,
    Log,
    Record,
    Row,
    Version,
    is_change,
    is_dead_letter,
    is_delete,
)
from model.current_state.rules import Deletes, Order, Pipeline, Rule
from model.current_state.world import RETENTION, Plan, Run, World

#: Changes of one key, the oldest first.
Changes = list[tuple[Version, Record]]


class Stopped(Exception):
    """The batch stops and changes nothing; the text says why."""


@dataclass(slots=True)
class _Publication:
    """A transaction under way: what it was given, and its own view of the tables."""

    world: World
    log: Log
    pipeline: Pipeline
    records: dict[Version, Record]
    table: dict[str, Row]
    removed: dict[str, Version]
    dead: set[Version]
    changes: dict[str, Changes] = field(default_factory=dict)


def publish(world: World, log: Log, pipeline: Pipeline, plan: Plan, staged: Iterable[Version]) -> World:
    """Return the world after a batch, or a direct replay, was published.

    Raises:
        Stopped: A rule stops the batch.
    """
    _require_deletes_unexpired(world, pipeline, plan)
    out = world.closed if pipeline.keeps(Rule.DISCARDED_STAYS_OUT) else frozenset()
    records = {version: log.records[version].under(plan.settings) for version in staged if version not in out}
    work = _Publication(
        world, log, pipeline, records, dict(world.table), dict(world.removed), set(world.dead - records.keys())
    )
    _sort_out(work)
    _truncate(work)
    _require_one_partition(work)
    for key in sorted(work.changes.keys() | work.table.keys() | work.removed.keys()):
        _settle(work, key)
    if plan.run is Run.REBUILD:
        _sweep(work)
    return _after(work, plan)


def _require_deletes_unexpired(world: World, pipeline: Pipeline, plan: Plan) -> None:
    """Raise if a tombstone may have been dropped before it was read."""
    for span in plan.spans:
        caught_up = world.caught_up[span.place]
        own_counts = not pipeline.keeps(Rule.CAUGHT_UP_BEFORE) and span.place in plan.reached_end
        since = plan.planned_at if caught_up is None or own_counts else caught_up
        is_late = world.now > since + RETENTION
        rule = Rule.DELETES_MAY_BE_LOST
        if plan.run is Run.REBUILD:
            is_late, rule = world.now > plan.planned_at + RETENTION, Rule.REBUILD_IN_TIME
        if is_late and pipeline.keeps(rule):
            raise Stopped("DeletesMayBeLost")


def _sort_out(work: _Publication) -> None:
    """Divide what was staged into dead letters and changes of keys."""
    for version in sorted(work.records, key=lambda one: _reading_order(work, one)):
        record = work.records[version]
        if is_dead_letter(record, work.pipeline):
            work.dead.add(version)
        elif is_change(record, work.pipeline) and not _was_dropped(work, version, record):
            work.changes.setdefault(record.key, []).append((version, record))


def _reading_order(work: _Publication, version: Version) -> tuple[int, ...]:
    return work.log.rank(version, work.pipeline) if work.pipeline.keeps(Rule.FOLD_BY_VERSION) else version


def _was_dropped(work: _Publication, version: Version, record: Record) -> bool:
    """Return whether the record never comes so far, as tombstones or outdone records are dropped by a broken rule."""
    if record.kind is Kind.TOMBSTONE and not work.pipeline.keeps(Rule.TOMBSTONE_DELETES):
        return True
    if record.kind is not Kind.PUT or work.pipeline.keeps(Rule.STAGE_ALL):
        return False
    later = (one for version_of, one in work.records.items() if version_of > version and one.key == record.key)
    return any(is_change(one, work.pipeline) or one.kind is Kind.CHECK_FAILS for one in later)


def _truncate(work: _Publication) -> None:
    """Apply truncations, which nothing does that keeps the rules."""
    cuts = [version for version, record in work.records.items() if record.kind is Kind.TRUNCATE]
    if work.pipeline.keeps(Rule.TRUNCATE_REMOVES_NOTHING) or not cuts:
        return
    work.table = {key: row for key, row in work.table.items() if row.version > max(cuts)}
    for key, changes in work.changes.items():
        work.changes[key] = [one for one in changes if one[0] > max(cuts)]


def _require_one_partition(work: _Publication) -> None:
    """Raise if the order is by offset and a key comes from two partitions of one generation."""
    if work.pipeline.order is Order.TIME or not work.pipeline.keeps(Rule.KEY_IN_TWO_PARTITIONS):
        return
    for key, changes in work.changes.items():
        versions = [version for version, _ in changes]
        versions += [work.table[key].version] if key in work.table else []
        if key in work.removed and work.pipeline.keeps(Rule.REMOVED_IN_TWO_PARTITIONS):
            versions.append(work.removed[key])
        if len({version[:2] for version in versions}) > len({version.generation for version in versions}):
            raise Stopped("KeyInTwoPartitions")


def _settle(work: _Publication, key: str) -> None:
    """Bring one key to its newest version."""
    known = _resolved(work, key)
    have = _version_in_tables(work, key)
    if have in work.records and have not in {version for version, _ in known}:
        _let_go(work, key, have, known)
    if known:
        _write(work, key, known)


def _version_in_tables(work: _Publication, key: str) -> Version | None:
    if key in work.table:
        return work.table[key].version
    return work.removed.get(key)


def _resolved(work: _Publication, key: str) -> Changes:
    """Return the changes of a key with values for those that did not travel; where there is none: a dead letter."""
    known: Changes = []
    text, is_deleted = None, False
    for version, record in work.changes.get(key, []):
        found = record.text
        if found == NOT_SENT:
            found = _text_elsewhere(work, version, record, known=text, is_deleted=is_deleted)
            if found is None:
                work.dead.add(version)
                continue
        if not is_delete(record):
            text = found
        elif work.pipeline.keeps(Rule.DELETE_ENDS_KNOWN):
            text, is_deleted = None, True
        known.append((version, replace(record, text=found)))
    return known


def _text_elsewhere(
    work: _Publication, version: Version, record: Record, *, known: str | None, is_deleted: bool
) -> str | None:
    """Return the text that an event left out: the newest one in the batch after its last delete, else the table's."""
    if record.old_key is not None and not work.pipeline.keeps(Rule.NO_VALUE_ACROSS_KEYS):
        return _text_of_old_key(work, record.old_key)
    if known is not None or is_deleted:
        return known
    return _text_in_table(work, record.key, version)


def _text_in_table(work: _Publication, key: str, version: Version) -> str | None:
    """Return the text of the row where the row is not newer, is not deleted, and still is what its record says."""
    row = work.table.get(key)
    if row is None or row.is_deleted:
        return None
    is_newer = row.version > version and work.pipeline.keeps(Rule.NOT_FROM_THE_FUTURE)
    record = work.records.get(row.version)
    is_stale = record is not None and not (is_change(record, work.pipeline) and record.key == key)
    return None if is_newer or is_stale else row.text


def _text_of_old_key(work: _Publication, key: str) -> str | None:
    """Return the newest text of the old key in the batch, else in the table."""
    texts = [record.text for _, record in work.changes.get(key, []) if record.kind is Kind.PUT]
    if texts:
        return texts[-1]
    return work.table[key].text if key in work.table else None


def _let_go(work: _Publication, key: str, have: Version, known: Changes) -> None:
    """Take away a row or a removed key that its record, read again, no longer accounts for.

    The batch must hold another record of the key, or the older version, which should come back, does not.
    """
    is_row = key in work.table
    if not work.pipeline.keeps(Rule.ROW_GOES if is_row else Rule.REMOVED_GOES):
        return
    if not _stand_in(work, have, known) and work.pipeline.keeps(
        Rule.RELOAD_WOULD_LOSE if is_row else Rule.REMOVED_WOULD_LOSE
    ):
        raise Stopped("ReloadWouldLose")
    if is_row:
        del work.table[key]
    else:
        del work.removed[key]


def _stand_in(work: _Publication, have: Version, known: Changes) -> bool:
    """Return whether the batch's other records of a key make the row that is right without this version."""
    pipeline = work.pipeline
    if pipeline.order is Order.TIME:
        return any(_is_older(work, have, one) or not pipeline.keeps(Rule.NEWER_UNDER_TIME) for one, _ in known)
    if pipeline.deletes is Deletes.MARK and pipeline.keeps(Rule.PUT_UNDER_MARK):
        return any(not is_delete(record) for _, record in known)
    return bool(known)


def _is_older(work: _Publication, one: Version, other: Version) -> bool:
    return work.log.rank(one, work.pipeline) < work.log.rank(other, work.pipeline)


def _write(work: _Publication, key: str, known: Changes) -> None:
    """Write the newest change of a key, unless the table or a removed key is newer."""
    version, record = known[-1]
    row, have = work.table.get(key), _version_in_tables(work, key)
    if row is None and not work.pipeline.keeps(Rule.REMOVED_COMPARED):
        have = None
    if have is not None and _is_older(work, version, have) and work.pipeline.keeps(Rule.NEVER_OLDER):
        return
    if version == have and not work.pipeline.keeps(Rule.EQUAL_WRITES):
        return
    if not is_delete(record):
        work.table[key] = Row(version, record.value, record.text)
        if work.pipeline.keeps(Rule.REMOVED_ENTRY_GOES):
            work.removed.pop(key, None)
    elif work.pipeline.deletes is Deletes.MARK:
        _mark(work, key, version, [one for _, one in known if not is_delete(one)])
    else:
        work.table.pop(key, None)
        if work.pipeline.keeps(Rule.REMOVED_KEYS):
            work.removed[key] = version


def _mark(work: _Publication, key: str, version: Version, puts: list[Record]) -> None:
    """Write a marked row: ordered by offset with the last values of the key, else without values."""
    row = work.table.get(key)
    if row is None and not puts and not work.pipeline.keeps(Rule.MARK_WRITES_ABSENT):
        return
    value, text = (row.value, row.text) if row is not None else (None, None)
    if puts and work.pipeline.keeps(Rule.MARK_KEEPS_VALUES):
        value, text = puts[-1].value, puts[-1].text
    if work.pipeline.order is Order.TIME and work.pipeline.keeps(Rule.MARK_EMPTY_UNDER_TIME):
        value, text = None, None
    work.table[key] = Row(version, value, text, is_deleted=True)


def _sweep(work: _Publication) -> None:
    """Remove what a rebuild did not read."""
    if work.pipeline.keeps(Rule.REBUILD_SWEEPS):
        work.table = {key: row for key, row in work.table.items() if row.version in work.records}
        work.removed = {key: version for key, version in work.removed.items() if version in work.records}


def _after(work: _Publication, plan: Plan) -> World:
    """Return the world with what the transaction wrote, and with the positions of the batch."""
    world = work.world
    committed, loaded_to, caught_up = list(world.committed), list(world.loaded_to), list(world.caught_up)
    for span in plan.spans:
        committed[span.place] = max(committed[span.place], span.end)
        loaded_to[span.place] = max(loaded_to[span.place], span.end)
        is_first = caught_up[span.place] is None
        if is_first or span.place in plan.reached_end or not work.pipeline.keeps(Rule.CAUGHT_UP_AT_END):
            caught_up[span.place] = plan.planned_at
    seen = {} if plan.run is Run.REBUILD else dict(world.seen)  # a rebuild begins anew
    for version in work.records:
        seen[version] = max(seen.get(version, 0), plan.settings)
    closed = set()
    if plan.run is Run.REBUILD and work.pipeline.keeps(Rule.REBUILD_CLOSES_DEAD_LETTERS):
        closed = {version for version in work.dead if version not in work.records}
    return replace(
        world,
        table=tuple(sorted(work.table.items())),
        removed=tuple(sorted(work.removed.items())),
        dead=frozenset(work.dead - closed),
        closed=world.closed | closed,
        seen=tuple(sorted(seen.items())),
        committed=tuple(committed),
        loaded_to=tuple(loaded_to),
        caught_up=tuple(caught_up),
    )
