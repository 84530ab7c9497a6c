"""The demo's payments, whose schema changes halfway, are loaded exactly; their check finds what is not."""

from __future__ import annotations

import json

import pytest
import yaml

from sandbox.orders import send_records
from sandbox.paths import CHECKOUT
from sandbox.payments import PaymentsComparison, compare_payments, payment_records
from tests.integration.pipeline_under_test import FedPipeline
from tests.services import TestServices

PAYMENTS = 10
EXAMPLE = CHECKOUT / "docs" / "examples" / "payments.yaml"


@pytest.fixture
def loaded(
    pipeline: FedPipeline, services: TestServices, registry_url: str, monkeypatch: pytest.MonkeyPatch
) -> FedPipeline:
    monkeypatch.setenv("AIRFLOW_CONN_SCHEMA_REGISTRY_DEFAULT", json.dumps({"conn_type": "http", "host": registry_url}))
    example = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    kafka = {"registry": example["kafka"]["registry"]}
    settings = {name: example[name] for name in ("value", "tombstones")}
    topic = pipeline.open(kafka=kafka, key=None, headers=None, metadata_columns=None, **settings)
    send_records(services.kafka.bootstrap, topic, payment_records(registry_url, topic, PAYMENTS))
    assert pipeline.load_here()["counts"]["rows"] == PAYMENTS
    return pipeline


def compare(pipeline: FedPipeline, services: TestServices, registry_url: str) -> PaymentsComparison:
    target = ("shop", pipeline.name)
    return compare_payments(services.kafka.bootstrap, registry_url, pipeline.topic, pipeline.database, target)


def test_payments_of_both_schemas_are_rows_with_their_values(
    loaded: FedPipeline, services: TestServices, registry_url: str
) -> None:
    compared = compare(loaded, services, registry_url)
    assert (compared.rows, compared.differing, compared.is_exact) == (10, 0, True)
    assert list(compared.records_by_schema.values()) == [5, 5]
    # Payment 2 was paid by what was called its method; payment 7 names its channel and its currency.
    wanted = "SELECT amount::text, channel, currency FROM {} WHERE payment_id IN (2, 7) ORDER BY payment_id"
    assert loaded.query(wanted.format(loaded.table)) == [
        ("148.38", "voucher 🎁", "EUR"),
        ("544.33", "transfer", "CHF"),
    ]


@pytest.mark.parametrize(
    ("change", "differing"),
    [
        ("UPDATE {} SET channel = NULL WHERE payment_id = 1", 2),
        ("UPDATE {} SET currency = 'EUR' WHERE payment_id = 7", 2),
        ("UPDATE {} SET amount = amount + 0.01 WHERE payment_id = 9", 2),
        ("DELETE FROM {} WHERE payment_id = 0", 1),
    ],
)
def test_a_row_that_is_not_its_record_is_found(
    loaded: FedPipeline, services: TestServices, registry_url: str, change: str, differing: int
) -> None:
    loaded.query(change.format(loaded.table))
    compared = compare(loaded, services, registry_url)
    assert (compared.differing, compared.is_exact) == (differing, False)
