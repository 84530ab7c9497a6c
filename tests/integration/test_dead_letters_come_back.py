"""Dead letters on real Kafka and PostgreSQL, from the command line: replayed, discarded, exported, read again."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kafka_ingest import full_world
from kafka_ingest.__main__ import main
from kafka_ingest.postgres import dead_letters, reports
from kafka_ingest.postgres.database import Row
from kafka_ingest.protocol.batch import RunMode, RunOptions, TimeSpan
from spark_jobs import replay_job
from tests.integration.pipeline_under_test import FedPipeline

INTEGER = {"format": "json", "columns": [{"name": "n", "type": "integer"}]}
TEXT = {"format": "json", "columns": [{"name": "n", "type": "text"}]}
ANYTHING = {"format": "json", "columns": [{"name": "n", "type": "jsonb"}]}
WHY = ("--reason", "n is anything now")
RELOAD = RunOptions(RunMode.RELOAD, times=TimeSpan(0), reason="a test")
STANDING = '"offset", reason, resolution, request_id'


@pytest.fixture
def in_a_process() -> None:
    """The test wants a replay as people start it."""


@pytest.fixture(autouse=True)
def _in_this_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replay with the job's own code in this process, which is quicker."""
    if "in_a_process" not in request.fixturenames:
        monkeypatch.setattr(full_world, "run_replay", lambda order, _tell: replay_job.replay(order))


@pytest.fixture
def letters(pipeline: FedPipeline) -> FedPipeline:
    """Offsets 0 and 3 are rows; 1 is text, 2 no JSON: dead letters."""
    pipeline.open(value=INTEGER)
    pipeline.send(b'{"n": 10}', b'{"n": "eleven"}', b"{", b'{"n": 13}', key=b"k", headers=[("h", b"\xff"), ("h", None)])
    assert pipeline.load_here()["counts"]["dead_letters"] == 2
    return pipeline


def mend(pipeline: FedPipeline) -> None:
    """Let column n take any JSON, in the file and in the table."""
    pipeline.write(pipeline.topic, value=ANYTHING)
    pipeline.query("ALTER TABLE shop.events ALTER COLUMN n TYPE jsonb USING to_jsonb(n)")


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


@pytest.mark.usefixtures("in_a_process")
def test_what_fits_by_now_becomes_a_row_of_its_own_identity_and_the_rest_stays(letters: FedPipeline) -> None:
    mend(letters)
    told = asked(letters, "replay", *WHY, "--request-id", "r1", "--apply")
    assert (told["outcome"]["replayed"], [s["reason"] for s in told["outcome"]["stayed"]]) == (1, ["malformed"])
    columns = "n, kafka_offset, kafka_generation, key, kafka_timestamp_type"
    assert letters.rows(columns) == [
        (10, 0, 0, b"k", "create"),
        ("eleven", 1, 0, b"k", "create"),
        (13, 3, 0, b"k", "create"),
    ]
    assert letters.rows("headers->1") == [({"key": "h", "value": None},)] * 3
    [(time_of_row, time_of_record)] = letters.query(
        "SELECT t.kafka_timestamp, d.record_time FROM shop.events AS t JOIN kafka_ingest.dead_letter AS d"
        ' ON d."offset" = t.kafka_offset'
    )
    assert time_of_row == time_of_record
    assert letters.dead_letters(STANDING) == [(1, "wrong_type", "replayed", "r1"), (2, "malformed", None, None)]
    require_sound(letters)


def test_without_apply_it_says_what_would_be_done_and_writes_nothing(letters: FedPipeline) -> None:
    mend(letters)
    before = (letters.rows("n, kafka_offset"), letters.dead_letters(STANDING))
    told = asked(letters, "replay")
    assert {g["reason"]: g["records"] for g in told["chosen"]} == {"malformed": 1, "wrong_type": 1}
    assert (told["outcome"]["replayed"], told["outcome"]["stayed"][0]["offset"], told["recorded"]) == (1, 2, None)
    assert asked(letters, "discard")["outcome"]["discarded"] == 2
    assert (letters.rows("n, kafka_offset"), letters.dead_letters(STANDING)) == before
    assert letters.query("SELECT count(*) FROM kafka_ingest.dead_letter_request") == [(0,)]
    assert letters.query("SELECT count(*) FROM pg_class WHERE relnamespace = 'kafka_ingest_staging'::regnamespace") == [
        (0,)
    ]


