"""Whole loads into tables that somebody else made: triggers, rules, columns that only the table fills, partitions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kafka_ingest.errors import ConfigError, TargetMismatch
from kafka_ingest.protocol.batch import OffsetSpan, RunMode, RunOptions
from tests.integration.pipeline_under_test import FedPipeline, PipelineUnderTest, produced
from tests.services import ROLES, ProducerFactory

COLUMNS = {
    "value": {
        "format": "json",
        "columns": [{"name": "id", "type": "bigint"}, {"name": "body", "type": "text"}],
    },
    "key": None,
    "headers": None,
    "metadata_columns": None,
}
METADATA = (
    "kafka_topic text NOT NULL, kafka_generation int NOT NULL, kafka_partition int NOT NULL,"
    " kafka_offset bigint NOT NULL, kafka_timestamp timestamptz, batch_id uuid NOT NULL"
)

Sent = Callable[..., str]


@pytest.fixture
def sent(pipeline: FedPipeline, producer: ProducerFactory) -> Sent:
    """Makes the target ``shop.events (id, body, ...)`` and a topic with records of ids 0, 1, ... and these bodies."""

    def send(*bodies: object, more: str = "", after: str = "", also: tuple[str, ...] = ()) -> str:
        name = pipeline.open(**COLUMNS)
        pipeline.query("CREATE SCHEMA IF NOT EXISTS shop")
        pipeline.query(f"CREATE TABLE shop.events (id bigint, body text, {METADATA}{more}) {after}")
        for statement in also:
            pipeline.query(statement)
        with produced(producer(message_max_bytes=8_000_000)) as sender:
            for number, body in enumerate(bodies):
                sender.produce(name, value=json.dumps({"id": number, "body": body}).encode())
        return name

    return send


def row_trigger(body: str, event: str = "BEFORE INSERT", table: str = "shop.events") -> tuple[str, str]:
    """Statements that make a trigger named ``meddler`` for each row."""
    function = f"CREATE FUNCTION shop.meddle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$"
    return function, f"CREATE TRIGGER meddler {event} ON {table} FOR EACH ROW EXECUTE FUNCTION shop.meddle()"


def counts(summary: dict[str, Any]) -> tuple[int, int]:
    return summary["counts"]["rows"], summary["counts"]["dead_letters"]


def test_a_trigger_that_drops_rows_stops_the_load_without_a_retry(pipeline: PipelineUnderTest, sent: Sent) -> None:
    sent("a", "b", also=row_trigger("IF new.id = 1 THEN RETURN NULL; END IF; RETURN new;"))
    code, _, notes = pipeline.command("run", "events", "--runner", "in-process")
    assert code == 78
    assert "TargetMismatch" in notes
    assert "trigger meddler on shop.events" in notes
    offsets = pipeline.query("SELECT committed_offset FROM kafka_ingest.committed_offset")
    assert (pipeline.rows("id"), offsets) == ([], [(0,)])


@pytest.mark.parametrize(
    ("rule", "named"),
    [
        ("ON INSERT TO shop.events DO INSTEAD NOTHING", 'DROP RULE "odd" ON shop.events;'),
        ("ON INSERT TO shop.events WHERE new.id = 1 DO INSTEAD NOTHING", 'DROP RULE "odd" ON shop.events;'),
        ("ON INSERT TO shop.events DO INSTEAD INSERT INTO shop.other VALUES (new.*)", 'DROP RULE "odd"'),
    ],
    ids=["nothing", "conditional", "elsewhere"],
)
def test_a_rule_that_takes_the_place_of_insert_is_refused_when_it_is_planned(
    pipeline: PipelineUnderTest, sent: Sent, rule: str, named: str
) -> None:
    sent("a", also=("CREATE TABLE shop.other (LIKE shop.events)", f"CREATE RULE odd AS {rule}"))
    code, document, _ = pipeline.command("preflight", "events")
    assert code == 78
    assert named in json.dumps(document).replace('\\"', '"')
    with pytest.raises(TargetMismatch, match=named):
        pipeline.load_here()
    assert pipeline.query("SELECT count(*) FROM kafka_ingest.batch") == [(0,)]


def test_triggers_and_rules_that_leave_rows_in_the_table_do_not_stop_a_load(
    pipeline: PipelineUnderTest, sent: Sent
) -> None:
    log = "CREATE TABLE shop.log (id bigint)"
    rule = "CREATE RULE odd AS ON INSERT TO shop.events DO ALSO INSERT INTO shop.log VALUES (new.id)"
    name = sent("a", "b", also=(log, rule, *row_trigger("new.body := upper(new.body); RETURN new;")))
    assert counts(pipeline.load_here()) == (2, 0)
    assert pipeline.rows("id, body") == [(0, "A"), (1, "B")]
    assert pipeline.query("SELECT id FROM shop.log ORDER BY id") == [(0,), (1,)]
    pipeline.load_here(RunOptions(RunMode.RELOAD, offsets=(OffsetSpan(name, 0, 0, 2),)))
    assert pipeline.rows("id, body") == [(0, "A"), (1, "B")]


def test_a_delete_rule_is_a_weakness_that_preflight_names(pipeline: PipelineUnderTest, sent: Sent) -> None:
    sent("a", also=("CREATE RULE keep AS ON DELETE TO shop.events DO INSTEAD NOTHING",))
    _, document, _ = pipeline.command("preflight", "events")
    assert 'DROP RULE "keep" ON shop.events;' in json.dumps(document).replace('\\"', '"')


@pytest.mark.parametrize(
    "more",
    [
        ", nr bigserial, code text NOT NULL GENERATED ALWAYS AS ('O-' || nr::text) STORED",
        ", nr bigint GENERATED BY DEFAULT AS IDENTITY, CHECK (nr IS NOT NULL)",
        ", nr bigint GENERATED ALWAYS AS IDENTITY, CHECK (nr + id >= 0 AND nr IS NOT NULL)",
        ", nr bigserial, twice bigint GENERATED ALWAYS AS (nr * 2) STORED, CHECK (twice IS NOT NULL)",
        ", nr shop.number DEFAULT nextval('shop.numbers')",
    ],
    ids=["generated from serial", "identity", "a written one, too", "check over generated", "domain"],
)
def test_constraints_over_columns_that_only_the_target_fills_refuse_no_valid_row(
    pipeline: PipelineUnderTest, sent: Sent, more: str
) -> None:
    pipeline.query("CREATE SCHEMA shop")
    pipeline.query("CREATE SEQUENCE shop.numbers")
    pipeline.query("CREATE DOMAIN shop.number AS bigint NOT NULL CHECK (VALUE IS NOT NULL)")
    sent("a", "b", "c", more=more)
    assert counts(pipeline.load_here()) == (3, 0)
    assert pipeline.rows("nr") == [(1,), (2,), (3,)]


def test_checks_that_staging_can_judge_still_make_dead_letters_beside_those_it_cannot(
    pipeline: PipelineUnderTest, sent: Sent
) -> None:
    sent("a", "bad", "c", more=", nr bigserial CHECK (nr > 0), CONSTRAINT good CHECK (body <> 'bad')")
    assert counts(pipeline.load_here()) == (2, 1)
    assert pipeline.dead_letters('"offset", reason') == [(1, "check_violation")]
    assert pipeline.rows("nr") == [(1,), (2,)]


def test_columns_that_a_trigger_fills_are_judged_by_the_target(pipeline: PipelineUnderTest, sent: Sent) -> None:
    fills = "new.body := nullif(upper(new.body), 'BAD'); new.code := new.body; RETURN new;"
    sent(
        "a",
        "bad",
        "c",
        more=", code text NOT NULL DEFAULT 'x', CONSTRAINT upper CHECK (body = upper(body)),"
        " size int NOT NULL GENERATED ALWAYS AS (length(code)) STORED",
        also=row_trigger(fills),
    )
    assert counts(pipeline.load_here()) == (2, 1)
    assert pipeline.rows("body, code, size") == [("A", "A", 1), ("C", "C", 1)]
    assert pipeline.dead_letters('"offset", reason, detail') == [
        (1, "not_null_violation", "column code of the target is NOT NULL")
    ]


@pytest.mark.parametrize(
    ("more", "after", "also", "detail"),
    [
        (
            "",
            "PARTITION BY RANGE (id)",
            (
                "CREATE TABLE shop.events_1 PARTITION OF shop.events FOR VALUES FROM (0) TO (1)",
                "CREATE TABLE shop.events_2 PARTITION OF shop.events FOR VALUES FROM (2) TO (9)",
            ),
            'no partition of relation "events" found for row (SQLSTATE 23514)',
        ),
        (
            "",
            "PARTITION BY RANGE (id)",
            (
                "CREATE TABLE shop.events_1 PARTITION OF shop.events DEFAULT",
                "ALTER TABLE shop.events_1 ADD CONSTRAINT short CHECK (length(body) < 9)",
            ),
            "CHECK short of the target is false",
        ),
        ("", "", ("CREATE INDEX ON shop.events (body)",), "index row requires"),
        (
            ", nr bigserial, CONSTRAINT odd CHECK (nr > 0 AND length(body) < 9)",
            "",
            (),
            "CHECK odd of the target is false",
        ),
    ],
    ids=["no partition", "check of a partition", "index entry", "check over a serial"],
)
def test_a_record_that_only_insert_refuses_is_a_dead_letter_with_its_bytes(
    pipeline: PipelineUnderTest, sent: Sent, more: str, after: str, also: tuple[str, ...], detail: str
) -> None:
    large = "".join(chr(0x100 + number % 7_919) for number in range(20_000))
    sent("a", large, "c", more=more, after=after, also=also)
    assert counts(pipeline.load_here()) == (2, 1)
    assert pipeline.rows("id, body") == [(0, "a"), (2, "c")]
    [(offset, told, value)] = pipeline.dead_letters('"offset", detail, value')
    assert (offset, json.loads(value)) == (1, {"id": 1, "body": large})
    assert detail in told


def test_an_unlogged_partition_is_refused_as_an_unlogged_table_is(pipeline: PipelineUnderTest, sent: Sent) -> None:
    sent(
        "a",
        after="PARTITION BY RANGE (id)",
        also=(
            "CREATE TABLE shop.low PARTITION OF shop.events FOR VALUES FROM (0) TO (9) PARTITION BY RANGE (id)",
            'CREATE UNLOGGED TABLE shop."Low one" PARTITION OF shop.low DEFAULT',
            "CREATE TABLE shop.rest PARTITION OF shop.events DEFAULT",
        ),
    )
    with pytest.raises(TargetMismatch) as refused:
        pipeline.load_here()
    assert refused.value.found.count("SET LOGGED") == 1
    assert 'ALTER TABLE shop."Low one" SET LOGGED;' in refused.value.found
    pipeline.query('ALTER TABLE shop."Low one" SET LOGGED')
    assert counts(pipeline.load_here()) == (1, 0)


def test_a_record_for_which_a_function_raises_is_named_and_can_be_passed_as_the_runbook_says(
    pipeline: PipelineUnderTest, sent: Sent
) -> None:
    function = (
        "CREATE FUNCTION shop.ok(text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS"
        " $$ BEGIN IF $1 = 'bad' THEN RAISE EXCEPTION 'not ok: %%', $1; END IF; RETURN true; END $$"
    )
    name = sent("a", "bad", "c", also=(function, "ALTER TABLE shop.events ADD CHECK (shop.ok(body))"))
    with pytest.raises(TargetMismatch) as stopped:
        pipeline.load_here()
    assert stopped.value.found == f"{name}[0] offset 1: function shop.ok(text) raised SQLSTATE P0001"
    assert counts(pipeline.load_here(RunOptions(RunMode.RELOAD, offsets=(OffsetSpan(name, 0, 0, 1),)))) == (1, 0)
    passed = ["change", "events", "reset", "--to-offset", name, "0", "2", "--supersede", "--reason", "test", "--apply"]
    code, _, notes = pipeline.command(*passed)
    assert code == 0, notes
    assert counts(pipeline.load_here()) == (1, 0)
    assert pipeline.rows("id") == [(0,), (2,)]


def test_look_alikes_in_the_search_path_of_the_database_are_never_used(pipeline: PipelineUnderTest, sent: Sent) -> None:
    look_alikes = ["events", "batch", "pipeline", "committed_offset", "dead_letter", "position_change"]
    name = sent(
        "a",
        "b",
        also=(
            "CREATE SCHEMA other",
            *(f"CREATE TABLE other.{table} (LIKE shop.events)" for table in look_alikes),
            "CREATE FUNCTION other.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT now() $$",
            "CREATE FUNCTION other.hashtext(text) RETURNS integer LANGUAGE sql AS $$ SELECT 1 / 0 $$",
            f"ALTER DATABASE {pipeline.database['dbname']} SET search_path = other, public",
        ),
    )
    assert counts(pipeline.load_here()) == (2, 0)
    assert counts(pipeline.load_here(RunOptions(RunMode.RELOAD, offsets=(OffsetSpan(name, 0, 0, 2),)))) == (2, 0)
    code, _, notes = pipeline.command("change", "events", "reset", "--to", "earliest", "--reason", "why", "--apply")
    assert code == 0, notes
    assert pipeline.rows("id, body") == [(0, "a"), (1, "b")]
    for table in look_alikes:
        assert pipeline.query(f"SELECT count(*) FROM other.{table}") == [(0,)]


@pytest.mark.parametrize("definer", [True, False])
def test_a_trigger_that_writes_where_the_loader_may_not_needs_its_owners_rights(
    pipeline: PipelineUnderTest, sent: Sent, *, definer: bool
) -> None:
    function, trigger = row_trigger("INSERT INTO shop.log VALUES (new.id); RETURN NULL;", "AFTER INSERT")
    kept = ("CREATE TABLE shop.log (id bigint)", f"REVOKE ALL ON shop.log FROM {ROLES['loader']}")
    sent("a", also=(*kept, f"{function} SECURITY DEFINER" if definer else function, trigger))
    if definer:
        assert counts(pipeline.load_here()) == (1, 0)
        assert pipeline.query("SELECT id FROM shop.log") == [(0,)]
        return
    with pytest.raises(ConfigError, match="permission denied for table log"):
        pipeline.load_here()
    assert pipeline.rows("id") == []
