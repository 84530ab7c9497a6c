"""The scenarios, and which rules are missed in which of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import permutations, product

from model.current_state.records import NOT_SENT, Kind, Log, Partition, Produced, Record
from model.current_state.rules import Deletes, Order, Pipeline, Rule
from model.current_state.search import Checked, Scenario
from model.current_state.steps import May

#: Makes the record at an offset; its value is the offset, so values tell records apart.
Maker = Callable[[int], Produced]


def put(key: str) -> Maker:
    """Return the maker of a put."""
    return lambda offset: Produced(Record(Kind.PUT, key, offset))


def sent(key: str) -> Maker:
    """Return the maker of a put whose text travels."""
    return lambda offset: Produced(_sent(key, offset))


def _sent(key: str, offset: int) -> Record:
    return Record(Kind.PUT, key, offset, f"t{offset}")


def not_sent(key: str, old_key: str | None = None) -> Maker:
    """Return the maker of a put whose text did not travel."""
    return lambda offset: Produced(Record(Kind.PUT, key, offset, NOT_SENT, old_key))


def becomes_unreadable(key: str) -> Maker:
    """Return the maker of a put, text included, that the new settings cannot decode."""
    return lambda offset: Produced(_sent(key, offset), Record(Kind.UNREADABLE, key))


def of_kind(kind: Kind, key: str = "") -> Maker:
    """Return the maker of another record."""
    return lambda _offset: Produced(Record(kind, key))


tombstone = partial(of_kind, Kind.TOMBSTONE)


def becomes(first: Kind, second: Kind, key: str, new_key: str | None = None) -> Maker:
    """Return the maker of a record that new settings decode differently, perhaps with another key."""

    def at(offset: int) -> Produced:
        value = {kind: offset if kind is Kind.PUT else None for kind in Kind}
        return Produced(Record(first, key, value[first]), Record(second, new_key or key, value[second]))

    return at


def mended(key: str) -> Maker:
    """Return the maker of a put that has another value under the new settings."""
    return lambda offset: Produced(Record(Kind.PUT, key, offset), Record(Kind.PUT, key, 10 + offset))


def readable_later(key: str) -> Maker:
    """Return the maker of a dead letter that the new settings can decode, text included."""
    return lambda offset: Produced(Record(Kind.UNREADABLE, key), _sent(key, offset))


def one_partition(makers: list[Maker], length: int) -> Iterator[Log]:
    """Yield every log of one partition."""
    for chosen in product(makers, repeat=length):
        yield Log((Partition(0, _made(chosen)),))


def two_partitions(makers: list[Maker], length: int) -> Iterator[Log]:
    """Yield every log of two partitions."""
    for first, second in _divided(makers, length):
        yield Log((Partition(0, first), Partition(1, second)))


def created_again(makers: list[Maker], length: int) -> Iterator[Log]:
    """Yield every log of partition 1 of a topic, and of partition 0 of its successor."""
    for first, second in _divided(makers, length):
        yield Log((Partition(1, first), Partition(0, second, generation=1)))


def _divided(makers: list[Maker], length: int) -> Iterator[tuple[tuple[Produced, ...], tuple[Produced, ...]]]:
    for chosen in product(makers, repeat=length):
        for cut in range(1, length):
            first, second = chosen[:cut], chosen[cut:]
            yield _made(first), _made(second)


def _made(makers: Iterable[Maker]) -> tuple[Produced, ...]:
    return tuple(maker(offset) for offset, maker in enumerate(makers))


def timed(makers: list[Maker], length: int) -> Iterator[Log]:
    """Yield every log of two partitions, with the records' times in every order."""
    for log in two_partitions(makers, length):
        for times in permutations(range(1, length + 1)):
            left = iter(times)
            yield Log(
                tuple(
                    Partition(part.number, tuple(Produced(one.first, one.second, next(left)) for one in part.records))
                    for part in log.partitions
                )
            )