def test_the_same_request_again_does_nothing_and_says_what_was_done(letters: FedPipeline) -> None:
    first = asked(letters, "replay", *WHY, "--request-id", "r1", "--apply")
    assert (first["outcome"]["replayed"], first["was_done_before"]) == (0, False)
    mend(letters)
    again = asked(letters, "replay", *WHY, "--request-id", "r1", "--apply")
    assert (again["outcome"], again["recorded"], again["was_done_before"]) == (
        first["outcome"],
        first["recorded"],
        True,
    )
    assert letters.rows("kafka_offset") == [(0,), (3,)]
    notes = refused(letters, "replay", *WHY, "--request-id", "r1", "--limit", "1", "--apply")
    assert '"class": "RequestChanged"' in notes


def test_what_still_does_not_fit_has_its_new_reason(letters: FedPipeline) -> None:
    columns: list[dict[str, Any]] = [
        {"name": "n", "type": "integer"},
        {"name": "m", "type": "integer", "required": True},
    ]
    letters.write(letters.topic, value={"format": "json", "columns": columns}, tombstones="dead_letter")
    letters.query("ALTER TABLE shop.events ADD COLUMN m integer")
    asked(letters, "replay", *WHY, "--apply")
    assert letters.dead_letters('"offset", reason, resolved_at') == [(1, "wrong_type", None), (2, "malformed", None)]
    columns[0]["type"] = "text"
    letters.write(letters.topic, value={"format": "json", "columns": columns}, tombstones="dead_letter")
    letters.query("ALTER TABLE shop.events ALTER COLUMN n TYPE text")
    asked(letters, "replay", *WHY, "--apply")
    [(detail,), _] = letters.dead_letters("detail")
    assert letters.dead_letters('"offset", reason') == [(1, "missing_required"), (2, "malformed")]
    assert detail.startswith('column "m" from $.m: ')
    require_sound(letters)


def test_not_null_and_check_of_the_target_and_its_own_refusals_are_reasons_to_stay(pipeline: FedPipeline) -> None:
    pipeline.open(value=INTEGER)
    pipeline.send(*(json.dumps({"n": text}) for text in ("a", "b", "c", "d")))
    pipeline.load_here()
    pipeline.write(pipeline.topic, value=TEXT)
    pipeline.query("ALTER TABLE shop.events ALTER COLUMN n TYPE text")
    # The last CHECK looks at a column that only the target fills: staging cannot know it.
    pipeline.query(
        "ALTER TABLE shop.events ADD CONSTRAINT not_b CHECK (n <> 'b'), ADD COLUMN half integer DEFAULT 5,"
        " ADD CONSTRAINT not_c CHECK (half = 5 AND n <> 'c')"
    )
    told = asked(pipeline, "replay", *WHY, "--apply")
    assert told["outcome"]["replayed"] == 2
    assert {s["reason"]: (s["records"], s["offset"]) for s in told["outcome"]["stayed"]} == {"check_violation": (2, 1)}
    assert pipeline.rows("n, kafka_offset") == [("a", 0), ("d", 3)]
    assert pipeline.dead_letters('"offset", reason, detail')[1][1] == "check_violation"


def test_a_tombstone_that_the_pipeline_only_counts_by_now_is_resolved_without_a_row(pipeline: FedPipeline) -> None:
    pipeline.open(value=TEXT, tombstones="dead_letter")
    pipeline.send(b'{"n": "a"}', None)
    pipeline.load_here()
    pipeline.write(pipeline.topic, value=TEXT, tombstones="count")
    assert asked(pipeline, "replay", *WHY, "--apply")["outcome"]["counted"] == 1
    assert pipeline.rows("kafka_offset") == [(0,)]
    assert pipeline.dead_letters('"offset", resolution') == [(1, "counted")]
    require_sound(pipeline)


