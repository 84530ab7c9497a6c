"""The rules of current state, each with a name, and the pipeline that keeps them.

A search takes rules away and must find out what goes wrong without them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum


class Rule(StrEnum):
    """A rule that keeps the table the fold of what was read. The comment says what the rule is."""

    # A version writes only over versions that are not newer.
    NEVER_OLDER = "never-older"
    # A record that is read again writes again: its version is not older.
    EQUAL_WRITES = "equal-writes"
    # The newest record of a key in a batch is chosen by version, not by the order of reading.
    FOLD_BY_VERSION = "fold-by-version"
    # A higher generation of the topic wins, whatever the offsets.
    GENERATION_FIRST = "generation-first"
    # Tasks stage every record: a later one of the same key may still become a dead letter.
    STAGE_ALL = "stage-all"
    # A removed row leaves its key and its version behind.
    REMOVED_KEYS = "removed-keys"
    # Versions are compared with those of removed keys, too.
    REMOVED_COMPARED = "removed-compared"
    # A newer version of a removed key takes the entry away.
    REMOVED_ENTRY_GOES = "removed-entry-goes"
    # Ordered by offset, a key in two partitions of one generation stops the batch.
    KEY_IN_TWO_PARTITIONS = "key-in-two-partitions"
    # A removed key counts for that, too.
    REMOVED_IN_TWO_PARTITIONS = "removed-in-two-partitions"
    # A row whose record is read again and is no such row any more goes.
    ROW_GOES = "row-goes"
    # A removed key whose record is read again and is no delete of it any more goes.
    REMOVED_GOES = "removed-goes"
    # A row goes only where the batch holds another record of the key: no older version can come back.
    RELOAD_WOULD_LOSE = "reload-would-lose"
    # A removed key, too.
    REMOVED_WOULD_LOSE = "removed-would-lose"
    # Ordered by time, that record must be newer: an older one need not be the newest of the older ones.
    NEWER_UNDER_TIME = "newer-under-time"
    # Where a marked row keeps values, that record must be a put: an older delete has lost the values with the row.
    PUT_UNDER_MARK = "put-under-mark"
    # A delete that marks writes a row where there was none.
    MARK_WRITES_ABSENT = "mark-writes-absent"
    # Ordered by offset, a marked row has the last values of its key, from the batch or from the table.
    MARK_KEEPS_VALUES = "mark-keeps-values"
    # Ordered by time, a marked row has none.
    MARK_EMPTY_UNDER_TIME = "mark-empty-under-time"
    # A publish that comes later than the last plan to the end, plus the retention of tombstones, stops.
    DELETES_MAY_BE_LOST = "deletes-may-be-lost"
    # Only a plan that reaches the end offset counts for that.
    CAUGHT_UP_AT_END = "caught-up-at-end"
    # The batch's own plan does not count for its own publish.
    CAUGHT_UP_BEFORE = "caught-up-before"
    # A rebuild stops by its own plan: what it read must not be older than the retention of tombstones.
    REBUILD_IN_TIME = "rebuild-in-time"
    # A rebuild removes the rows and removed keys that it did not read.
    REBUILD_SWEEPS = "rebuild-sweeps"
    # A rebuild closes the dead letters that it did not read: a newer record of the key took them out of the log.
    REBUILD_CLOSES_DEAD_LETTERS = "rebuild-closes-dead-letters"
    # A tombstone is a delete of its key, also behind the delete event.
    TOMBSTONE_DELETES = "tombstone-deletes"
    # A delete ends what is known of values that did not travel.
    DELETE_ENDS_KNOWN = "delete-ends-known"
    # A value that did not travel is never taken from a newer row.
    NOT_FROM_THE_FUTURE = "not-from-the-future"
    # Where a row depends on older records, what is read below loaded_to is read up to it.
    READ_TO_LOADED_TO = "read-to-loaded-to"
    # There, a replay is a reload up to loaded_to.
    REPLAY_IS_RELOAD = "replay-is-reload"
    # Values that may not travel need the order by offset.
    TRAVEL_NEEDS_OFFSET_ORDER = "travel-needs-offset-order"
    # They need a topic that is not compacted: the event that had the value may have been taken.
    TRAVEL_NEEDS_WHOLE_LOG = "travel-needs-whole-log"
    # After a change of the key no value is taken from the old key.
    NO_VALUE_ACROSS_KEYS = "no-value-across-keys"
    # A truncation is counted or stops, and removes nothing.
    TRUNCATE_REMOVES_NOTHING = "truncate-removes-nothing"
    # A discarded dead letter stays out when it is read again, also if it was discarded after it was staged.
    DISCARDED_STAYS_OUT = "discarded-stays-out"
    # A replay is refused while a batch is planned.
    REPLAY_WAITS = "replay-waits"
    # A publish needs the newest claim of its batch.
    CLAIM_CHECK = "claim-check"
    # A publish needs a planned batch; a committed one is success, and nothing is written.
    STATE_CHECK = "state-check"
    # Rows and positions are written in one transaction.
    ONE_TRANSACTION = "one-transaction"


class Order(Enum):
    """By what the newest record of a key is found."""

    OFFSET = "offset"
    TIME = "record_time"


class Deletes(Enum):
    """What a delete does to the row of its key."""

    REMOVE = "remove"
    MARK = "mark"
    IGNORE = "ignore"
    DEAD_LETTER = "dead_letter"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline that keeps current state.

    Attributes:
        order: By what versions are compared.
        deletes: What a delete does.
        may_not_travel: A column has values that events may leave out.
        without: The rules that it does not keep.
    """

    order: Order = Order.OFFSET
    deletes: Deletes = Deletes.REMOVE
    may_not_travel: bool = False
    without: frozenset[Rule] = frozenset()

    def keeps(self, rule: Rule) -> bool:
        """Return whether the rule is on."""
        return rule not in self.without

    @property
    def rows_need_older_records(self) -> bool:
        """Return whether a row may hold values of older records than the one that wrote it."""
        return self.may_not_travel or (self.deletes is Deletes.MARK and self.order is Order.OFFSET)

    @property
    def reads_to_loaded_to(self) -> bool:
        """Return whether what is read below ``loaded_to`` must be read up to it."""
        return self.rows_need_older_records and self.keeps(Rule.READ_TO_LOADED_TO)
