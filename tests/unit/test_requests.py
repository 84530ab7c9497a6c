from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_ingest.core.batch import BatchState, Request
from kafka_ingest.core.errors import Busy, ConfigError, RequestChanged
from kafka_ingest.core.ledger_view import PlanView
from kafka_ingest.core.requests import require_bound_settings, standing_batch, superseded_batch
from kafka_ingest.core.settings import IsolationLevel, TargetSettings
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


def test_a_view_still_stands_when_only_clock_hold_and_claim_have_moved() -> None:
    view = held(view_of(position(0, 0)), planned_batch(offset_range(0, 0, 10)), until_seconds=5)
    assert view.outstanding is not None
    later = replace(view, now=view.now.replace(hour=13), hold=None, outstanding=replace(view.outstanding, claim=7))
    assert view.still_stands(later)
    assert not view.still_stands(replace(view, positions=(position(0, 1),)))
    assert not view.still_stands(replace(view, outstanding=None))