def debezium(length: int) -> Iterator[Log]:
    """Yield every log of changes of one key, in which a tombstone follows each delete."""
    for deletes in product((False, True), repeat=length):
        makers = [one for is_delete in deletes for one in (_DELETED if is_delete else [put("a")])]
        yield Log((Partition(0, _made(makers)),))


_DELETED = [of_kind(Kind.DELETE, "a"), tombstone("a")]
_CHANGES = [put("a"), put("b"), tombstone("a"), tombstone("b")]
_READ_DIFFERENTLY = [
    put("a"),
    put("b"),
    tombstone("a"),
    becomes(Kind.UNREADABLE, Kind.PUT, "a"),
    becomes(Kind.PUT, Kind.UNREADABLE, "a"),
    becomes(Kind.PUT, Kind.PUT, "a", "b"),
    becomes(Kind.TOMBSTONE, Kind.UNREADABLE, "a"),
    becomes(Kind.TOMBSTONE, Kind.TOMBSTONE, "a", "b"),
]
_UNREADABLE_TOMBSTONE = becomes(Kind.TOMBSTONE, Kind.UNREADABLE, "a")
_TRAVELS = Pipeline(may_not_travel=True)
_MARK = Pipeline(deletes=Deletes.MARK)
_BY_TIME = Pipeline(order=Order.TIME)
_ANY_CUT = frozenset({May.LIVE, May.RESET, May.RELOAD})

CUTS_AND_RELOADS = Scenario("any cut, reset and reload", partial(one_partition, _CHANGES, 3), _ANY_CUT, 4)
DEBEZIUM = Scenario(
    "change events with tombstones, compacted", partial(debezium, 2), frozenset({May.LIVE, May.COMPACT, May.RELOAD}), 4
)
MENDED = Scenario(
    "new settings that mend values",
    partial(one_partition, [mended("a"), put("a"), tombstone("a")], 2),
    _ANY_CUT | {May.SETTINGS},
    5,
)
READ_DIFFERENTLY = Scenario(
    "new settings that read records, deletes and keys differently",
    partial(one_partition, _READ_DIFFERENTLY, 3),
    _ANY_CUT | {May.SETTINGS, May.REPLAY},
    4,
)
READ_COMPACTED = Scenario(
    "the same after compaction",
    partial(one_partition, [put("a"), becomes(Kind.PUT, Kind.UNREADABLE, "a"), tombstone("a"), readable_later("a")], 3),
    _ANY_CUT | {May.SETTINGS, May.REPLAY, May.COMPACT},
    4,
)
DISCARDED = Scenario(
    "dead letters that are discarded",
    partial(one_partition, [put("a"), becomes(Kind.UNREADABLE, Kind.PUT, "a"), tombstone("a")], 2),
    _ANY_CUT | {May.SETTINGS, May.REPLAY, May.DISCARD, May.ATTEMPT_RELOAD},
    7,
)
CHECKS = Scenario(
    "a CHECK that fails after staging",
    partial(one_partition, [put("a"), of_kind(Kind.CHECK_FAILS, "a"), tombstone("a")], 3),
    frozenset({May.LIVE}),
    3,
)
TWO_PARTITIONS = Scenario(
    "a key in two partitions",
    partial(two_partitions, [put("a"), tombstone("a")], 3),
    _ANY_CUT,
    3,
    loads_all=False,
)
RECREATED = Scenario(
    "the topic created again, with another partition",
    partial(created_again, [put("a"), tombstone("a"), becomes(Kind.UNREADABLE, Kind.PUT, "a")], 3),
    _ANY_CUT | {May.RECREATE, May.SETTINGS, May.REPLAY},
    5,
)
IGNORED = Scenario(
    "deletes: ignore",
    partial(one_partition, _CHANGES, 3),
    _ANY_CUT,
    3,
    Pipeline(deletes=Deletes.IGNORE),
)
DEAD_DELETES = Scenario(
    "deletes: dead_letter", partial(one_partition, _CHANGES, 3), _ANY_CUT, 3, Pipeline(deletes=Deletes.DEAD_LETTER)
)
MARKED = Scenario(
    "deletes: mark, ordered by offset",
    partial(one_partition, [mended("a"), readable_later("a"), tombstone("a"), _UNREADABLE_TOMBSTONE], 3),
    _ANY_CUT | {May.SETTINGS, May.REPLAY},
    4,
    _MARK,
)
BY_TIME = Scenario(
    "record_time",
    partial(timed, [put("a"), tombstone("a"), becomes(Kind.PUT, Kind.UNREADABLE, "a")], 3),
    frozenset({May.LIVE, May.RELOAD, May.SETTINGS}),
    4,
    _BY_TIME,
)
MARKED_BY_TIME = Scenario(
    "deletes: mark, record_time",
    partial(timed, [put("a"), tombstone("a")], 3),
    frozenset({May.LIVE}),
    3,
    Pipeline(order=Order.TIME, deletes=Deletes.MARK),
)
NOT_SENT_VALUES = Scenario(
    "values that did not travel",
    partial(one_partition, [sent("a"), not_sent("a"), tombstone("a")], 3),
    _ANY_CUT,
    4,
    _TRAVELS,
)
NOT_SENT_REPLAYED = Scenario(
    "values that did not travel, and a dead letter before them",
    partial(one_partition, [sent("a"), not_sent("a"), readable_later("a")], 3),
    _ANY_CUT | {May.SETTINGS, May.REPLAY},
    4,
    _TRAVELS,
)
NOT_SENT_IGNORED = Scenario(
    "values that did not travel, a dead letter, deletes: ignore",
    partial(one_partition, [sent("a"), not_sent("a"), tombstone("a"), readable_later("a")], 3),
    _ANY_CUT | {May.SETTINGS, May.REPLAY},
    4,
    Pipeline(deletes=Deletes.IGNORE, may_not_travel=True),
)
NOT_SENT_BY_TIME = Scenario(
    "values that did not travel, record_time: refused",
    partial(timed, [sent("a"), not_sent("a")], 2),
    frozenset({May.LIVE}),
    3,
    Pipeline(order=Order.TIME, may_not_travel=True),
    loads_all=False,
)

