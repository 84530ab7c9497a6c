"""What an audit of the whole table expects of each offset, and how it says what it found; values worked out by hand."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from kafka_ingest.protocol.audit import (
    FIRST_OFFSETS,
    OFFSETS_A_STATEMENT,
    PIECES_A_STATEMENT,
    Segment,
    TableAudit,
    Taken,
    audit_table,
    cut,
)
from kafka_ingest.protocol.ports import AuditScope, Count, Counted, Piece, Place, Written, WrittenBatch

P0, P1 = Place("orders", 0, 0), Place("orders", 0, 1)


class ListedTable:
    """Port ``WrittenTable``: batches, the oldest first, and rows as offsets of partition 0, which may come twice."""

    def __init__(
        self, *batches: Sequence[Written], rows: Sequence[int] = (), roll_backs: Sequence[tuple[int, Written]] = ()
    ) -> None:
        self.batches = [WrittenBatch(number, ranges) for number, ranges in enumerate(batches, 1)]
        self.rows = list(rows)
        self.roll_backs = roll_backs
        self.since: list[Piece] = []
        self.statements: list[Sequence[Piece]] = []
        self.batches_a_step = 100

    def scope(self) -> AuditScope:
        ranges = [written for batch in self.batches for written in batch.ranges]
        return AuditScope(len(self.batches), 0, len(ranges), sum(w.end - w.start for w in ranges), 0, self.roll_backs)

    def writers(self, before: int) -> Sequence[WrittenBatch]:
        return [batch for batch in reversed(self.batches) if batch.ordinal < before][: self.batches_a_step]

    def count(self, pieces: Sequence[Piece], scope: AuditScope) -> Count:
        self.statements.append(pieces)
        return Count([self._count(piece) for piece in pieces], self.since)

    def name(self, piece: Piece) -> tuple[Sequence[int], Sequence[int]]:
        found = [row for row in self.rows if piece.start <= row < piece.end]
        doubled = sorted({row for row in found if found.count(row) > 1})
        absent = [offset for offset in range(piece.start, piece.end) if offset not in found]
        return doubled[:FIRST_OFFSETS], absent[:FIRST_OFFSETS]

    def _count(self, piece: Piece) -> Counted:
        found = [row for row in self.rows if piece.place == P0 and piece.start <= row < piece.end]
        return Counted(len(found), len(set(found)))


def wrote(start: int, end: int, rows: int | None = None, *, place: Place = P0, is_given_up: bool = False) -> Written:
    return Written(place, start, end, end - start if rows is None else rows, f"batch {start}-{end}", is_given_up)


FIRST_RANGE = "topic orders, generation 0, partition 0, offsets [0, 5) of batch 0-5"


def audit_of(table: ListedTable) -> TableAudit:
    return audit_table(table, lambda _: None)


def found(table: ListedTable) -> list[str]:
    return [violation.row for violation in audit_of(table).violations]


def test_what_is_taken_is_free_no_more_and_becomes_few_intervals() -> None:
    taken = Taken()
    assert taken.take(P0, 10, 20) == [Piece(P0, 10, 20)]
    assert taken.take(P0, 0, 10) == [Piece(P0, 0, 10)]
    assert taken.take(P0, 5, 15) == []
    assert taken.take(P0, 18, 25) == [Piece(P0, 20, 25)]
    assert taken.take(P0, 30, 40) == [Piece(P0, 30, 40)]
    assert taken.take(P0, 20, 50) == [Piece(P0, 25, 30), Piece(P0, 40, 50)]
    assert taken.take(P1, 0, 5) == [Piece(P1, 0, 5)]
    assert [taken.overlaps(Piece(P0, a, b)) for a, b in ((49, 60), (50, 60))] == [True, False]


def test_the_newest_writer_of_each_offset_has_it_whatever_was_written_before() -> None:
    chooser = random.Random(7)
    for _ in range(200):
        spans = [sorted(chooser.sample(range(40), 2)) for _ in range(chooser.randint(1, 12))]
        taken = Taken()
        owner: dict[int, int] = {}
        for number, (start, end) in enumerate(spans):
            for piece in taken.take(P0, start, end):
                assert piece.start < piece.end
                owner |= dict.fromkeys(range(piece.start, piece.end), number)
        by_hand: dict[int, int] = {}
        for number, (start, end) in reversed(list(enumerate(spans))):
            by_hand |= dict.fromkeys(range(start, end), number)
        assert owner == by_hand


def test_a_whole_table_is_sound() -> None:
    table = ListedTable([wrote(0, 3)], [wrote(3, 5), wrote(0, 4, 0, place=P1)], rows=range(5))
    audit = audit_of(table)
    assert (audit.violations, audit.faulty) == ([], 0)
    assert (audit.ranges, audit.offsets, audit.rows) == (3, 9, 5)


def test_a_row_that_is_gone_from_any_batch_is_named() -> None:
    table = ListedTable([wrote(0, 5)], [wrote(5, 9)], rows=[0, 1, 3, 4, 5, 6, 7, 8])
    assert found(table) == [f"{FIRST_RANGE}: 5 rows, found 4, 1 missing; without a row or dead letter: 2"]


def test_a_row_that_stands_twice_in_any_batch_is_named() -> None:
    table = ListedTable([wrote(0, 5)], [wrote(5, 9)], rows=[0, 1, 1, 2, 3, 4, 4, 5, 6, 7, 8])
    assert found(table) == [f"{FIRST_RANGE}: 5 rows, found 7, 2 doubled; doubled: 1, 4"]


def test_one_row_gone_and_another_doubled_do_not_make_up_for_each_other() -> None:
    audit = audit_of(ListedTable([wrote(0, 5)], rows=[0, 0, 2, 3, 4]))
    assert (audit.missing, audit.doubled, audit.faulty) == (1, 1, 1)


def test_a_row_that_nobody_loaded_is_told() -> None:
    table = ListedTable([wrote(0, 5, 3)], rows=[0, 1, 2, 4])
    assert found(table) == [f"{FIRST_RANGE}: 3 rows, found 4, 1 loaded by nobody"]


def test_a_reload_owns_what_it_replaced_and_the_rest_stays_with_the_batch_before() -> None:
    # The reload of [4, 8) counts its own rows: one record became a dead letter, so 3 of 4 offsets have a row.
    table = ListedTable([wrote(0, 10)], [wrote(10, 12)], [wrote(4, 8, 3)], rows=[0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11])
    assert found(table) == []
    table.rows.remove(9)
    [row] = found(table)
    assert row.startswith(
        "topic orders, generation 0, partition 0, offsets [0, 4), [8, 10) of batch 0-10: 6 rows, found 5"
    )


def test_rows_of_a_partly_replaced_range_lie_within_bounds() -> None:
    # 8 rows of 10 offsets, of which 4 are replaced. The 2 without a row lie on either side: 4 to 6 rows are left.
    segment = Segment(wrote(0, 10, 8), [Piece(P0, 0, 6)], rows=4, identities=4)
    assert segment.bounds == (4, 6)
    assert segment.is_whole
    segment.rows = segment.identities = 3
    assert (segment.missing, segment.is_whole) == (1, False)
    assert audit_of(ListedTable([wrote(0, 10, 8)], [wrote(6, 10)], rows=range(10))).within_bounds == 1


def test_what_a_roll_back_emptied_is_empty_until_it_is_loaded_again() -> None:
    undone = Written(P0, 4, 8, 0, "a roll-back")
    # Batch 2 had reloaded [2, 4) and loaded [4, 8); the roll-back took [4, 8) only.
    batches = ([wrote(0, 4)], [wrote(2, 8)])
    assert found(ListedTable(*batches, rows=[0, 1, 2, 3], roll_backs=[(2, undone)])) == []
    [row] = found(ListedTable(*batches, rows=[0, 1, 2, 3, 5], roll_backs=[(2, undone)]))
    assert "offsets [4, 8) of a roll-back: 0 rows, found 1, 1 loaded by nobody" in row
    assert found(ListedTable(*batches, [wrote(4, 8)], rows=range(8), roll_backs=[(2, undone)])) == []


def test_rows_that_were_given_up_may_be_gone_but_not_stand_twice() -> None:
    given_up = wrote(0, 5, is_given_up=True)
    audit = audit_of(ListedTable([given_up], [wrote(5, 7)], rows=[1, 5, 6]))
    assert (audit.faulty, audit.given_up) == (0, 1)
    assert audit_of(ListedTable([given_up], rows=[1, 1])).doubled == 1


def test_what_is_written_meanwhile_is_not_compared() -> None:
    table = ListedTable([wrote(0, 5)], [wrote(5, 9)], rows=[0, 1, 5, 6, 7, 8])
    table.since = [Piece(P0, 4, 5)]
    audit = audit_of(table)
    assert (audit.faulty, audit.written_since) == (0, 1)
    table.rows.append(0)
    assert audit_of(table).doubled == 1


def test_a_statement_looks_at_a_bounded_number_of_offsets_and_pieces() -> None:
    big = Segment(wrote(0, 25), [Piece(P0, 0, 4), Piece(P0, 5, 25)])
    cuts = [[(piece.start, piece.end) for _, piece in statement] for statement in cut([big], offsets=10)]
    assert cuts == [[(0, 4), (5, 11)], [(11, 21)], [(21, 25)]]
    many = [Segment(wrote(n, n + 1), [Piece(P0, n, n + 1)]) for n in range(PIECES_A_STATEMENT + 1)]
    assert [len(statement) for statement in cut(many)] == [PIECES_A_STATEMENT, 1]


def test_a_batch_of_many_offsets_is_counted_in_several_statements() -> None:
    table = ListedTable([wrote(0, 3 * OFFSETS_A_STATEMENT, 0)])
    assert audit_of(table).violations == []
    assert [piece.end - piece.start for statement in table.statements for piece in statement] == [
        OFFSETS_A_STATEMENT
    ] * 3


@pytest.mark.parametrize("batches", [400, 800])
def test_statements_grow_with_the_number_of_ranges_and_no_faster(batches: int) -> None:
    table = ListedTable(*([wrote(n * 10, n * 10 + 10, 0)] for n in range(batches)))
    assert audit_of(table).ranges == batches
    assert len(table.statements) == batches // 100


def test_progress_is_told_after_every_statement_and_ends_with_everything() -> None:
    table, told = ListedTable([wrote(0, 10)], [wrote(4, 8)], rows=range(10)), []
    table.batches_a_step = 1
    audit_table(table, lambda audit: told.append((audit.ranges, audit.offsets)))
    assert told == [(1, 4), (2, 14)]


def test_many_faults_are_all_counted_and_the_first_are_listed() -> None:
    table = ListedTable(*([wrote(n * 2, n * 2 + 2)] for n in range(150)))
    audit = audit_of(table)
    assert (audit.faulty, audit.missing, len(audit.violations)) == (150, 300, 100)
    assert sum("without a row" in violation.row for violation in audit.violations) == 10
