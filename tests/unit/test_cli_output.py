"""What the command line prints: aligned text for people, one JSON document for scripts."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from typing import Any

from kafka_ingest.cli.command import Output
from kafka_ingest.errors import Busy
from kafka_ingest.protocol.dead_letters import (
    ChosenGroup,
    DeadLetterOutcome,
    DeadLetterReport,
    RecordedDeadLetters,
    StayingGroup,
)
from kafka_ingest.report import OUTCOME_COLUMNS, cell, outcome_remarks, outcome_rows, shown_columns, table
from tests.builders import NOON

ROWS: list[dict[str, Any]] = [
    {"topic": "orders", "lag_offsets": 1234567, "fault": None, "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)},
    {"topic": "a", "lag_offsets": None, "fault": "no leader\nof partition 3", "at": None},
]


def printed(*, as_json: bool) -> tuple[Output, io.StringIO, io.StringIO]:
    out, err = io.StringIO(), io.StringIO()
    return Output(as_json=as_json, stdout=out, stderr=err), out, err


def test_columns_are_aligned_and_numbers_stand_to_the_right() -> None:
    assert table(ROWS, ("topic", "lag_offsets", "fault", "at")) == (
        "topic   lag offsets  fault                     at\n"
        "------  -----------  ------------------------  --------------------\n"
        "orders    1,234,567  -                         2026-01-02 03:04:05Z\n"
        "a                 -  no leader of partition 3  -"
    )


def test_json_is_one_document_with_whole_rows_and_base64() -> None:
    output, out, _ = printed(as_json=True)
    output.rows([{**ROWS[0], "value": b"\xff\x00"}], ("topic",), empty="nothing")
    assert json.loads(out.getvalue()) == [
        {
            "topic": "orders",
            "lag_offsets": 1234567,
            "fault": None,
            "at": "2026-01-02T03:04:05+00:00",
            "value": "/wA=",
        }
    ]


def test_an_empty_list_is_said_in_words_or_as_an_empty_array() -> None:
    for as_json, expected in ((False, "nothing\n"), (True, "[]\n")):
        output, out, _ = printed(as_json=as_json)
        output.rows([], ("topic",), empty="nothing")
        assert out.getvalue() == expected


def test_notes_and_faults_leave_standard_output_alone() -> None:
    output, out, err = printed(as_json=False)
    output.note("planning")
    output.fault(Busy("held", expected="free", found="run 1", next_command="wait"))
    assert out.getvalue() == ""
    assert err.getvalue() == "planning\nBusy: held\n  expected: free\n  found: run 1\n  next: wait\n"


def test_a_fault_in_json_keeps_its_parts() -> None:
    output, _, err = printed(as_json=True)
    output.fault(Busy("held", pipeline="orders"))
    assert json.loads(err.getvalue())["error"]["class"] == "Busy"


def test_bytes_are_text_where_they_can_be_read_and_hex_elsewhere() -> None:
    assert cell("é".encode()) == "é"
    assert cell(b"\xff\x01") == "\\xff01"
    assert cell(b"a\nb") == "\\x610a62"
    assert cell(b"") == "\\x"
    assert cell([b"a", None]) == "a, -"


def test_what_a_terminal_might_obey_is_escaped() -> None:
    assert cell("\x1b[31mred\u202e") == "\\x1b[31mred\\u202e"
    assert cell(["\x1b]0;owned\x07", "plain é"]) == "\\x1b]0;owned\\x07, plain é"


def test_counts_that_only_upserts_have_are_columns_where_a_row_has_any() -> None:
    columns = ("batch_id", "rows", "deletes", "superseded")
    planned = {"batch_id": "b", "rows": None, "deletes": None, "superseded": None}
    appended = {"batch_id": "b", "rows": 7, "deletes": 0, "superseded": 0}
    assert shown_columns([planned, appended], columns) == ["batch_id", "rows"]
    assert shown_columns([planned, {**appended, "deletes": 1}], columns) == ["batch_id", "rows", "deletes"]
    assert shown_columns([appended, {**appended, "superseded": 1}], columns) == ["batch_id", "rows", "superseded"]


def test_superseded_dead_letters_are_a_line_of_their_own() -> None:
    (row,) = outcome_rows(DeadLetterOutcome(superseded=4))
    assert row == {"becomes": "superseded", "records": 4}


def test_what_became_of_dead_letters_is_a_table_and_a_few_lines() -> None:
    stayed = (StayingGroup("malformed", 2, "orders", 0, 7, "the value: expected JSON"),)
    outcome = DeadLetterOutcome(replayed=3, counted=1, stayed=stayed)
    assert table(outcome_rows(outcome), OUTCOME_COLUMNS).splitlines() == [
        "becomes              reason     records  first at            detail",
        "-------------------  ---------  -------  ------------------  ------------------------",
        "a row                -                3  -                   -",
        "counted              -                1  -                   -",
        "stays a dead letter  malformed        2  orders[0] offset 7  the value: expected JSON",
    ]
    chosen = tuple(ChosenGroup("orders", 0, p, None, r, n, 0, 9) for p, r, n in ((0, "a", 1), (1, "b", 2), (1, "a", 3)))
    assert list(outcome_remarks(DeadLetterReport(chosen, outcome))) == ["chosen: 4 a, 2 b"]
    recorded = RecordedDeadLetters("r1", "{}", "ada", "mended", NOON, outcome)
    assert list(outcome_remarks(DeadLetterReport((), outcome, recorded, was_done_before=True))) == [
        "request r1 was done before, at 2026-01-02 12:00:00Z, by ada: mended"
    ]
    assert list(outcome_remarks(DeadLetterReport((), outcome, recorded))) == ["request r1 is done, by ada: mended"]
