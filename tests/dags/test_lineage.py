"""What Airflow's OpenLineage provider sends of a load: with its own extractor, adapter and file transport."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from uuid import uuid4

import pytest

pytest.importorskip("airflow.providers.openlineage", reason="the provider is optional")

from airflow.providers.openlineage.extractors import ExtractorManager, OperatorLineage
from airflow.providers.openlineage.plugins.adapter import OpenLineageAdapter
from airflow.providers.openlineage.plugins.listener import get_openlineage_listener
from airflow.providers.openlineage.utils import spark
from airflow.sdk import DAG
from airflow.utils.state import TaskInstanceState
from openlineage.client import OpenLineageClient
from openlineage.client.transport.file import FileConfig, FileTransport
from openlineage.client.transport.http import HttpConfig, HttpTransport

from kafka_ingest.operators.lineage import batch_lineage
from kafka_ingest.operators.spark_job import SparkJob
from kafka_ingest.operators.task_links import TaskLinks
from kafka_ingest.operators.tasks import LoadBatchOperator
from kafka_ingest.protocol.batch import Batch, BatchState, RecordCounts
from kafka_ingest.settings import (
    ColumnSettings,
    Deletes,
    KeyFormat,
    KeySettings,
    OrderBy,
    TargetSettings,
    UpsertSettings,
    ValueFormat,
    ValueSettings,
)
from kafka_ingest.spark.submission import JobSubmission
from sandbox.paths import CHECKOUT
from tests.builders import batch_settings, offset_range, pipeline_settings, planned_batch
from tests.dags.contexts import run_context

KAFKA_SECRET, POSTGRES_SECRET, TRANSPORT_KEY = "s3cret-of-kafka", "s3cret-of-postgres", "s3cret-of-the-transport"
KAFKA = {
    "bootstrap.servers": "SASL_SSL://broker-1.example:9093, broker-2.example:9093",
    "sasl.username": "loader-of-kafka",
    "sasl.password": KAFKA_SECRET,
}
POSTGRES = {
    "host": "db.example",
    "port": "5433",
    "dbname": "warehouse",
    "user": "loader-of-postgres",
    "password": POSTGRES_SECRET,
}
TOPIC = {"namespace": "kafka://broker-1.example:9093", "name": "orders"}
TABLE = {"namespace": "postgres://db.example:5433", "name": "warehouse.shop.orders"}
SETTINGS = replace(
    batch_settings(),
    value=ValueSettings(
        ValueFormat.JSON_COLUMNS,
        (
            ColumnSettings("order_id", "bigint", ("id",), required=True),
            ColumnSettings("city", "text", ("customer", "address", "city"), other_paths=(("city",),)),
            ColumnSettings("password", "text", ("customer", "password")),
            ColumnSettings("tenant", "text", ("tenant",), from_key=True),
            ColumnSettings("trace", "text", header="trace-id"),
        ),
    ),
    key=KeySettings(KeyFormat.TEXT, "record_key"),
    headers_column="headers",
)
COMMITTED = replace(
    planned_batch(offset_range(0, 0, 10), offset_range(1, 3, 5), state=BatchState.COMMITTED),
    settings=SETTINGS,
    counts=RecordCounts(rows=9, dead_letters=2, invisible=1),
    valid_through=datetime(2026, 1, 2, 11, 59, tzinfo=UTC),
)
PLANNED = replace(COMMITTED, state=BatchState.PLANNED, counts=None, valid_through=None)


def lineage(batch: Batch = COMMITTED, postgres: Mapping[str, str] = POSTGRES) -> OperatorLineage[Any, Any]:
    return batch_lineage(batch, KAFKA, postgres)


def sent(found: OperatorLineage[Any, Any], folder: Path, *, error: Exception | None = None) -> dict[str, Any]:
    """Send it with the provider's adapter and return the event as the transport has written it."""
    path = folder / "events.json"
    client = OpenLineageClient(transport=FileTransport(FileConfig(log_file_path=str(path), append=True)))
    said: dict[str, Any] = {
        "run_id": str(uuid4()),
        "job_name": "kafka_to_postgres__orders.load_batch",
        "end_time": "2026-01-02T12:00:00+00:00",
        "task": found,
        "nominal_start_time": None,
        "nominal_end_time": None,
        "owners": [],
        "tags": [],
        "job_description": None,
    }
    adapter = OpenLineageAdapter(client)
    adapter.fail_task(**said, error=error) if error else adapter.complete_task(**said)
    event: dict[str, Any] = json.loads(path.read_text())
    return event


