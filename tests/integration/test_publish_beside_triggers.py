"""What a publish does where triggers and rules of the target meddle, and where only INSERT refuses records."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import pytest

from kafka_ingest.errors import ConfigError, RecordsRefused, TargetMismatch
from kafka_ingest.postgres import refusals
from kafka_ingest.postgres.publisher import PostgresPublisher
from kafka_ingest.protocol.batch import Batch
from tests.builders import offset_range
from tests.contracts.ledger_values import all_rows, claimed, first_plan, load, next_plan, outcome_of, publish, view
from tests.contracts.ledger_worlds import PostgresWorld


@pytest.fixture
def world(database: dict[str, Any]) -> PostgresWorld:
    return PostgresWorld(database)


def staged(world: PostgresWorld, offsets: int = 3) -> Batch:
    batch = claimed(world, first_plan(world, offset_range(0, 0, offsets)))
    world.stage(batch, all_rows(batch))
    return batch


def meddle(world: PostgresWorld, body: str, event: str, *, level: str = "ROW", is_deferred: bool = False) -> None:
    """Makes a trigger named ``meddler``."""
    world.run(f"CREATE FUNCTION shop.meddle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$")
    kind, when = ("CONSTRAINT TRIGGER", "DEFERRABLE INITIALLY DEFERRED ") if is_deferred else ("TRIGGER", "")
    world.run(f"CREATE {kind} meddler {event} ON shop.orders {when}FOR EACH {level} EXECUTE FUNCTION shop.meddle()")


def refused_by(world: PostgresWorld, hook: str, batch: Batch) -> None:
    with pytest.raises(TargetMismatch, match=hook):
        publish(world, batch, outcome_of(batch))
    assert world.rows() == []
    assert [p.committed_offset for p in view(world).positions] == [0, 0]


@pytest.mark.parametrize(
    "body",
    [
        "IF new.kafka_offset = 1 THEN RETURN NULL; END IF; RETURN new;",
        "new.kafka_offset := new.kafka_offset + 100; RETURN new;",
        "new.kafka_offset := 2 - new.kafka_offset / 2; RETURN new;",
        "new.batch_id := gen_random_uuid(); RETURN new;",
        "new.kafka_topic := 'elsewhere'; RETURN new;",
        "new.kafka_partition := 1; RETURN new;",
        "new.kafka_generation := 1; RETURN new;",
        "INSERT INTO shop.elsewhere VALUES (new.*); RETURN NULL;",
    ],
    ids=["drop", "shift offsets", "merge offsets", "batch id", "topic", "partition", "generation", "move"],
)
def test_a_before_trigger_that_drops_moves_or_alters_rows_is_named_before_commit(
    world: PostgresWorld, body: str
) -> None:
    world.run("CREATE TABLE shop.elsewhere (LIKE shop.orders)")
    meddle(world, body, "BEFORE INSERT")
    refused_by(world, r"trigger meddler on shop\.orders", staged(world))


@pytest.mark.parametrize("is_deferred", [False, True], ids=["at once", "at COMMIT"])
@pytest.mark.parametrize(
    "body",
    [
        "DELETE FROM shop.orders WHERE kafka_offset = 1; RETURN NULL;",
        "UPDATE shop.orders SET kafka_offset = 7 WHERE kafka_offset = 1; RETURN NULL;",
        "IF pg_trigger_depth() = 1 THEN INSERT INTO shop.orders VALUES (new.*); END IF; RETURN NULL;",
    ],
    ids=["delete", "alter", "double"],
)
def test_an_after_trigger_that_deletes_alters_or_doubles_rows_is_named_before_commit(
    world: PostgresWorld, body: str, is_deferred: bool
) -> None:
    meddle(world, body, "AFTER INSERT", is_deferred=is_deferred)
    refused_by(world, r"trigger meddler on shop\.orders", staged(world))


def test_a_statement_trigger_that_deletes_rows_is_named_before_commit(world: PostgresWorld) -> None:
    body = "DELETE FROM shop.orders WHERE kafka_offset = 1; RETURN NULL;"
    meddle(world, body, "AFTER INSERT", level="STATEMENT")
    refused_by(world, r"trigger meddler on shop\.orders", staged(world))


@pytest.mark.parametrize(
    "action",
    ["ALSO DELETE FROM shop.orders WHERE kafka_offset = 1", "INSTEAD INSERT INTO shop.elsewhere VALUES (new.*)"],
)
def test_a_rule_that_was_made_after_the_plan_is_named_before_commit(world: PostgresWorld, action: str) -> None:
    batch = staged(world)
    world.run("CREATE TABLE shop.elsewhere (LIKE shop.orders)")
    world.run(f"CREATE RULE odd AS ON INSERT TO shop.orders DO {action}")
    refused_by(world, r"rule odd on shop\.orders", batch)


def test_triggers_that_are_disabled_or_leave_the_identity_alone_stop_nothing(world: PostgresWorld) -> None:
    meddle(world, "RETURN NULL;", "BEFORE INSERT")
    world.run("ALTER TABLE shop.orders DISABLE TRIGGER meddler")
    body = "BEGIN new.payload := 'x'; RETURN new; END"
    world.run(f"CREATE FUNCTION shop.fill() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")
    world.run("CREATE TRIGGER fill BEFORE INSERT ON shop.orders FOR EACH ROW EXECUTE FUNCTION shop.fill()")
    batch = staged(world)
    assert publish(world, batch, outcome_of(batch)) == (1, 3, 0)
    assert world.run("SELECT DISTINCT payload::text FROM shop.orders") == [("\\x78",)]


def test_rows_that_a_trigger_routes_to_inheritance_children_stand_in_the_target(world: PostgresWorld) -> None:
    world.run("CREATE TABLE shop.orders_child () INHERITS (shop.orders)")
    meddle(world, "INSERT INTO shop.orders_child VALUES (new.*); RETURN NULL;", "BEFORE INSERT")
    batch = staged(world)
    assert publish(world, batch, outcome_of(batch)) == (1, 3, 0)
    assert world.run("SELECT count(*) FROM ONLY shop.orders_child") == [(3,)]


@pytest.mark.parametrize("keeper", ["trigger", "rule"])
def test_rows_that_a_reload_cannot_delete_stop_it_before_commit(world: PostgresWorld, keeper: str) -> None:
    before = load(world, first_plan(world, offset_range(0, 0, 3)))
    if keeper == "trigger":
        meddle(world, "IF old.kafka_offset = 1 THEN RETURN NULL; END IF; RETURN old;", "BEFORE DELETE")
    else:
        world.run(
            "CREATE RULE meddler AS ON DELETE TO shop.orders DO INSTEAD UPDATE shop.orders SET payload = 'gone'"
            " WHERE kafka_offset = old.kafka_offset RETURNING old.*"
        )
    again = replace(offset_range(0, 0, 3), committed_before=3, loaded_to=3)
    batch = claimed(world, next_plan(world, again))
    world.stage(batch, all_rows(batch))
    with pytest.raises(TargetMismatch, match=r"orders\[0\] offset [01].*meddler on shop\.orders"):
        publish(world, batch, outcome_of(batch))
    assert {row.batch_id for row in world.rows()} == {before.batch_id}


def test_a_reload_of_a_published_table_without_replica_identity_is_told_the_statement(world: PostgresWorld) -> None:
    load(world, first_plan(world, offset_range(0, 0, 3)))
    world.run("CREATE PUBLICATION feed FOR TABLE shop.orders")
    batch = claimed(world, next_plan(world, replace(offset_range(0, 0, 3), committed_before=3, loaded_to=3)))
    world.stage(batch, all_rows(batch))
    with pytest.raises(TargetMismatch, match="replica identity") as stopped:
        publish(world, batch, outcome_of(batch))
    assert stopped.value.next_command.startswith('ALTER TABLE "shop"."orders" REPLICA IDENTITY FULL;')


def test_a_sequence_that_may_not_be_used_is_told_with_its_grant(world: PostgresWorld) -> None:
    role = f"loader_{uuid.uuid4().hex[:8]}"
    world.run("ALTER TABLE shop.orders ADD COLUMN nr bigserial")
    world.run(f"CREATE ROLE {role} LOGIN PASSWORD 'secret'")
    world.run(f"GRANT ALL ON ALL TABLES IN SCHEMA shop, kafka_ingest TO {role}")
    world.run(f"GRANT USAGE, CREATE ON SCHEMA shop, kafka_ingest, kafka_ingest_staging TO {role}")
    batch = staged(world)
    world.run(f"GRANT ALL ON ALL TABLES IN SCHEMA kafka_ingest_staging TO {role}")
    world.publisher = PostgresPublisher({**world.params, "user": role, "password": "secret"})
    with pytest.raises(ConfigError, match="GRANT USAGE ON SEQUENCE orders_nr_seq TO"):
        publish(world, batch, outcome_of(batch))
    world.run(f"DROP OWNED BY {role}")
    world.run(f"DROP ROLE {role}")


def test_refused_records_are_found_in_a_staging_table_of_many_blocks(world: PostgresWorld) -> None:
    batch = staged(world, 5_000)
    refused = (0, 1, 2_499, 4_998, 4_999)
    world.refuse("not_these", *refused)
    with pytest.raises(RecordsRefused, match="5 refused") as refusal:
        publish(world, batch, outcome_of(batch))
    assert tuple(record.offset for record in refusal.value.records) == refused


def test_more_refused_records_than_can_be_a_few_bad_ones_stop_the_load(
    world: PostgresWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "MOST_REFUSED", 2)
    batch = staged(world)
    world.refuse("not_these", 0, 1, 2)
    with pytest.raises(TargetMismatch, match=r"more than 2 records, the first orders\[0\] offset 0") as stopped:
        publish(world, batch, outcome_of(batch))
    assert not isinstance(stopped.value, RecordsRefused)


def test_a_record_for_which_a_trigger_raises_stops_the_load_and_is_named_without_its_values(
    world: PostgresWorld,
) -> None:
    body = "IF new.kafka_offset = 1 THEN RAISE EXCEPTION 'secret %', new.payload; END IF; RETURN new;"
    meddle(world, body, "BEFORE INSERT")
    batch = staged(world)
    with pytest.raises(TargetMismatch) as stopped:
        publish(world, batch, outcome_of(batch))
    assert stopped.value.found == "orders[0] offset 1: function shop.meddle() raised SQLSTATE P0001"


@pytest.mark.parametrize("code", ["raise_exception", "check_violation"])
def test_a_statement_trigger_that_raises_blames_no_record(world: PostgresWorld, code: str) -> None:
    body = f"RAISE EXCEPTION 'closed for today' USING ERRCODE = '{code}'; RETURN NULL;"
    meddle(world, body, "BEFORE INSERT", level="STATEMENT")
    batch = staged(world)
    with pytest.raises(TargetMismatch) as stopped:
        publish(world, batch, outcome_of(batch))
    assert not isinstance(stopped.value, RecordsRefused)
    assert "offset" not in stopped.value.found


def test_a_row_that_a_unique_constraint_refuses_is_named_and_no_dead_letter(world: PostgresWorld) -> None:
    batch = staged(world)
    world.add_unique_offset("one_row_per_offset")
    with pytest.raises(TargetMismatch, match=r"orders\[0\] offset 0: .*one_row_per_offset") as stopped:
        publish(world, batch, outcome_of(batch))
    assert not isinstance(stopped.value, RecordsRefused)