NOT_SENT_COMPACTED = Scenario(
    "values that did not travel, compacted: refused",
    partial(one_partition, [sent("a"), not_sent("a")], 3),
    frozenset({May.LIVE, May.COMPACT}),
    4,
    _TRAVELS,
    loads_all=False,
)


def _key_changes() -> Iterator[Log]:
    makers = sent("k1"), sent("k1"), of_kind(Kind.DELETE, "k1"), not_sent("k2", old_key="k1")
    for cut in (3, 4):
        made, rest = _made(makers[:cut]), _made(makers[cut:])
        yield Log((Partition(0, made), Partition(1, rest)) if rest else (Partition(0, made),))


KEY_CHANGED = Scenario("a change of the key", _key_changes, _ANY_CUT, 3, _TRAVELS)
TRUNCATED = Scenario(
    "truncations, counted",
    partial(one_partition, [put("a"), becomes(Kind.UNREADABLE, Kind.PUT, "a"), of_kind(Kind.TRUNCATE)], 3),
    _ANY_CUT | {May.SETTINGS, May.REPLAY},
    4,
    Pipeline(deletes=Deletes.IGNORE),
)
EXPIRING = Scenario(
    "tombstones that expire, and rebuilds",
    partial(one_partition, [put("a"), put("b"), tombstone("a")], 3),
    frozenset({May.LIVE, May.COMPACT, May.TICK, May.REBUILD}),
    7,
)
ARRIVING = Scenario(
    "records that arrive, and tombstones that expire",
    partial(one_partition, [put("a"), tombstone("a")], 3),
    frozenset({May.LIVE, May.COMPACT, May.TICK, May.ARRIVE}),
    8,
    arrived=1,
)
REBUILT = Scenario(
    "a rebuild, and a dead letter that compaction took",
    partial(one_partition, [becomes(Kind.UNREADABLE, Kind.PUT, "a"), put("a"), tombstone("a")], 2),
    frozenset({May.LIVE, May.COMPACT, May.TICK, May.REBUILD, May.SETTINGS, May.REPLAY}),
    8,
)
TWO_ATTEMPTS = Scenario(
    "two attempts of a reload, beside another reload",
    partial(one_partition, [mended("a"), tombstone("a")], 1),
    frozenset({May.LIVE, May.RELOAD, May.SETTINGS, May.ATTEMPT_RELOAD}),
    10,
)
TWO_ATTEMPTS_LIVE = Scenario(
    "two attempts of live batches, compacted between them",
    partial(one_partition, [put("a"), tombstone("a")], 2),
    frozenset({May.ATTEMPT, May.COMPACT, May.LOSE_ANSWER}),
    10,
    batches=2,
)
LOST_ANSWER = Scenario(
    "lost answers and superseded batches",
    partial(one_partition, [mended("a"), tombstone("a")], 1),
    frozenset({May.LIVE, May.RELOAD, May.SETTINGS, May.ATTEMPT_RELOAD, May.SUPERSEDE, May.LOSE_ANSWER}),
    9,
    batches=2,
)
SLOW_ATTEMPTS = Scenario(
    "attempts that read while tombstones expire",
    partial(one_partition, [put("a"), tombstone("a")], 2),
    frozenset({May.ATTEMPT, May.ATTEMPT_REBUILD, May.COMPACT, May.TICK}),
    9,
)
REPLAY_BESIDE = Scenario(
    "a replay beside a planned batch",
    partial(one_partition, [put("a"), becomes(Kind.UNREADABLE, Kind.PUT, "a")], 2),
    frozenset({May.LIVE, May.SETTINGS, May.REPLAY, May.ATTEMPT_RELOAD}),
    8,
)