def named(data_set: Mapping[str, Any]) -> dict[str, Any]:
    return {key: data_set[key] for key in ("namespace", "name")}


def field_names(fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {field["name"]: field_names(field.get("fields", [])) for field in fields}


def test_an_event_leads_from_the_topic_to_the_table_and_its_dead_letters(tmp_path: Path) -> None:
    event = sent(lineage(), tmp_path)
    assert event["eventType"] == "COMPLETE"
    assert [named(data_set) for data_set in event["inputs"]] == [TOPIC]
    dead_letters = {**TABLE, "name": "warehouse.kafka_ingest.dead_letter"}
    assert [named(data_set) for data_set in event["outputs"]] == [TABLE, dead_letters]


def test_rows_records_and_dead_letters_are_counted(tmp_path: Path) -> None:
    event = sent(lineage(), tmp_path)
    [topic], (table, dead_letters) = event["inputs"], event["outputs"]
    assert topic["inputFacets"]["inputStatistics"]["rowCount"] == 11
    assert table["outputFacets"]["outputStatistics"]["rowCount"] == 9
    assert dead_letters["outputFacets"]["outputStatistics"]["rowCount"] == 2
    [assertion] = topic["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert (assertion["success"], assertion["severity"], assertion["actual"]) == (False, "warn", "2")


def test_a_batch_whose_records_all_fit_has_no_dead_letters_to_lead_to() -> None:
    found = lineage(replace(COMMITTED, counts=RecordCounts(rows=11)))
    assert [output.name for output in found.outputs] == ["warehouse.shop.orders"]
    [assertion] = found.inputs[0].inputFacets["dataQualityAssertions"].assertions
    assert assertion.success is True


def test_the_run_says_which_offsets_and_up_to_when(tmp_path: Path) -> None:
    facet = sent(lineage(), tmp_path)["run"]["facets"]["kafkaIngest_batch"]
    assert (facet["batchId"], facet["pipeline"], facet["state"]) == (COMMITTED.batch_id, "orders", "committed")
    assert facet["ranges"] == {"orders": {"0": [0, 10], "1": [3, 5]}}
    assert facet["validThrough"] == "2026-01-02T11:59:00+00:00"
    assert (facet["counts"]["rows"], facet["counts"]["dead_letters"]) == (9, 2)


def test_the_table_has_its_columns_and_the_topic_the_fields_that_they_come_from(tmp_path: Path) -> None:
    event = sent(lineage(), tmp_path)
    columns = event["outputs"][0]["facets"]["schema"]["fields"]
    assert {column["name"]: column["type"] for column in columns} == {
        "order_id": "bigint",
        "city": "text",
        "password": "text",
        "tenant": "text",
        "trace": "text",
        "record_key": "text",
        "headers": "jsonb",
        "kafka_topic": "text",
        "kafka_generation": "integer",
        "kafka_partition": "integer",
        "kafka_offset": "bigint",
        "kafka_timestamp": "timestamp with time zone",
        "batch_id": "uuid",
    }
    assert field_names(event["inputs"][0]["facets"]["schema"]["fields"]) == {
        "$headers": {"trace-id": {}},
        "$key": {"tenant": {}},
        "$offset": {},
        "$partition": {},
        "$timestamp": {},
        "$topic": {},
        "city": {},
        "customer": {"address": {"city": {}}, "password": {}},
        "id": {},
    }


def column_lineage(event: dict[str, Any]) -> dict[str, list[str]]:
    columns = event["outputs"][0]["facets"]["columnLineage"]["fields"]
    return {column: [field["field"] for field in found["inputFields"]] for column, found in columns.items()}


def test_each_column_leads_back_to_its_fields_also_one_that_is_called_as_a_secret_would_be(tmp_path: Path) -> None:
    assert column_lineage(sent(lineage(), tmp_path)) == {
        "order_id": ["id"],
        "city": ["customer.address.city", "city"],
        "password": ["customer.password"],
        "tenant": ["$key.tenant"],
        "trace": ["$headers.trace-id"],
        "record_key": ["$key"],
        "headers": ["$headers"],
        "kafka_topic": ["$topic"],
        "kafka_partition": ["$partition"],
        "kafka_offset": ["$offset"],
        "kafka_timestamp": ["$timestamp"],
    }


def test_a_value_that_is_taken_whole_is_one_field() -> None:
    [table] = lineage(replace(PLANNED, settings=batch_settings())).outputs
    [payload] = table.facets["columnLineage"].fields["payload"].inputFields
    assert (payload.namespace, payload.name, payload.field) == (*TOPIC.values(), "$value")


def test_a_column_of_several_topics_leads_to_each_and_no_topic_is_given_the_counts_of_all() -> None:
    clicks = replace(offset_range(0, 0, 4), topic="clicks")
    found = lineage(replace(COMMITTED, ranges=(*COMMITTED.ranges, clicks)))
    assert [(topic.name, dict(topic.inputFacets)) for topic in found.inputs] == [("clicks", {}), ("orders", {})]
    fields = found.outputs[0].facets["columnLineage"].fields["order_id"].inputFields
    assert [(field.name, field.field) for field in fields] == [("clicks", "id"), ("orders", "id")]


def test_a_history_is_a_table_of_its_own() -> None:
    upsert = UpsertSettings(("order_id",), OrderBy.OFFSET, Deletes.MARK, deleted_at="deleted_at")
    settings = replace(SETTINGS, upsert=upsert, history=TargetSettings("shop", "orders_history"))
    table, history = lineage(replace(PLANNED, settings=settings)).outputs
    assert (table.name, history.name) == ("warehouse.shop.orders", "warehouse.shop.orders_history")
    [deleted_at] = table.facets["columnLineage"].fields["deleted_at"].inputFields
    assert deleted_at.field == "$timestamp"
    assert {"kafka_change", "unavailable_columns"} <= {field.name for field in history.facets["schema"].fields}


@pytest.mark.parametrize(
    ("changed", "namespace"),
    [
        ({"host": "db-1.example,db-2.example", "port": "5433,5434"}, "postgres://db-1.example:5433"),
        ({"port": ""}, "postgres://db.example:5432"),
        ({"host": "/run/postgresql"}, "postgres://localhost:5433"),
    ],
)
def test_a_table_is_named_by_the_first_server(changed: dict[str, str], namespace: str) -> None:
    assert lineage(postgres=POSTGRES | changed).outputs[0].namespace == namespace


def test_a_broker_without_a_port_has_kafkas_usual_one() -> None:
    found = batch_lineage(PLANNED, {"bootstrap.servers": "broker"}, POSTGRES)
    assert found.inputs[0].namespace == "kafka://broker:9092"


def test_a_load_that_failed_names_topic_table_and_error_and_counts_nothing(tmp_path: Path) -> None:
    event = sent(lineage(PLANNED), tmp_path, error=RuntimeError("TooManyDeadLetters: 11 would not fit"))
    assert event["eventType"] == "FAIL"
    assert ([named(d) for d in event["inputs"]], [named(d) for d in event["outputs"]]) == ([TOPIC], [TABLE])
    assert (event["inputs"][0]["inputFacets"], event["outputs"][0]["outputFacets"]) == ({}, {})
    assert event["run"]["facets"]["errorMessage"]["message"] == "TooManyDeadLetters: 11 would not fit"


def is_part(shown: Any, sent_: Any) -> bool:
    """Whether all that is shown was sent; what was sent beside it is left out."""
    if isinstance(shown, dict):
        return all(key in sent_ and is_part(value, sent_[key]) for key, value in shown.items())
    if isinstance(shown, list):
        return len(shown) == len(sent_) and all(map(is_part, shown, sent_))
    return bool(shown == sent_)


def test_the_event_that_the_documentation_shows_is_part_of_what_is_sent(tmp_path: Path) -> None:
    page = (CHECKOUT / "docs" / "lineage.md").read_text(encoding="utf-8")
    shown = json.loads(page[page.index('    {"eventType"') : page.index("(shortened)")])
    event = sent(lineage(), tmp_path)
    assert is_part(shown, event)
    assert not is_part({**shown, "eventType": "FAIL"}, event)


def test_no_event_holds_a_password_or_a_user(tmp_path: Path) -> None:
    event = json.dumps(sent(lineage(), tmp_path))
    hidden = (KAFKA_SECRET, POSTGRES_SECRET, "loader-of-kafka", "loader-of-postgres")
    assert [text for text in hidden if text in event] == []
    assert "db.example" in event


# ----------
# The operator, as the provider asks it.


def operator(batch: Batch | None, monkeypatch: pytest.MonkeyPatch, kafka: object = None) -> LoadBatchOperator:
    kafka = kafka or {"conn_type": "kafka", "extra": KAFKA}
    postgres = {"conn_type": "postgres", "host": "db.example", "port": 5433, "schema": "warehouse", "login": "loader"}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps(kafka))
    monkeypatch.setenv("AIRFLOW_CONN_POSTGRES_DEFAULT", json.dumps({**postgres, "password": POSTGRES_SECRET}))
    found = LoadBatchOperator(task_id="load_batch", pipeline=pipeline_settings())
    found.links = TaskLinks(lambda *_: None, found.log)
    if batch:
        found.links.show_batch(batch)
    return found


def extracted(task: LoadBatchOperator, state: TaskInstanceState) -> OperatorLineage[Any, Any]:
    extractors: Any = ExtractorManager
    dag_run, instance = SimpleNamespace(run_id="r1"), SimpleNamespace(task_id="load_batch")
    found: OperatorLineage[Any, Any] = extractors().extract_metadata(dag_run, _in_a_dag(task), state, instance)
    return found


def _in_a_dag(task: LoadBatchOperator) -> LoadBatchOperator:
    DAG("orders", schedule=None).add_task(task)
    return task


@pytest.mark.parametrize(
    ("state", "batch"), [(TaskInstanceState.SUCCESS, COMMITTED), (TaskInstanceState.FAILED, PLANNED)]
)
def test_the_provider_gets_the_data_sets_of_a_load_that_succeeded_and_of_one_that_failed(
    state: TaskInstanceState, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = extracted(operator(batch, monkeypatch), state)
    assert [(topic.namespace, topic.name) for topic in found.inputs] == [tuple(TOPIC.values())]
    assert found.outputs[0].name == "warehouse.shop.orders"


def test_a_load_that_ended_before_it_had_a_batch_has_no_data_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    found = extracted(operator(None, monkeypatch), TaskInstanceState.FAILED)
    assert (found.inputs, found.outputs, found.run_facets) == ([], [], {})


def test_a_connection_that_is_gone_costs_the_data_sets_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    found = extracted(operator(COMMITTED, monkeypatch, kafka={"conn_type": "http"}), TaskInstanceState.SUCCESS)
    assert (found.inputs, found.outputs) == ([], [])


class RecordedProcess:
    """What the provider's hook starts in place of spark-submit; it ends at once, without a word."""

    started: ClassVar[list[list[str]]] = []
    stdout: tuple[str, ...] = ()

    def __init__(self, command: list[str], **_: object) -> None:
        self.started.append(command)

    def wait(self) -> int:
        return 0


@pytest.mark.parametrize("names_parent", [True, False])
def test_spark_submit_names_the_task_where_airflow_says_so_and_never_the_key_of_the_transport(
    monkeypatch: pytest.MonkeyPatch, names_parent: bool
) -> None:
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__SPARK_INJECT_PARENT_JOB_INFO", str(names_parent))
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__SPARK_INJECT_TRANSPORT_INFO", "True")
    monkeypatch.setattr(RecordedProcess, "started", [])
    monkeypatch.setattr("airflow.providers.apache.spark.hooks.spark_submit.subprocess.Popen", RecordedProcess)
    config = HttpConfig.from_dict(
        {"url": "http://lineage.example", "auth": {"type": "api_key", "apiKey": TRANSPORT_KEY}}
    )
    client = OpenLineageClient(transport=HttpTransport(config))
    monkeypatch.setattr(get_openlineage_listener().adapter, "_client", client)
    of_the_task = {"spark.openlineage.parentJobName": "orders.load_batch"}
    monkeypatch.setattr(spark, "_get_parent_job_information_as_spark_properties", lambda _: of_the_task)
    submission = JobSubmission(
        "local[2]", "/jobs/load_batch.py", "/jobs/code.zip", (), {}, {}, "orders", "1g", "1g", None
    )
    SparkJob(submission, pipeline_settings(), lambda *_: None).run(run_context())
    [command] = RecordedProcess.started
    assert "/jobs/load_batch.py" in command
    assert ("spark.openlineage.parentJobName=orders.load_batch" in command) is names_parent
    assert TRANSPORT_KEY not in " ".join(command)
