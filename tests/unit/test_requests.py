from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_ingest.errors import Busy, ConfigError, RequestChanged
from kafka_ingest.protocol.batch import BatchState, Request
from kafka_ingest.protocol.ledger_view import PlanView, require_bound_settings, still_stands
from kafka_ingest.protocol.plan import numbered_request, standing_batch, superseded_batch
from kafka_ingest.settings import IsolationLevel, MetadataColumns, TargetSettings
from tests.builders import (
    EMPTY_VIEW,
    REQUEST,
    batch_settings,
    held,
    offset_range,
    pipeline_settings,
    planned_batch,
    position,
    view_of,
)

OTHER = Request("orders", "manual__1")


def never(_request: Request) -> bool:
    return False


def with_own(state: BatchState) -> PlanView:
    return replace(view_of(position(0, 0)), own=planned_batch(offset_range(0, 0, 10), state=state))


def test_a_committed_batch_answers_its_request_for_ever_even_with_other_settings() -> None:
    assert standing_batch(with_own(BatchState.COMMITTED), REQUEST, "another-hash") is not None


def test_a_planned_batch_answers_only_with_equal_settings_and_protocol() -> None:
    view = with_own(BatchState.PLANNED)
    assert view.own is not None
    assert standing_batch(view, REQUEST, "hash-1") == view.own
    assert standing_batch(view, REQUEST, "another-hash") is None
    older = replace(view, own=replace(view.own, protocol_version=0))
    assert standing_batch(older, REQUEST, "hash-1") is None


@pytest.mark.parametrize("state", [BatchState.SUPERSEDED, BatchState.ROLLED_BACK])
def test_a_superseded_or_rolled_back_batch_is_planned_anew(state: BatchState) -> None:
    assert standing_batch(with_own(state), REQUEST, "hash-1") is None


def test_the_same_request_with_other_parameters_stops() -> None:
    with pytest.raises(RequestChanged):
        standing_batch(with_own(BatchState.COMMITTED), replace(REQUEST, parameters='{"limit": 5}'), "hash-1")


RELOAD = '{"mode":"reload","times":{"end_ms":3600000,"start_ms":0}}'


@pytest.mark.parametrize(
    ("state", "parameters", "clear_number", "number"),
    [
        # Retries of a live run, and of one that was cleared: live runs give 0 as their clear number.
        (BatchState.COMMITTED, "{}", 0, 0),
        (BatchState.PLANNED, "{}", 0, 0),
        # A backfill reprocesses the scheduled run, whether it had loaded its batch or failed before.
        (BatchState.COMMITTED, RELOAD, 1, 1),
        (BatchState.PLANNED, RELOAD, 1, 1),
        (BatchState.SUPERSEDED, RELOAD, 1, 1),
        # A retry of the backfill run whose request was never cleared since.
        (BatchState.PLANNED, RELOAD, 0, 0),
    ],
)
def test_only_a_run_that_a_backfill_reprocesses_gets_a_next_number(
    state: BatchState, parameters: str, clear_number: int, number: int
) -> None:
    asked = replace(REQUEST, parameters=parameters, clear_number=clear_number)
    assert numbered_request(with_own(state), asked).number == number


def test_a_reload_that_was_cleared_before_it_was_loaded_goes_on_with_its_batch() -> None:
    reload = replace(REQUEST, parameters=RELOAD, clear_number=1, number=1)
    view = replace(view_of(position(0, 0)), own=planned_batch(offset_range(0, 0, 10), request=reload))
    cleared = numbered_request(view, replace(reload, number=0, clear_number=2))
    assert standing_batch(view, cleared, "hash-1") == view.own


def test_a_run_supersedes_the_live_batch_that_a_backfill_reprocesses_without_waiting() -> None:
    live = planned_batch(offset_range(0, 0, 10))
    view = held(view_of(position(0, 0)), live, until_seconds=1000)
    assert superseded_batch(view, replace(REQUEST, number=1, parameters=RELOAD), never) == live.batch_id


def test_a_live_holder_makes_others_come_back_later() -> None:
    view = held(view_of(position(0, 0)), planned_batch(offset_range(0, 0, 10)), until_seconds=1)
    with pytest.raises(Busy, match="holds the pipeline") as busy:
        superseded_batch(view, OTHER, never)
    assert "20 of 40 offsets" in busy.value.found


