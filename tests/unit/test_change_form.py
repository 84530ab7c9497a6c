"""The form of a change: every kind is the same in Airflow and on the command line; every fault is found at once."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_ingest.cli.change import change_of
from kafka_ingest.errors import ConfigError
from kafka_ingest.forms.change import (
    FIELDS,
    KINDS,
    LOOKS,
    kinds_of,
)
from kafka_ingest.forms.order import ListRequest, Order, PreflightRequest, read_order
from kafka_ingest.protocol.dead_letters import (
    DeadLetterAction,
    DeadLetterChoice,
    DeadLetterPlace,
    DeadLetterRequest,
)
from kafka_ingest.protocol.decisions import (
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
from tests.command_line import parsed

ONLY = Selection(("payments",), (TopicPartition("orders", 3),))
ONLY_TEXT = "orders 3\npayments\n"
ONLY_WORDS = "--only orders 3 --only payments"


def order(**form: Any) -> Order:
    return read_order(
        {"pipeline": "orders", **form}, zone="Europe/Berlin", who="ada", request_id="manual__2026-01-02T12:00:00"
    )


def faults(**form: Any) -> list[str]:
    with pytest.raises(ConfigError) as stop:
        order(**form)
    return stop.value.found.splitlines()


def test_an_empty_form_is_a_preflight_that_starts_no_job() -> None:
    assert order() == Order(PreflightRequest("orders", submit_job=False), apply=False)
    assert order(submit_job=True).request == PreflightRequest("orders", submit_job=True)


@pytest.mark.parametrize(
    ("form", "arguments", "change"),
    [
        ({"reset_to": "earliest"}, "reset --to earliest", ResetToPlace(LogPlace.EARLIEST)),
        (
            {"reset_to": "latest", "only": ONLY_TEXT},
            f"reset --to latest {ONLY_WORDS}",
            ResetToPlace(LogPlace.LATEST, ONLY),
        ),
        # Midnight in Berlin is 23:00 UTC of the day before: 2025-12-31T23:00:00Z.
        (
            {"reset_to": "time", "time": "2026-01-01T00:00:00"},
            "reset --to-time 2026-01-01T00:00:00",
            ResetToTime(1_767_222_000_000),
        ),
        (
            {"reset_to": "time", "time": "2026-01-01T00:00:00Z", "only": ONLY_TEXT},
            f"reset --to-time 2026-01-01T00:00:00Z {ONLY_WORDS}",
            ResetToTime(1_767_225_600_000, ONLY),
        ),
        (
            {"reset_to": "offsets", "offsets": "orders 1 20\n\norders 0 9223372036854775807"},
            "reset --to-offset orders 1 20 --to-offset orders 0 9223372036854775807",
            ResetToOffsets((PartitionOffset("orders", 0, 9223372036854775807), PartitionOffset("orders", 1, 20))),
        ),
        ({"reset_to": "by", "by_offsets": -500}, "reset --by -500", ResetBy(-500)),
        ({"reset_to": "by", "by_offsets": 0}, "reset --by 0", ResetBy(0)),
        (
            {"reset_to": "by", "by_offsets": 100, "only": "orders\nreturns"},
            "reset --by 100 --only returns --only orders",
            ResetBy(100, Selection(("orders", "returns"))),
        ),
        ({"keep_offsets": 0}, "skip-lag --keep 0", SkipLag(0)),
        (
            {"keep_offsets": 1000, "only": "payments"},
            "skip-lag --keep 1000 --only payments",
            SkipLag(1000, Selection(("payments",))),
        ),
        ({}, "accept-loss", AcceptLoss(0)),
        (
            {"margin_offsets": 100, "only": ONLY_TEXT},
            f"accept-loss --margin 100 {ONLY_WORDS}",
            AcceptLoss(100, ONLY),
        ),
        ({}, "accept-recreation", AcceptRecreation((), LogPlace.EARLIEST)),
        (
            {"only": "orders\nreturns", "begin": "latest"},
            "accept-recreation orders returns --begin latest",
            AcceptRecreation(("orders", "returns"), LogPlace.LATEST),
        ),
        ({}, "accept-cluster", AcceptCluster(LogPlace.EARLIEST)),
        ({"begin": "latest"}, "accept-cluster --begin latest", AcceptCluster(LogPlace.LATEST)),
        ({}, "accept-same-log", AcceptSameLog()),
        ({"former_name": "shop_orders"}, "rename --from shop_orders", RenamePipeline("shop_orders")),
        ({"only": "payments"}, "retire-topic payments", RetireTopic("payments")),
        ({"only": "payments"}, "read-topic-again payments", ReadTopicAgain("payments")),
        ({}, "change-target", ChangeTarget()),
        ({}, "change-identity-columns", ChangeIdentityColumns()),
        ({}, "change-isolation-level", ChangeIsolationLevel()),
    ],
)
def test_each_kind_is_the_same_change_in_airflow_and_on_the_command_line(
    form: dict[str, Any], arguments: str, change: Change
) -> None:
    kind, *_ = arguments.split()
    assert order(kind=kind, **form, reason=" agreed with the shop ") == Order(
        ChangeRequest("orders", "manual__2026-01-02T12:00:00", change, "ada", "agreed with the shop"), apply=False
    )
    options = parsed("change", "orders", *arguments.split())
    assert change_of(options, zone="Europe/Berlin", pipeline="orders") == change
    assert (options.apply, options.supersede, options.reason, options.request_id) == (False, False, "", None)


def test_topics_of_a_command_keep_their_order() -> None:
    """They are part of the request: the same id with other arguments stops."""
    options = parsed("change", "orders", "accept-recreation", "returns", "orders")
    assert change_of(options, zone="UTC", pipeline="orders") == AcceptRecreation(("returns", "orders"))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("--to-time yesterday", "a time with its offset from UTC"),
        ("--to-offset orders 0 many", "topic, partition and offset"),
        ("--to-offset orders 0 1 --to-offset orders 0 2", "each partition once"),
        ("--to-offset orders 0 1 --only orders", "--only or --to-offset"),
        ("--by 5 --only orders 0 1", "topic, or topic and partition"),
    ],
)
def test_arguments_that_do_not_fit_name_what_was_expected(arguments: str, expected: str) -> None:
    with pytest.raises(ConfigError) as refused:
        change_of(parsed("change", "orders", "reset", *arguments.split()), zone="UTC", pipeline="orders")
    assert expected in refused.value.expected
    assert refused.value.next_command == "python -m kafka_ingest change orders reset --help"


def test_a_change_is_made_only_where_apply_is_ticked() -> None:
    made = order(kind="accept-same-log", reason="moved", apply=True, supersede=True)
    assert isinstance(made.request, ChangeRequest)
    assert (made.apply, made.request.supersede) == (True, True)


def test_a_roll_back_names_how_many_batches() -> None:
    assert order(kind="roll-back", batches=2, reason="wrong values", apply=True, allow_compacted=True) == Order(
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


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in LOOKS])
def test_every_change_needs_a_reason_even_to_show_it(kind: str) -> None:
    assert f"Reason: expected a value: {kind} needs it; found nothing" in faults(kind=kind, reason="  ")


CHOICE = DeadLetterChoice(
    reasons=("malformed", "wrong_type"),
    places=(DeadLetterPlace("orders"), DeadLetterPlace("orders", 3, 10, 20), DeadLetterPlace("payments", 1)),
    generation=0,
    limit=5,
)
CHOSEN = {
    "dead_letter_reasons": "wrong_type\nmalformed",
    "dead_letter_places": "payments 1\norders 3 10 20\n\norders",
    "generation": 0,
    "most_dead_letters": 5,
}


@pytest.mark.parametrize("action", list(DeadLetterAction))
def test_dead_letters_are_resolved_as_the_form_chooses_them(action: DeadLetterAction) -> None:
    asked = order(kind=f"{action.value}-dead-letters", reason="mended", apply=True, **CHOSEN)
    request = DeadLetterRequest("manual__2026-01-02T12:00:00", "orders", action, CHOICE, "ada", "mended")
    assert asked == Order(request, apply=True)
    assert (
        f"Supersede the outstanding batch: expected nothing for {action.value}-dead-letters; found a value"
        in faults(kind=f"{action.value}-dead-letters", reason="mended", supersede=True)
    )


def test_dead_letters_are_listed_without_a_reason() -> None:
    assert order(kind="list-dead-letters", **CHOSEN) == Order(ListRequest("orders", CHOICE), apply=False)
    assert order(kind="list-dead-letters").request == ListRequest("orders", DeadLetterChoice())


def test_every_fault_is_listed_at_once_in_the_order_of_the_form() -> None:
    wrong = {"only": "orders x", "apply": "yes", "batches": 3, "colour": "red", "time": "yesterday"}
    unknown, *found = faults(pipeline="", kind="reset", reset_to="time", **wrong)
    assert unknown.startswith("colour: expected one of the keys pipeline, kind, apply, ")
    time = "a time with its offset from UTC, or in the time zone Europe/Berlin, at most milliseconds, from 1970 on"
    assert found == [
        "Apply: expected true or false; found 'yes'",
        f"Time: expected {time}, such as 2026-01-01T00:00:00Z; found 'yesterday'",
        "Only: expected topic, or topic and partition (line 1); found 'orders x'",
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
        ({"kind": "accept-recreation", "only": "orders 0"}, "Only: expected topics: all partitions"),
        ({"kind": "retire-topic", "only": "orders\npayments"}, "Only: expected one topic; found more, or partitions"),
        ({"kind": "read-topic-again", "only": "orders 0"}, "Only: expected one topic; found more, or partitions"),
        ({"kind": "preflight", "apply": True}, "Apply: expected nothing for preflight; found a value"),
        ({"kind": "drop", "batches": 1}, "What to do: expected one of preflight, reset, skip-lag,"),
    ],
)
def test_what_does_not_fit_the_kind_is_the_only_fault(form: dict[str, Any], fault: str) -> None:
    reason = {} if form["kind"] == "preflight" else {"reason": "because"}
    [found] = faults(**form, **reason)
    assert found.startswith(fault)


def test_the_kinds_of_a_key_are_those_that_may_have_it() -> None:
    assert kinds_of("begin") == ("accept-recreation", "accept-cluster")
    assert kinds_of("by_offsets") == ("reset",)
    assert set(kinds_of("only")) >= {"reset", "skip-lag", "accept-loss", "retire-topic"}
    assert [key for key in FIELDS if not kinds_of(key)] == ["pipeline", "kind", "apply", "reason", "supersede"]
