"""What the job says: progress, outcome, one result a task, and never a secret."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

from kafka_ingest.errors import OffsetsExpired
from kafka_ingest.protocol.batch import LoadPhases, TaskSeconds
from kafka_ingest.protocol.load import LoadProgress
from kafka_ingest.secrets import scrubbed, secret_values
from kafka_ingest.spark.submission import read_outcome, read_phases, write_batch, write_error
from spark_jobs.load_job import progress_line
from spark_jobs.process import ScrubbedFormatter

SECRET = "p\"a\\s;s@w/o%r$d x'é"


def test_progress_is_one_readable_line() -> None:
    progress = LoadProgress(
        "stage", records=118_532, offsets=120_000, total_offsets=300_000, records_per_second=61_000.4
    )
    assert progress_line(progress) == ("staging: 118,532 records, 61,000 a second; 120,000 of 300,000 offsets (40%)")


def test_progress_without_records_says_so_instead_of_a_rate() -> None:
    progress = LoadProgress("stage", records=0, offsets=0, total_offsets=300_000, records_per_second=0.0)
    assert progress_line(progress) == "staging: no records yet of 300,000 offsets"


def test_publishing_tells_what_is_published() -> None:
    progress = LoadProgress("publish", records=9, offsets=10, total_offsets=300_000, records_per_second=1.0)
    assert progress_line(progress) == "publishing: 9 records of 300,000 offsets, in one transaction"


def test_an_outcome_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "outcome.json"
    assert read_outcome(path) is None
    write_batch(path, {"batch_id": "b", "counts": {"rows": 3}})
    assert read_outcome(path) == {"batch_id": "b", "counts": {"rows": 3}}
    assert [p.name for p in tmp_path.iterdir()] == ["outcome.json"]


def test_where_the_time_went_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "outcome.json"
    assert read_phases(path) is None
    write_batch(path, {"batch_id": "b"})
    assert read_phases(path) is None
    phases = LoadPhases(session=3.1, stage=12.0, publish=2.2, tasks=TaskSeconds(read=5.5, decode=8.0, copy=9.25))
    write_batch(path, {"batch_id": "b"}, phases)
    assert read_phases(path) == phases
    assert read_outcome(path) == {"batch_id": "b"}


def test_the_seconds_of_tasks_add_up_part_by_part() -> None:
    total = TaskSeconds(read=1.0, decode=2.0, copy=3.0) + TaskSeconds(read=0.5, decode=0.25, copy=4.0)
    assert total == TaskSeconds(read=1.5, decode=2.25, copy=7.0)


def test_a_line_says_where_the_time_went() -> None:
    phases = LoadPhases(session=3.14, stage=12.0, publish=2.2, tasks=TaskSeconds(read=5.5, decode=8.0, copy=9.3))
    assert str(phases) == ("session 3.1 s, staging 12.0 s (read 5.5, decode 8.0, copy 9.3 task-seconds), publish 2.2 s")


def test_the_jobs_error_comes_back_in_its_class(tmp_path: Path) -> None:
    path = tmp_path / "outcome.json"
    error = OffsetsExpired("gone", expected="0", found="5", next_command="call", pipeline="orders", batch_id="b")
    write_error(path, error)
    with pytest.raises(OffsetsExpired) as caught:
        read_outcome(path)
    assert caught.value.to_record() == error.to_record()


@pytest.mark.parametrize(
    "shown",
    [
        SECRET,
        repr(SECRET),
        json.dumps({"sasl.password": SECRET}),
        f"postgresql://u:{quote(SECRET, safe='')}@h/db",
        f"password='{SECRET.replace(chr(92), chr(92) * 2).replace(chr(39), chr(92) + chr(39))}'",
    ],
)
def test_a_secret_is_hidden_in_every_spelling(shown: str) -> None:
    text = scrubbed(f"before {shown} after", [SECRET])
    assert "***" in text
    for part in ("s;s@w", "s%3Bs", "o%r", "o%25r"):
        assert part not in text


def test_secrets_are_found_by_the_names_of_their_settings() -> None:
    tokens = {"sasl.oauthbearer.client.secret": "3", "sasl.oauthbearer.token.endpoint.url": "https://issuer/token"}
    kafka = {"bootstrap.servers": "b", "sasl.password": "1", "ssl.key.pem": "2", **tokens}
    postgres = {"user": "u", "password": "4", "sslpassword": "5", "passfile": "6", "host": "h"}
    assert sorted(secret_values(kafka, postgres)) == ["1", "2", "3", "4", "5"]


def test_a_private_key_is_hidden_in_every_form_whole_or_line_by_line() -> None:
    lines = ["MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSj/gEAAoIBAQC7VJTUt9Us8cKj", "k+shorterlast/line=="]
    body = "\n".join(lines)
    key = f"-----BEGIN EC PRIVATE KEY-----\n{body}\n-----END EC PRIVATE KEY-----\n"
    secrets = secret_values({"ssl.certificate.pem": f"-----BEGIN CERTIFICATE-----\n{'A' * 64}\n{key}"})
    shown = [
        key,
        key.strip(),
        json.dumps(key),
        repr({"k": key}),
        quote(key),
        quote(key, safe=""),
        *lines,
        f"  {lines[1]}\r",
    ]
    for form in shown:
        hidden = scrubbed(f"before {form} after", secrets)
        assert "***" in hidden, form
        assert not any(part in hidden for part in ("MIIEvQ", "k+short", "k%2Bshort", "line==", "line%3D")), hidden


def test_a_certificate_is_no_secret() -> None:
    assert secret_values({"ssl.ca.pem": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"}) == []


def test_traces_in_the_log_are_scrubbed() -> None:
    formatter = ScrubbedFormatter("%(message)s", [SECRET])
    try:
        raise ValueError(SECRET)
    except ValueError:
        record = logging.LogRecord("n", logging.ERROR, "f", 1, "it broke", None, sys.exc_info())
    text = formatter.format(record)
    assert "ValueError: ***" in text
    assert SECRET not in text
