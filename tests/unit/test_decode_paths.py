"""Several paths of one column: of all of them, the first that a record has counts."""

from __future__ import annotations

import pytest

from kafka_ingest.column_types import parse_column_type
from kafka_ingest.errors import DeadLetterReason
from spark_jobs.decode.values import ColumnPlan, DecodeError
from tests.decoding import Outcome, read_columns

RENAMED = ColumnPlan(
    "customer", parse_column_type("bigint"), ("customer_id",), other_paths=(("customer", "id"), ("cust",))
)
WORDS = ColumnPlan("note", parse_column_type("text"), ("note",), other_paths=(("remark",),))
BESIDE = (
    RENAMED,
    ColumnPlan("whole", parse_column_type("jsonb"), ("customer",)),
    ColumnPlan("same", parse_column_type("integer"), ("cust",)),
    ColumnPlan("document", parse_column_type("jsonb"), (), other_paths=(("never",),)),
)


def read(*plans: ColumnPlan, value: str) -> Outcome:
    """Read one record, the quick way and the exact way, which must agree."""
    (outcome,) = read_columns(plans, value.encode())
    return outcome


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ('{"customer_id": 1}', 1),
        ('{"customer": {"id": 2}}', 2),
        ('{"cust": 3}', 3),
        ('{"cust": 3, "customer": {"id": 2}, "customer_id": 1}', 1),
        ('{"cust": 3, "customer": {"id": 2}}', 2),
        ('{"cust": 3, "customer": {}}', 3),
        ('{"cust": 3, "customer": null}', 3),
        ("{}", None),
        # Null is a value: the record has the new field, and says that there is none.
        ('{"customer_id": null, "cust": 3}', None),
        ('{"customer": {"id": null}, "cust": 3}', None),
    ],
)
def test_the_first_path_that_a_record_has_counts(value: str, stored: int | None) -> None:
    assert read(RENAMED, value=value) == [stored]


def test_records_before_and_after_a_renaming_stand_in_one_batch() -> None:
    values = [b'{"remark": "a"}', b'{"note": "b"}', b'{"note": null, "remark": "c"}', b"{}", b'{"remark": "d"}']
    assert read_columns([WORDS], *values) == [["a"], ["b"], [None], [None], ["d"]]


def test_a_path_may_be_another_columns_and_look_into_one() -> None:
    value = '{"customer": {"id": 2, "x": 1.0}, "cust": 4}'
    assert read(*BESIDE, value=value) == [2, '{"id": 2, "x": 1.0}', 4, value]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ('{"customer_id": "1", "cust": 3}', DeadLetterReason.WRONG_TYPE),
        ('{"customer_id": 1.5, "cust": 3}', DeadLetterReason.OUT_OF_RANGE),
        ('{"customer": 5, "cust": 3}', DeadLetterReason.WRONG_TYPE),  # no object on the way
    ],
)
def test_a_value_that_is_there_and_wrong_is_a_dead_letter_whatever_stands_elsewhere(
    value: str, reason: DeadLetterReason
) -> None:
    outcome = read(RENAMED, value=value)
    assert isinstance(outcome, DecodeError)
    assert outcome.reason is reason


def test_a_required_value_that_is_nowhere_names_all_its_paths() -> None:
    plan = ColumnPlan("note", parse_column_type("text"), ("note",), required=True, other_paths=(("remark",),))
    outcome = read(plan, value='{"text": "x"}')
    assert isinstance(outcome, DecodeError)
    assert outcome.reason is DeadLetterReason.MISSING_REQUIRED
    assert outcome.detail == 'column "note" from $.note or $.remark: expected a value, found nothing there'
