"""Dead letters on real Kafka and PostgreSQL, from the command line: replayed, discarded, exported, read again."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from kafka_ingest.protocol.batch import RunMode, RunOptions, TimeSpan
from tests.integration.pipeline_under_test import FedPipeline

INTEGER = {"format": "json", "columns": [{"name": "n", "type": "integer"}]}
TEXT = {"format": "json", "columns": [{"name": "n", "type": "text"}]}
WHY = ("--reason", "n is text now")
RELOAD = RunOptions(RunMode.RELOAD, times=TimeSpan(0), reason="a test")
STANDING = '"offset", reason, resolution, request_id'


@pytest.fixture
def letters(pipeline: FedPipeline) -> FedPipeline:
    """Offsets 0 and 3 are rows; 1 is text, 2 no JSON: dead letters."""
    pipeline.open(value=INTEGER)
    pipeline.send(b'{"n": 10}', b'{"n": "eleven"}', b"{", b'{"n": 13}', key=b"k", headers=[("h", b"\xff"), ("h", None)])
    assert pipeline.load_here()["counts"]["dead_letters"] == 2
    return pipeline


def mend(pipeline: FedPipeline) -> None:
    """Let column n take texts, in the file and in the table."""
    pipeline.write(pipeline.topic, value=TEXT)
    pipeline.query("ALTER TABLE shop.events ALTER COLUMN n TYPE text")


def asked(pipeline: FedPipeline, action: str, *arguments: str) -> Any:
    code, document, notes = pipeline.command("dead-letters", action, "events", *arguments)
    assert code == 0, notes
    return document


def refused(pipeline: FedPipeline, action: str, *arguments: str) -> str:
    code, document, notes = pipeline.command("dead-letters", action, "events", *arguments)
    assert (code, document) == (78, None), notes
    return notes


def require_sound(pipeline: FedPipeline) -> None:
    assert pipeline.command("audit", "events")[0] == 0


def test_what_fits_by_now_becomes_a_row_of_its_own_identity_and_the_rest_stays(letters: FedPipeline) -> None:
    mend(letters)
    told = asked(letters, "replay", *WHY, "--request-id", "r1", "--apply")
    assert (told["outcome"]["replayed"], [s["reason"] for s in told["outcome"]["stayed"]]) == (1, ["malformed"])
    columns = "n, kafka_offset, kafka_generation, key, kafka_timestamp_type"
    assert letters.rows(columns) == [
        ("10", 0, 0, b"k", "create"),
        ("eleven", 1, 0, b"k", "create"),
        ("13", 3, 0, b"k", "create"),
    ]
    assert letters.rows("headers->1") == [({"key": "h", "value": None},)] * 3
    [(time_of_row, time_of_record)] = letters.query(
        "SELECT t.kafka_timestamp, d.record_time FROM shop.events AS t JOIN kafka_ingest.dead_letter AS d"
        ' ON d."offset" = t.kafka_offset'
    )
    assert time_of_row == time_of_record
    assert letters.dead_letters(STANDING) == [(1, "wrong_type", "replayed", "r1"), (2, "malformed", None, None)]
    require_sound(letters)