def test_a_header_name_that_is_not_stored_as_it_was_never_becomes_a_row(pipeline: FedPipeline) -> None:
    pipeline.open(value=INTEGER)
    pipeline.send(b'{"n": "text"}', b'{"n": "text"}', headers=[("name", b"")])
    pipeline.load_here()
    mend(pipeline)
    # As staging stores it (``dead_letter_rows``).
    pipeline.query(
        "UPDATE kafka_ingest.dead_letter SET header_names = ARRAY['a'||chr(92)||'u0000b'],"
        " detail = '(a header name is stored with U+0000 as '||chr(92)||'u0000) '||detail WHERE \"offset\" = 0"
    )
    for _ in range(2):  # the note must not get lost
        asked(pipeline, "replay", *WHY, "--apply")
        [(reason, detail, resolution), _] = pipeline.dead_letters("reason, detail, resolution")
        assert (reason, resolution) == ("unreadable_headers", None)
        assert detail.startswith("(a header name is stored with U+0000 as \\u0000) ")
    assert pipeline.rows("kafka_offset") == [(1,)]


CHOICES: list[tuple[tuple[str, ...], set[int]]] = [
    (("--of-reason", "malformed"), {2}),
    (("--of-reason", "malformed", "--of-reason", "wrong_type"), {1, 2}),
    (("--only", "TOPIC"), {1, 2}),
    (("--only", "TOPIC", "0", "2", "3"), {2}),
    (("--only", "TOPIC", "0", "0", "2", "--only", "TOPIC", "0", "2", "9"), {1, 2}),
    (("--only", "TOPIC", "1"), set()),
    (("--only", "another"), set()),
    (("--limit", "1"), {1}),
    (("--generation", "1"), set()),
    (("--generation", "0"), {1, 2}),
    (("--batch", "00000000-0000-4000-8000-000000000000"), set()),
]


def test_dead_letters_are_chosen_by_reason_place_generation_batch_and_number(letters: FedPipeline) -> None:
    for number, (choice, offsets) in enumerate(CHOICES):
        arguments = [letters.topic if word == "TOPIC" else word for word in choice]
        exported = letters.folder / f"exported_{number}.jsonl"
        asked(letters, "export", *arguments, "--to", str(exported))
        lines = [json.loads(line) for line in exported.read_text().splitlines()]
        listed = asked(letters, "list", *arguments)
        groups = asked(letters, "discard", *arguments)["chosen"]
        found = [{line["offset"] for line in lines}, {row["offset"] for row in listed}]
        assert [*found, {group["first_offset"] for group in groups}] == [offsets] * 3, choice
    code, _, notes = letters.command("dead-letters", "list", "events", "--of-reason", "unheard_of")
    assert (code, "not unheard_of" in notes) == (78, True)


def test_a_discarded_dead_letter_keeps_its_bytes_and_stays_out_of_a_reload(letters: FedPipeline) -> None:
    asked(letters, "discard", "--reason", "test records", "--request-id", "d1", "--apply")
    mend(letters)
    assert letters.load_here(RELOAD)["counts"] == {
        "rows": 2,
        "deletes": 0,
        "superseded": 0,
        "dead_letters": 2,
        "tombstones": 0,
        "filtered": 0,
        "invisible": 0,
    }
    assert letters.rows("kafka_offset") == [(0,), (3,)]
    assert letters.dead_letters(f"{STANDING}, value") == [
        (1, "wrong_type", "discarded", "d1", b'{"n": "eleven"}'),
        (2, "malformed", "discarded", "d1", b"{"),
    ]
    recorded = letters.query("SELECT action, why, discarded FROM kafka_ingest.dead_letter_request")
    assert recorded == [("discard", "test records", 2)]
    require_sound(letters)


def test_a_replayed_record_is_a_record_like_any_other_under_a_reload(letters: FedPipeline) -> None:
    mend(letters)
    asked(letters, "replay", *WHY, "--apply")
    letters.load_here(RELOAD)
    assert letters.rows("n, kafka_offset") == [(10, 0), ("eleven", 1), (13, 3)]
    assert letters.dead_letters('"offset", resolution') == [(2, None)]
    require_sound(letters)


def test_a_replayed_row_that_somebody_deleted_comes_back_with_a_reload(letters: FedPipeline) -> None:
    mend(letters)
    asked(letters, "replay", *WHY, "--apply")
    letters.query("TRUNCATE shop.events")
    code, violations, _ = letters.command("audit", "events")
    assert code == 65
    assert "replayed_dead_letters_are_rows" in {violation["invariant"] for violation in violations}
    letters.load_here(RELOAD)
    assert letters.rows("n, kafka_offset") == [(10, 0), ("eleven", 1), (13, 3)]
    require_sound(letters)


