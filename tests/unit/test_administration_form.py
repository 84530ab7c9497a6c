"""The administration form: every kind as a request, and every fault of a form at once."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_ingest.errors import ConfigError
from kafka_ingest.forms.change import (
    DEFAULTS,
    LABELS,
    AdministrationKind,
    ChangeOrder,
    Order,
    PreflightRequest,
    RollBackOrder,
    kinds_of,
    read_order,
)
from kafka_ingest.protocol.change_requests import (
    AcceptCluster,
    AcceptLoss,
    AcceptRecreation,
    AcceptSameLog,
    Change,
    ChangeIdentityColumns,
    ChangeIsolationLevel,
    ChangeRequest,
    ChangeTarget,
    LogPlace,
    ReadTopicAgain,
    RenamePipeline,
    ResetBy,
    ResetToOffsets,
    ResetToPlace,
    ResetToTime,
    RetireTopic,
    Selection,
    SkipLag,
)
from kafka_ingest.protocol.position import TopicPartition
from kafka_ingest.protocol.roll_back import RollBackRequest
from kafka_ingest.settings import PartitionOffset

ONLY = Selection(("payments",), (TopicPartition("orders", 3),))
ONLY_TEXT = "orders 3\npayments\n"


def order(**form: Any) -> Order:
    return read_order(
        {"pipeline": "orders", **form}, zone="Europe/Berlin", who="ada", request_id="manual__2026-01-02T12:00:00"
    )


def faults(**form: Any) -> list[str]:
    with pytest.raises(ConfigError) as stop:
        order(**form)
    return stop.value.found.splitlines()


def test_an_empty_form_is_a_preflight_that_starts_no_job() -> None:
    assert order() == PreflightRequest("orders", submit_job=False)
    assert order(submit_job=True) == PreflightRequest("orders", submit_job=True)


@pytest.mark.parametrize(
    ("form", "change"),
    [
        ({"kind": "reset", "reset_to": "earliest"}, ResetToPlace(LogPlace.EARLIEST)),
        ({"kind": "reset", "reset_to": "latest", "only": ONLY_TEXT}, ResetToPlace(LogPlace.LATEST, ONLY)),
        # Midnight in Berlin is 23:00 UTC of the day before: 2025-12-31T23:00:00Z.
        ({"kind": "reset", "reset_to": "time", "time": "2026-01-01T00:00:00"}, ResetToTime(1_767_222_000_000)),
        (
            {"kind": "reset", "reset_to": "time", "time": "2026-01-01T00:00:00Z", "only": ONLY_TEXT},
            ResetToTime(1_767_225_600_000, ONLY),
        ),
        (
            {"kind": "reset", "reset_to": "offsets", "offsets": "orders 1 20\n\norders 0 9223372036854775807"},
            ResetToOffsets((PartitionOffset("orders", 0, 9223372036854775807), PartitionOffset("orders", 1, 20))),
        ),
        ({"kind": "reset", "reset_to": "by", "by_offsets": -500}, ResetBy(-500)),
        ({"kind": "skip-lag", "keep_offsets": 0}, SkipLag(0)),
        ({"kind": "skip-lag", "keep_offsets": 1000, "only": "payments"}, SkipLag(1000, Selection(("payments",)))),
        ({"kind": "accept-loss"}, AcceptLoss(0)),
        ({"kind": "accept-loss", "margin_offsets": 100, "only": ONLY_TEXT}, AcceptLoss(100, ONLY)),
        ({"kind": "accept-recreation"}, AcceptRecreation((), LogPlace.EARLIEST)),
        (
            {"kind": "accept-recreation", "only": "orders", "begin": "latest"},
            AcceptRecreation(("orders",), LogPlace.LATEST),
        ),
        ({"kind": "accept-cluster", "begin": "latest"}, AcceptCluster(LogPlace.LATEST)),
        ({"kind": "accept-same-log"}, AcceptSameLog()),
        ({"kind": "rename", "former_name": "shop_orders"}, RenamePipeline("shop_orders")),
        ({"kind": "retire-topic", "only": "payments"}, RetireTopic("payments")),
        ({"kind": "read-topic-again", "only": "payments"}, ReadTopicAgain("payments")),
        ({"kind": "change-target"}, ChangeTarget()),
        ({"kind": "change-identity-columns"}, ChangeIdentityColumns()),
        ({"kind": "change-isolation-level"}, ChangeIsolationLevel()),
    ],
)
def test_each_kind_is_the_change_that_the_command_line_makes(form: dict[str, Any], change: Change) -> None:
    assert order(**form, reason=" agreed with the shop ") == ChangeOrder(
        ChangeRequest("orders", "manual__2026-01-02T12:00:00", change, "ada", "agreed with the shop"), apply=False
    )


def test_a_change_is_made_only_where_apply_is_ticked() -> None:
    made = order(kind="accept-same-log", reason="moved", apply=True, supersede=True)
    assert isinstance(made, ChangeOrder)
    assert (made.apply, made.request.supersede) == (True, True)


def test_a_roll_back_names_how_many_batches() -> None:
    assert order(kind="roll-back", batches=2, reason="wrong values", apply=True, allow_compacted=True) == RollBackOrder(
        RollBackRequest(
            request_id="manual__2026-01-02T12:00:00",
            pipeline="orders",
            batches=2,
            who="ada",
            why="wrong values",
            allow_compacted=True,
        ),
        apply=True,
    )


@pytest.mark.parametrize("kind", [kind for kind in AdministrationKind if kind is not AdministrationKind.PREFLIGHT])
def test_every_change_needs_a_reason_even_to_show_it(kind: AdministrationKind) -> None:
    assert f"Reason: expected a value: {kind} needs it; found nothing" in faults(kind=kind.value, reason="  ")


def test_every_fault_is_listed_at_once() -> None:
    wrong = {"only": "orders x", "apply": "yes", "batches": 3, "colour": "red", "time": "yesterday"}
    unknown, *found = faults(pipeline="", kind="reset", reset_to="time", **wrong)
    assert unknown.startswith("colour: expected one of the keys pipeline, kind, apply, ")
    time = "a time with its offset from UTC, or in the time zone Europe/Berlin, at most milliseconds, from 1970 on"
    assert found == [
        "Apply: expected true or false; found 'yes'",
        "Only: expected topic, or topic and partition (line 1); found 'orders x'",
        f"Time: expected {time}, such as 2026-01-01T00:00:00Z; found 'yesterday'",
        "Pipeline: expected the name of a pipeline; found nothing",
        "Reason: expected a value: reset needs it; found nothing",
        "Batches: expected nothing for reset to time; found a value",
    ]


@pytest.mark.parametrize(
    ("form", "fault"),
    [
        ({"kind": "reset"}, "Reset to: expected a value: reset needs it; found nothing"),
        ({"kind": "reset", "reset_to": "time"}, "Time: expected a value: reset needs it; found nothing"),
        ({"kind": "reset", "reset_to": "offsets"}, "Offsets: expected a value: reset needs it; found nothing"),
        ({"kind": "reset", "reset_to": "by"}, "By (offsets): expected a value: reset needs it; found nothing"),
        (
            {"kind": "reset", "reset_to": "earliest", "by_offsets": 1},
            "By (offsets): expected nothing for reset to earliest; found a value",
        ),
        (
            {"kind": "reset", "reset_to": "offsets", "offsets": "orders 0 1", "only": "orders"},
            "Only: expected nothing for reset to offsets; found a value",
        ),
        (
            {"kind": "reset", "reset_to": "offsets", "offsets": "orders 0 1\norders 0 2"},
            "Offsets: expected each partition once, not orders 0 twice; found 'orders 0 1\\norders 0 2'",
        ),
        (
            {"kind": "reset", "reset_to": "offsets", "offsets": "orders 0 9223372036854775808"},
            "Offsets: expected topic, partition and offset, the next one to read (line 1); found",
        ),
        (
            {"kind": "skip-lag", "keep_offsets": -1},
            "Keep (offsets): expected a whole number, at least 0; found -1",
        ),
        (
            {"kind": "skip-lag", "keep_offsets": 10**30},
            "Keep (offsets): expected a whole number, at least 0, at most 9223372036854775807; found 1" + 30 * "0",
        ),
        ({"kind": "roll-back", "batches": True}, "Batches: expected a whole number, at least 1; found True"),
        ({"kind": "accept-cluster", "begin": "middle"}, "Begin at: expected one of earliest, latest; found 'middle'"),
        ({"kind": "accept-recreation", "only": "orders 0"}, "Only: expected topics: all partitions"),
        ({"kind": "retire-topic", "only": "orders\npayments"}, "Only: expected one topic; found more, or partitions"),
        ({"kind": "read-topic-again", "only": "orders 0"}, "Only: expected one topic; found more, or partitions"),
        ({"kind": "preflight", "apply": True}, "Apply: expected nothing for preflight; found a value"),
    ],
)
def test_what_does_not_fit_the_kind_is_a_fault(form: dict[str, Any], fault: str) -> None:
    reason = {} if form["kind"] == "preflight" else {"reason": "because"}
    [found] = faults(**form, **reason)
    assert found.startswith(fault)


def test_every_key_has_a_label() -> None:
    assert list(LABELS) == list(DEFAULTS)


def test_the_kinds_of_a_key_are_those_that_may_have_it() -> None:
    assert [kind.value for kind in kinds_of("begin")] == ["accept-recreation", "accept-cluster"]
    assert [kind.value for kind in kinds_of("by_offsets")] == ["reset"]
    assert {kind.value for kind in kinds_of("only")} >= {"reset", "skip-lag", "accept-loss", "retire-topic"}
    assert [key for key in DEFAULTS if not kinds_of(key)] == ["pipeline", "kind", "apply", "reason", "supersede"]


def test_an_unknown_kind_is_the_only_fault_of_its_kind() -> None:
    [found] = faults(kind="drop", batches=1)
    assert found.startswith("What to do: expected one of preflight, reset, skip-lag,")
