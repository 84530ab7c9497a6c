"""Options of a run: what is stored with its batch, and read back."""

from __future__ import annotations

import pytest

from kafka_ingest.protocol.batch import BatchKind, OffsetSpan, Request, RunMode, RunOptions, TimeSpan, run_options_of


def test_a_plain_run_has_empty_parameters() -> None:
    assert RunOptions().to_parameters() == "{}"
    assert run_options_of(Request("d", "r")) == RunOptions()


def test_parameters_are_canonical_json_of_what_differs() -> None:
    options = RunOptions(mode=RunMode.RELOAD, times=TimeSpan(0, 3_600_000), reason="prüfen")
    assert options.to_parameters() == '{"mode":"reload","reason":"prüfen","times":{"end_ms":3600000,"start_ms":0}}'


@pytest.mark.parametrize(
    "options",
    [
        RunOptions(until_ms=1_767_355_200_000),
        RunOptions(limit_offsets=10),
        RunOptions(RunMode.PLAN_ONLY, times=TimeSpan(5)),
        RunOptions(
            RunMode.RELOAD,
            offsets=(OffsetSpan("orders", 0, 3, 9), OffsetSpan("orders", 1, 0)),
            reload_what_is_left=True,
            replace_resolved=True,
        ),
    ],
)
def test_options_are_read_back_as_they_were(options: RunOptions) -> None:
    assert run_options_of(Request("d", "r", parameters=options.to_parameters())) == options


def test_a_span_makes_a_run_a_reload() -> None:
    assert RunOptions().kind is BatchKind.LIVE
    assert RunOptions(until_ms=5).kind is BatchKind.LIVE
    assert RunOptions(RunMode.RELOAD, times=TimeSpan(5)).kind is BatchKind.RELOAD
    assert RunOptions(RunMode.RELOAD, offsets=(OffsetSpan("orders", 0, 0),)).kind is BatchKind.RELOAD