def test_a_roll_back_takes_replayed_rows_along(letters: FedPipeline) -> None:
    mend(letters)
    asked(letters, "replay", *WHY, "--apply")
    code, _, notes = letters.command("roll-back", "events", "--batches", "1", "--reason", "a test", "--apply")
    assert code == 0, notes
    assert (letters.rows("kafka_offset"), letters.dead_letters("reason")) == ([], [])
    letters.load_here()
    assert letters.rows("n, kafka_offset") == [(10, 0), ("eleven", 1), (13, 3)]
    require_sound(letters)


def test_a_pipeline_that_is_renamed_keeps_who_resolved_its_dead_letters(letters: FedPipeline) -> None:
    mend(letters)
    asked(letters, "replay", *WHY, "--request-id", "r1", "--apply")
    (letters.folder / "events.yaml").unlink()
    letters.write(letters.topic, value=ANYTHING, pipeline="renamed")
    code, _, notes = letters.command("change", "renamed", "rename", "--from", "events", "--reason", "a test", "--apply")
    assert code == 0, notes
    code, listed, _ = letters.command("dead-letters", "list", "renamed", "--standing", "resolved")
    assert [(row["offset"], row["request_id"], row["resolved_because"]) for row in listed] == [
        (1, "r1", "n is anything now")
    ]


def test_beside_a_planned_batch_nothing_is_replayed_or_discarded(letters: FedPipeline) -> None:
    letters.send(b'{"n": 14}')
    batch = letters.plan_only("planned")
    for action in ("replay", "discard"):
        notes = refused(letters, action, *WHY, "--apply")
        assert ('"class": "BatchOutstanding"' in notes, batch.batch_id in notes) == (True, True)
        refused(letters, action)
    assert letters.dead_letters("resolution") == [(None,), (None,)]


def test_dead_letters_of_a_log_that_the_position_left_are_not_replayed_but_can_be_discarded(
    letters: FedPipeline,
) -> None:
    mend(letters)
    letters.query("UPDATE kafka_ingest.committed_offset SET generation = 1")
    notes = refused(letters, "replay", *WHY, "--apply")
    assert ('"class": "TopicRecreated"' in notes, "--generation 0" in notes) == (True, True)
    letters.query("UPDATE kafka_ingest.committed_offset SET generation = 0, topic_id = 'another'")
    assert "topic id another" in refused(letters, "replay", *WHY, "--apply")
    assert asked(letters, "discard", *WHY, "--generation", "0", "--apply")["outcome"]["discarded"] == 2


@pytest.mark.usefixtures("in_a_process")
def test_a_file_that_names_another_table_is_refused(letters: FedPipeline) -> None:
    letters.write(letters.topic, value=INTEGER, target={"table": "shop.others", "create_table": True})
    assert "change-target" in refused(letters, "replay", *WHY, "--apply")


def test_a_replay_without_a_reason_is_refused(letters: FedPipeline) -> None:
    assert "--reason" in refused(letters, "replay", "--apply")


def test_a_pipeline_that_never_planned_has_no_dead_letters(pipeline: FedPipeline) -> None:
    pipeline.open(value=INTEGER)
    assert "none of that name in the ledger" in refused(pipeline, "replay", *WHY, "--apply")
    assert asked(pipeline, "list") == []


def test_an_export_holds_every_byte_and_overwrites_no_file(letters: FedPipeline, tmp_path: Path) -> None:
    exported = tmp_path / "letters.jsonl"
    asked(letters, "export", "--to", str(exported))
    first, second = (json.loads(line) for line in exported.read_text().splitlines())
    assert (first["topic"], first["partition"], first["offset"], first["generation"]) == (letters.topic, 0, 1, 0)
    assert (base64.b64decode(first["value"]), base64.b64decode(second["value"])) == (b'{"n": "eleven"}', b"{")
    assert first["headers"] == [{"key": "h", "value": "/w=="}, {"key": "h", "value": None}]
    assert (first["key"], second["reason"], first["record_time_type"]) == ("aw==", "malformed", "create")
    assert exported.stat().st_mode & 0o777 == 0o600
    assert "does not exist yet" in refused(letters, "export", "--to", str(exported))


