"""What a publish under way keeps others from: nothing outside its own pipeline, and no reader at all."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import psycopg2
import pytest

from kafka_ingest.protocol.batch import Batch, BatchState
from kafka_ingest.protocol.position import OffsetRange, Position
from kafka_ingest.protocol.staging import StageProgress
from tests.builders import offset_range, position
from tests.contracts.ledger_values import LATER, all_rows, claimed, load, new_plan, outcome_of, publish, view
from tests.contracts.ledger_worlds import PostgresWorld
from tests.integration.test_ledger_concurrency import write_all

TWO_PIPELINES = ("orders", "returns")


@pytest.fixture
def world(database: dict[str, Any]) -> PostgresWorld:
    """Its ledger and its publisher wait 0.2 s for a lock: who has to wait for another fails."""
    return PostgresWorld(database)


def of_topic(planned: OffsetRange, topic: str) -> OffsetRange:
    return replace(planned, topic=topic)


def first_batch(world: PostgresWorld, pipeline: str) -> Batch:
    """The first plan of a pipeline that loads the topic of its name into the one table."""
    begins: tuple[Position, ...] = (position(0, 0, topic=pipeline),)
    plan = new_plan(of_topic(offset_range(0, 0, 3), pipeline), begins=begins)
    return world.ledger.record_plan(replace(plan, pipeline=pipeline), view(world, pipeline=pipeline))


def staged_batch(world: PostgresWorld, pipeline: str) -> Batch:
    batch = claimed(world, first_batch(world, pipeline))
    world.stage(batch, all_rows(batch))
    return batch


def test_readers_of_the_target_see_the_rows_of_before_and_wait_for_nothing(world: PostgresWorld) -> None:
    load(world, first_batch(world, "orders"))
    plan = new_plan(offset_range(0, 3, 7), request=LATER)
    batch = claimed(world, world.ledger.record_plan(plan, view(world, LATER)))
    world.stage(batch, all_rows(batch))
    with (
        world.publisher.begin(batch) as publication,
        closing(psycopg2.connect(**world.params)) as reader,
        reader.cursor() as cursor,
    ):
        write_all(publication, batch)
        # Any lock that a reader would wait for is refused at once.
        cursor.execute("SET lock_timeout = '1ms'")
        cursor.execute("SELECT count(*) FROM shop.orders")
        assert cursor.fetchall() == [(3,)]
        cursor.execute("SELECT kafka_offset FROM shop.orders WHERE kafka_offset = 2 FOR KEY SHARE")
        assert cursor.fetchall() == [(2,)]
        cursor.execute("SELECT committed_offset FROM kafka_ingest.committed_offset")
        assert cursor.fetchall() == [(3,)]
        reader.rollback()
        publication.commit()
    assert len(world.rows()) == 7


def test_two_pipelines_publish_into_one_table_at_the_same_time(world: PostgresWorld) -> None:
    batches = [staged_batch(world, pipeline) for pipeline in TWO_PIPELINES]
    with world.publisher.begin(batches[0]) as first, world.publisher.begin(batches[1]) as second:
        write_all(first, batches[0])
        write_all(second, batches[1])
        second.commit()
        first.commit()
    found = [(row.topic, row.offset, row.batch_id) for row in world.rows()]
    assert found == [(batch.pipeline, offset, batch.batch_id) for batch in batches for offset in range(3)]
    assert [world.ledger.violations(pipeline) for pipeline in TWO_PIPELINES] == [[], []]


def test_a_publish_keeps_no_other_pipeline_from_planning_loading_and_publishing(world: PostgresWorld) -> None:
    batch = staged_batch(world, "orders")
    with world.publisher.begin(batch) as publication:
        write_all(publication, batch)
        other = staged_batch(world, "returns")
        standing = world.ledger.heartbeat(
            other.batch_id, 1, step="stage", progress=StageProgress(3, 3), hold_seconds=60
        )
        assert standing.state is BatchState.PLANNED
        publish(world, other, outcome_of(other))
        world.ledger.mark_announced([other.batch_id], other.request)
        assert world.ledger.violations("returns") == []
        publication.commit()
    assert [world.ledger.batch(b.batch_id).state for b in (batch, other)] == [BatchState.COMMITTED] * 2  # type: ignore[union-attr]
