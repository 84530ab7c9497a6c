"""What the command line lists of batches and pipelines: counts that only some pipelines have, where there are any."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import create_autospec

import pytest

from kafka_ingest.__main__ import main
from kafka_ingest.cli import look
from kafka_ingest.postgres.reports import PostgresReports
from tests.pipeline_texts import pipeline_text

BATCH = {"batch_id": "b1", "state": "committed", "offsets": 9, "rows": 5, "dead_letters": 0}
STATUS = {"pipeline": "sales", "target": "shop.sales", "outstanding_batch_id": None, "last_rows": 5}
NONE, SOME = {"deletes": 0, "superseded": 0}, {"deletes": 1, "superseded": 3}


@pytest.fixture
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the ledger reports of pipeline ``sales``."""
    text = pipeline_text(pipeline="sales", kafka="{topics: [sales]}", target="{table: shop.sales, create_table: true}")
    (tmp_path / "sales.yaml").write_text(text, encoding="utf-8")
    monkeypatch.setenv("KAFKA_INGEST_PIPELINES", str(tmp_path))
    found = create_autospec(PostgresReports, instance=True)
    monkeypatch.setattr(look, "world_of", lambda settings: SimpleNamespace(reports=lambda: found))
    return found


def headings(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    assert main([*command, "sales"]) == 0
    return capsys.readouterr().out.splitlines()[0]


def test_batches_have_columns_of_deletes_and_superseded_records_where_there_are_any(
    reports: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    reports.batches.return_value = [{**BATCH, **NONE}]
    assert headings(capsys, "batches").split("offsets")[1].split() == ["rows", "dead", "letters"]
    reports.batches.return_value = [{**BATCH, **NONE}, {**BATCH, **SOME}]
    listed = headings(capsys, "batches").split("offsets")[1].split()
    assert listed == ["rows", "deletes", "superseded", "dead", "letters"]


def test_status_has_columns_of_deletes_and_superseded_records_where_there_are_any(
    reports: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    reports.status.return_value = [{**STATUS, "last_deletes": 0, "last_superseded": 0}]
    assert "last deletes" not in headings(capsys, "status")
    reports.status.return_value = [{**STATUS, "last_deletes": 1, "last_superseded": 3}]
    assert "last rows  last deletes  last superseded  last dead letters" in headings(capsys, "status")


def test_json_has_deletes_and_superseded_records_always(reports: Any, capsys: pytest.CaptureFixture[str]) -> None:
    reports.batches.return_value = [{**BATCH, **NONE}]
    assert main(["batches", "sales", "--json"]) == 0
    [row] = json.loads(capsys.readouterr().out)
    assert (row["deletes"], row["superseded"]) == (0, 0)