def test_show_gives_one_record_and_a_terminal_never_gets_its_bytes_unescaped(pipeline: FedPipeline) -> None:
    pipeline.open(value=INTEGER)
    hostile = b"\x1b]0;owned\x07" + b"x" * 5_000
    pipeline.send(hostile, key=b"\x1b[2J", headers=[("\x1b[31m", b"\x1b[0m")])
    pipeline.load_here()
    pipeline.capture.readouterr()
    for arguments in (("show", "events", pipeline.topic, "0", "0"), ("list", "events", "--show-values")):
        assert main(["dead-letters", *arguments]) == 0
        shown = pipeline.capture.readouterr().out
        assert "\x1b" not in shown
        assert "\\x1b5d303b6f776e6564" in shown
        assert len(shown) < 3_000
    [document] = [asked(pipeline, "show", pipeline.topic, "0", "0")]
    assert (base64.b64decode(document["value"]), document["value_bytes"]) == (hostile, 5_010)
    assert "no dead letter" in refused(pipeline, "show", pipeline.topic, "0", "7")


MANY = {"max_count": 100_000, "max_ratio": 1.0, "max_consecutive": 100_000}


def test_ten_thousand_at_once_and_one_at_a_time(pipeline: FedPipeline) -> None:
    pipeline.open(2, value=INTEGER, dead_letters=MANY)
    for partition in (0, 1):
        pipeline.send(*(json.dumps({"n": f"text {n}"}) for n in range(6_000)), partition=partition)
    assert pipeline.load_here()["counts"]["dead_letters"] == 12_000
    mend(pipeline)
    for number in range(3):
        assert asked(pipeline, "replay", *WHY, "--limit", "1", "--apply")["outcome"]["replayed"] == 1
        assert pipeline.rows("kafka_partition, kafka_offset")[-1] == (0, number)
    told = asked(pipeline, "replay", *WHY, "--apply")
    assert (told["outcome"]["replayed"], told["outcome"]["stayed"]) == (11_997, [])
    assert pipeline.query("SELECT count(*), count(DISTINCT (kafka_partition, n)) FROM shop.events") == [
        (12_000, 12_000)
    ]
    require_sound(pipeline)


def test_any_number_is_read_in_pages_of_bounded_records_and_bytes(
    pipeline: FedPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.open(2, value=INTEGER, dead_letters=MANY)
    texts = ["x"] * 5 + ["x" * 1_000] * 2 + ["x" * 100_000] + ["x"] * 5
    for partition in (0, 1):
        pipeline.send(*(json.dumps({"n": text}) for text in texts), partition=partition)
    pipeline.load_here()
    mend(pipeline)
    pages: list[list[tuple[int, int]]] = []
    stage = replay_job.StoredRecordStager.__call__

    def watched(stager: replay_job.StoredRecordStager, page: Sequence[Row]) -> None:
        pages.append([(row["partition"], row["offset"]) for row in page])
        stage(stager, page)

    monkeypatch.setattr(replay_job.StoredRecordStager, "__call__", watched)
    for module in (dead_letters, reports):
        monkeypatch.setattr(module, "PAGE_RECORDS", 4)
        monkeypatch.setattr(module, "PAGE_BYTES", 1_500)
    exported = pipeline.folder / "exported.jsonl"
    asked(pipeline, "export", "--to", str(exported))
    assert asked(pipeline, "replay", *WHY, "--apply")["outcome"]["replayed"] == 26
    assert [place for page in pages for place in page] == [(p, o) for p in (0, 1) for o in range(13)]
    # Four at most; two of 1,000 bytes are too many for a page, and one of 100,000 is a page of its own.
    assert pages[:5] == [
        [(0, 0), (0, 1), (0, 2), (0, 3)],
        [(0, 4), (0, 5)],
        [(0, 6)],
        [(0, 7)],
        [(0, 8), (0, 9), (0, 10), (0, 11)],
    ]
    lines = [json.loads(line) for line in exported.read_text().splitlines()]
    assert [(line["partition"], line["offset"]) for line in lines] == [(p, o) for p in (0, 1) for o in range(13)]
    assert pipeline.query("SELECT count(*), sum(length(n #>> '{}')) FROM shop.events") == [(26, 2 * (10 + 102_000))]