def test_a_holder_whose_hold_has_passed_is_superseded() -> None:
    outstanding = planned_batch(offset_range(0, 0, 10))
    view = held(view_of(position(0, 0)), outstanding, until_seconds=0)
    assert superseded_batch(view, OTHER, never) == outstanding.batch_id


def test_a_holder_whose_run_has_finished_is_superseded_at_once() -> None:
    outstanding = planned_batch(offset_range(0, 0, 10))
    view = held(view_of(position(0, 0)), outstanding, until_seconds=1000)
    assert superseded_batch(view, OTHER, lambda request: request == outstanding.request) == outstanding.batch_id


def test_a_request_supersedes_its_own_outstanding_batch_without_waiting() -> None:
    outstanding = planned_batch(offset_range(0, 0, 10))
    view = held(view_of(position(0, 0)), outstanding, until_seconds=1000)
    assert superseded_batch(view, REQUEST, never) == outstanding.batch_id


def test_a_free_pipeline_supersedes_nothing() -> None:
    assert superseded_batch(EMPTY_VIEW, REQUEST, never) is None


def test_target_and_isolation_level_cannot_be_changed_by_editing_the_file() -> None:
    changed = replace(
        batch_settings(), target=TargetSettings("shop", "orders2"), isolation_level=IsolationLevel.READ_UNCOMMITTED
    )
    with pytest.raises(ConfigError) as stopped:
        require_bound_settings(view_of(position(0, 0)), pipeline_settings(batch=changed))
    assert "shop.orders2" in stopped.value.found
    assert "read_uncommitted" in stopped.value.found


RENAMED = replace(
    batch_settings(), metadata=MetadataColumns(topic="kafka_topic", offset="source_offset", partition="part")
)


def test_columns_that_identify_rows_cannot_be_renamed_by_editing_the_file() -> None:
    with pytest.raises(ConfigError) as stopped:
        require_bound_settings(view_of(position(0, 0)), pipeline_settings(batch=RENAMED))
    assert (
        stopped.value.expected == "metadata_columns.partition: kafka_partition; metadata_columns.offset: kafka_offset"
    )
    assert stopped.value.found == "metadata_columns.partition: part; metadata_columns.offset: source_offset"
    assert stopped.value.next_command == (
        "restore these keys, or let the ledger follow the file: first"
        ' ALTER TABLE "shop"."orders" RENAME COLUMN "kafka_partition" TO "part";'
        ' ALTER TABLE "shop"."orders" RENAME COLUMN "kafka_offset" TO "source_offset";'
        " (never ADD COLUMN: loaded rows are found by it),"
        ' then python -m kafka_ingest change orders change-identity-columns --reason "..."'
    )


def test_with_another_table_its_columns_are_bound_by_the_same_change() -> None:
    moved = replace(RENAMED, target=TargetSettings("mart", "sales"))
    with pytest.raises(ConfigError) as stopped:
        require_bound_settings(view_of(position(0, 0)), pipeline_settings(batch=moved))
    assert "metadata_columns.offset: source_offset" in stopped.value.found
    assert "change-target" in stopped.value.next_command
    assert "change-identity-columns" not in stopped.value.next_command


@pytest.mark.parametrize("name", ["timestamp", "timestamp_type", "batch_id"])
def test_other_metadata_columns_may_have_another_name_at_any_time(name: str) -> None:
    changed = replace(batch_settings(), metadata=MetadataColumns(**{name: "other"}))
    require_bound_settings(view_of(position(0, 0)), pipeline_settings(batch=changed))


def test_a_view_still_stands_when_only_clock_hold_and_claim_have_moved() -> None:
    view = held(view_of(position(0, 0)), planned_batch(offset_range(0, 0, 10)), until_seconds=5)
    assert view.outstanding is not None
    later = replace(view, now=view.now.replace(hour=13), hold=None, outstanding=replace(view.outstanding, claim=7))
    assert still_stands(view, later)
    assert not still_stands(view, replace(view, positions=(position(0, 1),)))
    assert not still_stands(view, replace(view, outstanding=None))