SCENARIOS = (
    CUTS_AND_RELOADS,
    DEBEZIUM,
    MENDED,
    READ_DIFFERENTLY,
    READ_COMPACTED,
    DISCARDED,
    CHECKS,
    TWO_PARTITIONS,
    RECREATED,
    IGNORED,
    DEAD_DELETES,
    MARKED,
    BY_TIME,
    MARKED_BY_TIME,
    NOT_SENT_VALUES,
    NOT_SENT_REPLAYED,
    NOT_SENT_IGNORED,
    NOT_SENT_BY_TIME,
    NOT_SENT_COMPACTED,
    KEY_CHANGED,
    TRUNCATED,
    EXPIRING,
    ARRIVING,
    REBUILT,
    TWO_ATTEMPTS,
    TWO_ATTEMPTS_LIVE,
    LOST_ANSWER,
    SLOW_ATTEMPTS,
    REPLAY_BESIDE,
)

#: What the rules do not cover. A rule that does makes a scenario of it.
OPEN = (
    Scenario(
        "a row with a value of an older record, which new settings cannot decode",
        partial(one_partition, [becomes_unreadable("a"), not_sent("a")], 2),
        _ANY_CUT | {May.SETTINGS},
        3,
        _TRAVELS,
    ),
    Scenario(
        "a marked row with the values of such a record",
        partial(one_partition, [becomes(Kind.PUT, Kind.UNREADABLE, "a"), tombstone("a")], 2),
        _ANY_CUT | {May.SETTINGS},
        3,
        _MARK,
    ),
)


@dataclass(frozen=True, slots=True)
class Cut:
    """Rules to take away in a scenario, and what must show it. Of several, each is enough when it is put back."""

    scenario: Scenario
    rules: frozenset[Rule]
    checked: Checked = Checked.PROMISE


def _without(scenario: Scenario, *rules: Rule, checked: Checked = Checked.PROMISE) -> Cut:
    return Cut(scenario, frozenset(rules), checked)


