"""A replay is killed, loses its answer, or meets others: each record is there once, as a row or as a dead letter."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg2
import pytest

from tests.crash.cut_runs import proxy_for, through
from tests.crash.cutting_proxy import Session, lose_answer, lose_request
from tests.crash.instructions import Instructions
from tests.crash.pipeline_at_risk import SECTIONS, DriverProcess, PipelineAtRisk
from tests.crash.process_tree import child, is_running
from tests.crash.reloads import WHOLE
from tests.crash.stopped_runs import stopped
from tests.deadlines import until

APPLICATION = "kafka_ingest dead letters"
RETRY_LATER, STOP_AND_CALL = 75, 78
#: Texts above eight characters do not fit: nine records of each partition; three more are malformed.
NARROW: dict[str, Any] = {
    **SECTIONS,
    "value": {
        "format": "json",
        "columns": [{"name": "n", "type": "bigint", "required": True}, {"name": "text", "type": "varchar(8)"}],
    },
    "limit": {"offsets_per_run": 3 * 29},
}
TOO_LONG, MALFORMED = 27, 9


@pytest.fixture
def mended(pipeline: PipelineAtRisk) -> PipelineAtRisk:
    """Everything is loaded, and the file and the table that had made dead letters are mended."""
    pipeline.files.write(pipeline.topic.name, **NARROW)
    pipeline.run("before")
    assert unresolved(pipeline) == TOO_LONG + MALFORMED
    pipeline.files.write(pipeline.topic.name, **SECTIONS)
    pipeline.files.query(f"ALTER TABLE {pipeline.files.table} ALTER COLUMN text TYPE text")
    return pipeline


def unresolved(pipeline: PipelineAtRisk) -> int:
    [(number,)] = pipeline.files.query("SELECT count(*) FROM kafka_ingest.dead_letter WHERE resolved_at IS NULL")
    return int(number)


def asked(pipeline: PipelineAtRisk, action: str = "replay", request_id: str = "r1") -> tuple[str, ...]:
    return ("dead-letters", action, pipeline.name, "--reason", "a crash test", "--request-id", request_id, "--apply")


def started(pipeline: PipelineAtRisk, event: str, *arguments: str) -> DriverProcess:
    return pipeline.start_module("killed_command", event, *arguments)


def done(pipeline: PipelineAtRisk, *arguments: str) -> str:
    again = pipeline.start_command(*arguments)
    assert again.end() == 0, again.output
    return again.output


KILLED = [
    pytest.param("replay", "dead_letters.lock:after", False, marks=pytest.mark.slow),
    pytest.param("replay", "dead_letters.choose:after", False, marks=pytest.mark.slow),
    ("replay", "dead_letters.stage:after", False),
    ("replay", "dead_letters.insert_rows:after", False),
    ("replay", "dead_letters.resolve:after", False),
    pytest.param("replay", "dead_letters.record:after", False, marks=pytest.mark.slow),
    ("replay", "dead_letters.commit:before", False),
    ("replay", "dead_letters.commit:after", True),
    pytest.param("discard", "dead_letters.discard:after", False, marks=pytest.mark.slow),
    pytest.param("discard", "dead_letters.commit:before", False, marks=pytest.mark.slow),
    pytest.param("discard", "dead_letters.commit:after", True, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("action", "event", "is_made"), KILLED)
def test_a_request_that_is_killed_is_made_once_when_it_is_asked_for_again(
    mended: PipelineAtRisk, action: str, event: str, is_made: bool
) -> None:
    left = MALFORMED if action == "replay" else 0
    killed = started(mended, event, *asked(mended, action))
    assert killed.end() == -signal.SIGKILL, f"{event} was not reached\n{killed.output}"
    assert unresolved(mended) == (left if is_made else TOO_LONG + MALFORMED)
    mended.require_every_record_once()
    assert ("was done before" in done(mended, *asked(mended, action))) == is_made
    assert unresolved(mended) == left
    mended.require_every_record_once()
    assert mended.files.query("SELECT count(*) FROM kafka_ingest.dead_letter_request") == [(1,)]


@pytest.mark.parametrize("on_commit", [lose_request, lose_answer], ids=["COMMIT was lost", "its answer was lost"])
def test_a_replay_whose_commit_is_in_doubt_is_settled_by_the_same_request(
    mended: PipelineAtRisk, on_commit: Callable[[Session, bytes], None]
) -> None:
    with proxy_for(mended, on_commit, APPLICATION) as proxy:
        cut = mended.start_command(*asked(mended), environment=through(proxy, mended))
        assert cut.end() == RETRY_LATER, cut.output
        assert proxy.saw_commit.is_set()
    assert "ask again with the request id r1" in cut.output
    mended.require_every_record_once()
    assert ("was done before" in done(mended, *asked(mended))) == (on_commit is lose_answer)
    assert unresolved(mended) == MALFORMED
    mended.require_every_record_once()


def test_a_replay_whose_command_is_killed_ends_with_it(mended: PipelineAtRisk) -> None:
    with closing(psycopg2.connect(**mended.files.database)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT FROM kafka_ingest.pipeline FOR UPDATE")  # the process waits for it
        command = mended.start_command(*asked(mended))
        until(lambda: mended.waiting_for_a_lock(APPLICATION), "the process of the replay waits")
        process = child(command.process.pid, "replay_dead_letters")
        assert process is not None
        command.process.kill()
        until(lambda: not is_running(process), "the process of the replay has ended")
    assert unresolved(mended) == TOO_LONG + MALFORMED
    done(mended, *asked(mended))
    mended.require_every_record_once()


def test_of_two_replays_at_once_the_second_waits_and_finds_nothing_left(mended: PipelineAtRisk) -> None:
    first = started(mended, "stop:dead_letters.insert_rows:after", *asked(mended, request_id="first"))
    first.until_stopped()
    second = mended.start_command(*asked(mended, request_id="second"))
    until(lambda: mended.waiting_for_a_lock(APPLICATION), "the second waits for the first")
    first.wake()
    assert (first.end(), second.end()) == (0, 0), first.output + second.output
    replayed = "SELECT replayed FROM kafka_ingest.dead_letter_request ORDER BY request_number"
    assert mended.files.query(replayed) == [(TOO_LONG,), (0,)]
    mended.require_every_record_once()


def test_a_run_beside_a_replay_waits_until_that_has_ended(mended: PipelineAtRisk) -> None:
    replay = started(mended, "stop:dead_letters.resolve:after", *asked(mended))
    replay.until_stopped()
    reload = Instructions(mended.name, "reload", WHOLE.parameters(mended.topic.name))
    run = mended.start(reload)
    until(lambda: mended.waiting_for_a_lock("kafka_ingest ledger"), "the plan waits for the replay")
    replay.wake()
    assert (replay.end(), run.end()) == (0, 0), replay.output + run.output
    assert unresolved(mended) == MALFORMED
    mended.require_every_record_once()


def test_a_replay_beside_a_reload_of_the_same_span_is_refused_until_that_is_published(mended: PipelineAtRisk) -> None:
    reload = stopped(mended, "load.publication.replace:after", parameters=WHOLE.parameters(mended.topic.name))
    refused = mended.start_command(*asked(mended))
    assert refused.end() == STOP_AND_CALL, refused.output
    assert "BatchOutstanding" in refused.output
    reload.wake()
    assert reload.end() == 0, reload.output
    done(mended, *asked(mended))
    # The reload has read the mended records; what it found malformed still is.
    assert mended.files.query("SELECT replayed FROM kafka_ingest.dead_letter_request") == [(0,)]
    assert unresolved(mended) == MALFORMED
    mended.require_every_record_once()


def test_a_reload_after_a_replay_reads_its_records_like_any_other(mended: PipelineAtRisk) -> None:
    done(mended, *asked(mended))
    killed = mended.start(
        Instructions(
            mended.name,
            "reload",
            WHOLE.parameters(mended.topic.name),
            stop_at="load.publication.insert_rows:after",
        )
    )
    assert killed.end() == -signal.SIGKILL, killed.output
    mended.require_every_record_once()
    mended.run("reload", WHOLE.parameters(mended.topic.name))
    assert mended.files.query("SELECT count(*) FROM kafka_ingest.dead_letter WHERE request_id IS NOT NULL") == [(0,)]
    mended.require_every_record_once()