CUTS = (
    # Versions.
    _without(CUTS_AND_RELOADS, Rule.NEVER_OLDER),
    _without(MENDED, Rule.EQUAL_WRITES),
    _without(MARKED_BY_TIME, Rule.FOLD_BY_VERSION),
    _without(RECREATED, Rule.GENERATION_FIRST),
    _without(CHECKS, Rule.STAGE_ALL),
    _without(TWO_PARTITIONS, Rule.KEY_IN_TWO_PARTITIONS),
    # Deletes.
    _without(CUTS_AND_RELOADS, Rule.REMOVED_KEYS),
    _without(CUTS_AND_RELOADS, Rule.REMOVED_COMPARED),
    _without(CUTS_AND_RELOADS, Rule.REMOVED_ENTRY_GOES, checked=Checked.RULES),
    _without(TWO_PARTITIONS, Rule.REMOVED_IN_TWO_PARTITIONS),
    _without(MARKED_BY_TIME, Rule.MARK_WRITES_ABSENT),
    _without(MARKED, Rule.MARK_KEEPS_VALUES),
    _without(MARKED_BY_TIME, Rule.MARK_EMPTY_UNDER_TIME),
    _without(DEBEZIUM, Rule.TOMBSTONE_DELETES),
    _without(TRUNCATED, Rule.TRUNCATE_REMOVES_NOTHING),
    # Reading again.
    _without(READ_DIFFERENTLY, Rule.ROW_GOES),
    _without(READ_DIFFERENTLY, Rule.REMOVED_GOES),
    _without(READ_DIFFERENTLY, Rule.RELOAD_WOULD_LOSE),
    _without(READ_DIFFERENTLY, Rule.REMOVED_WOULD_LOSE),
    _without(BY_TIME, Rule.NEWER_UNDER_TIME),
    _without(MARKED, Rule.PUT_UNDER_MARK),
    _without(DISCARDED, Rule.DISCARDED_STAYS_OUT),
    _without(REPLAY_BESIDE, Rule.REPLAY_WAITS),
    # Tombstones that expire.
    _without(ARRIVING, Rule.DELETES_MAY_BE_LOST),
    _without(EXPIRING, Rule.CAUGHT_UP_AT_END),
    _without(ARRIVING, Rule.CAUGHT_UP_BEFORE),
    _without(EXPIRING, Rule.REBUILD_SWEEPS),
    _without(SLOW_ATTEMPTS, Rule.REBUILD_IN_TIME),
    _without(REBUILT, Rule.REBUILD_CLOSES_DEAD_LETTERS),
    # Values that did not travel.
    _without(NOT_SENT_VALUES, Rule.DELETE_ENDS_KNOWN),
    _without(NOT_SENT_VALUES, Rule.NOT_FROM_THE_FUTURE, checked=Checked.RULES),
    _without(NOT_SENT_REPLAYED, Rule.READ_TO_LOADED_TO),
    _without(MARKED, Rule.READ_TO_LOADED_TO),
    _without(NOT_SENT_REPLAYED, Rule.REPLAY_IS_RELOAD),
    _without(MARKED, Rule.REPLAY_IS_RELOAD),
    _without(NOT_SENT_BY_TIME, Rule.TRAVEL_NEEDS_OFFSET_ORDER),
    _without(NOT_SENT_COMPACTED, Rule.TRAVEL_NEEDS_WHOLE_LOG),
    _without(KEY_CHANGED, Rule.NO_VALUE_ACROSS_KEYS),
    # Attempts and claims.
    _without(TWO_ATTEMPTS, Rule.CLAIM_CHECK, Rule.STATE_CHECK),
    _without(TWO_ATTEMPTS, Rule.CLAIM_CHECK, checked=Checked.RULES),
    _without(LOST_ANSWER, Rule.STATE_CHECK),
    _without(LOST_ANSWER, Rule.STATE_CHECK, checked=Checked.RULES),
    _without(TWO_ATTEMPTS_LIVE, Rule.ONE_TRANSACTION),
)
