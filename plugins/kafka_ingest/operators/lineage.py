"""OpenLineage: what a load read and wrote, down to the columns, for Airflow's provider.

The provider asks an operator when its task has ended, in a process of its own, and a fault in the answer costs the
event its data sets and nothing else (``DefaultExtractor``, ``OpenLineageListener._fork_execute``, provider 2.20.3). So
nothing here runs while a task works, or where the provider is not installed. Kafka, the ledger and Spark are not asked.

Names are those of the specification (openlineage.io/docs/spec/naming): a catalogue joins these data sets with those of
everybody else who names them so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import attrs
from airflow.providers.openlineage.extractors import OperatorLineage
from openlineage.client.event_v2 import InputDataset, OutputDataset
from openlineage.client.facet_v2 import (
    DatasetFacet,
    InputDatasetFacet,
    OutputDatasetFacet,
    RunFacet,
    column_lineage_dataset,
    data_quality_assertions_dataset,
    input_statistics_input_dataset,
    output_statistics_output_dataset,
    schema_dataset,
)
from openlineage.client.naming.dataset import Kafka, Postgres

from kafka_ingest.operators.lookup import airflow_connection
from kafka_ingest.protocol.batch import Batch, RecordCounts
from kafka_ingest.protocol.target import history_settings, written_columns
from kafka_ingest.report import batch_summary
from kafka_ingest.settings import BatchSettings, ColumnSettings, ColumnSource, PipelineSettings, TargetSettings
from kafka_ingest.world import World

_KAFKA_PORT, _POSTGRES_PORT = "9092", "5432"
_LEDGER_SCHEMA = "kafka_ingest"

#: Where in a record a value stands, from the outside in. Fields of the value have their own names, as whoever writes
#: the topic gives them; what else a record has begins with ``$``, which sets it apart.
_Field: TypeAlias = tuple[str, ...]
_VALUE, _KEY, _HEADERS = "$value", "$key", "$headers"


@attrs.define
class BatchRunFacet(RunFacet):
    """The batch of a run, as XCom has it. A batch can be told of twice: consumers tell by ``batchId``.

    Attributes:
        batchId: Id in the ledger.
        pipeline: Name of the pipeline.
        kind: ``live`` or ``reload``.
        state: ``committed``; ``planned`` where the load failed.
        ranges: Offsets ``[start, end)`` by topic and partition.
        counts: What became of them; ``None`` until they are committed.
        validThrough: Up to when the table is complete, ISO 8601; ``None`` where it is not known.
    """

    batchId: str  # noqa: N815
    pipeline: str
    kind: str
    state: str
    ranges: dict[str, dict[str, list[int]]]
    counts: dict[str, int] | None
    validThrough: str | None  # noqa: N815


def load_lineage(pipeline: PipelineSettings, batch: Batch | None) -> OperatorLineage[Any, Any]:
    """Return what a load read and wrote; nothing for one that ended before it had a batch.

    Raises:
        ConfigError: A connection is gone or unusable.
    """
    if batch is None:
        return OperatorLineage()
    world = World(pipeline, airflow_connection)
    return batch_lineage(batch, world.kafka_config(), world.postgres_params())


def batch_lineage(batch: Batch, kafka: Mapping[str, str], postgres: Mapping[str, str]) -> OperatorLineage[Any, Any]:
    """Return topics and tables of a batch. Of the connections, only addresses and the database's name are told.

    Args:
        batch: The batch, planned or committed.
        kafka: librdkafka's configuration.
        postgres: libpq's parameters.
    """
    topics = [_topic(kafka, topic) for topic in sorted({r.topic for r in batch.ranges})]
    settings = batch.settings
    outputs = [_written(_table(postgres, settings.target), settings, topics, batch.counts)] if topics else []
    if topics and settings.history:
        history = history_settings(settings)
        outputs.append(_written(_table(postgres, history.target), history, topics, None))
    if batch.counts and batch.counts.dead_letters:
        table = _table(postgres, TargetSettings(_LEDGER_SCHEMA, "dead_letter"))
        outputs.append(_data_set(table, statistics=_rows(batch.counts.dead_letters)))
    return OperatorLineage(
        inputs=[_read(topic, batch, is_alone=len(topics) == 1) for topic in topics],
        outputs=outputs,
        run_facets={"kafkaIngest_batch": _run_facet(batch)},
    )


def _run_facet(batch: Batch) -> BatchRunFacet:
    summary = batch_summary(batch)
    return BatchRunFacet(
        batchId=batch.batch_id,
        pipeline=batch.pipeline,
        kind=summary["kind"],
        state=summary["state"],
        ranges=summary["ranges"],
        counts=summary["counts"],
        validThrough=summary["valid_through"],
    )


# ----------
# Names of data sets.


def _topic(kafka: Mapping[str, str], topic: str) -> Kafka:
    first = kafka["bootstrap.servers"].split(",")[0].strip()
    host, port = _address(first.rpartition("://")[2], _KAFKA_PORT)
    return Kafka(host, port, topic)


def _address(text: str, usual_port: str) -> tuple[str, str]:
    host, colon, port = text.rpartition(":")
    return (host, port) if colon and port.isdigit() else (text, usual_port)


def _table(postgres: Mapping[str, str], target: TargetSettings) -> Postgres:
    host, port = (postgres.get(key, "").split(",")[0] for key in ("host", "port"))
    at = "localhost" if host.startswith("/") else host  # the folder of a socket
    return Postgres(at, port or _POSTGRES_PORT, postgres["dbname"], target.schema, target.table)


# ----------
# What was read: fields as far as the columns name them. A topic has no types that everybody agrees on.


def _read(topic: Kafka, batch: Batch, *, is_alone: bool) -> InputDataset:
    """Return a topic. The ledger's counts are those of the batch: they are told of a topic that is alone in it."""
    fields = sorted({field for fields in _sources(batch.settings).values() for field in fields})
    facets: dict[str, DatasetFacet] = {"schema": schema_dataset.SchemaDatasetFacet(fields=_nested(fields))}
    counted = _counted(batch.counts, batch.settings.target) if is_alone and batch.counts else {}
    return InputDataset(topic.get_namespace(), topic.get_name(), facets=facets, inputFacets=counted)


def _nested(fields: Sequence[_Field]) -> list[schema_dataset.SchemaDatasetFacetFields]:
    names = sorted({field[0] for field in fields if field})
    return [
        schema_dataset.SchemaDatasetFacetFields(
            name=name, fields=_nested([field[1:] for field in fields if field[:1] == (name,)])
        )
        for name in names
    ]


def _counted(counts: RecordCounts, target: TargetSettings) -> dict[str, InputDatasetFacet]:
    fits = data_quality_assertions_dataset.Assertion(
        assertion="record_fits_table",
        success=counts.dead_letters == 0,
        severity="warn",
        description=f"Every record fits {target}; the others are in {_LEDGER_SCHEMA}.dead_letter, with their reasons",
        expected="0",
        actual=str(counts.dead_letters),
    )
    return {
        "inputStatistics": input_statistics_input_dataset.InputStatisticsInputDatasetFacet(rowCount=counts.readable),
        "dataQualityAssertions": data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet(assertions=[fits]),
    }


# ----------
# What was written, and from where each column comes.


def _written(
    table: Postgres, settings: BatchSettings, topics: Sequence[Kafka], counts: RecordCounts | None
) -> OutputDataset:
    columns = [
        schema_dataset.SchemaDatasetFacetFields(name=column.name, type=column.type)
        for column in written_columns(settings)
    ]
    facets: dict[str, DatasetFacet] = {
        "schema": schema_dataset.SchemaDatasetFacet(fields=columns),
        "columnLineage": column_lineage_dataset.ColumnLineageDatasetFacet(fields=_column_lineage(settings, topics)),
    }
    return _data_set(table, facets, statistics=_rows(counts.rows) if counts else {})


def _data_set(
    table: Postgres, facets: Mapping[str, DatasetFacet] | None = None, *, statistics: Mapping[str, OutputDatasetFacet]
) -> OutputDataset:
    return OutputDataset(
        table.get_namespace(), table.get_name(), facets=dict(facets or {}), outputFacets=dict(statistics)
    )


def _rows(count: int) -> dict[str, OutputDatasetFacet]:
    return {"outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rowCount=count)}


def _column_lineage(settings: BatchSettings, topics: Sequence[Kafka]) -> dict[str, column_lineage_dataset.Fields]:
    return {
        column: column_lineage_dataset.Fields(
            inputFields=[
                column_lineage_dataset.InputField(
                    topic.get_namespace(), topic.get_name(), ".".join(field), transformations=[_DECODED]
                )
                for topic in topics
                for field in fields
            ]
        )
        for column, fields in _sources(settings).items()
    }


#: Values keep their meaning and change their type, from JSON, Avro or Protobuf to PostgreSQL's.
_DECODED: Any = column_lineage_dataset.Transformation(type="DIRECT", subtype="TRANSFORMATION")


def _sources(settings: BatchSettings) -> dict[str, tuple[_Field, ...]]:
    """Return the fields of a record that each column comes from: several where the first that is there counts.

    What the pipeline itself makes up is left out: the generation and the batch.
    """
    names = settings.metadata
    found = {column.name: tuple(_fields(column)) for column in settings.value.columns}
    whole = {
        settings.key.column if settings.key else None: (_KEY,),
        settings.headers_column: (_HEADERS,),
        names.topic: ("$topic",),
        names.partition: ("$partition",),
        names.offset: ("$offset",),
        names.timestamp: ("$timestamp",),
        names.timestamp_type: ("$timestampType",),
        settings.upsert.deleted_at if settings.upsert else None: ("$timestamp",),
    }
    return found | {column: (field,) for column, field in whole.items() if column is not None}


def _fields(column: ColumnSettings) -> Iterator[_Field]:
    if column.header is not None:
        yield (_HEADERS, column.header)
        return
    inside: _Field = (_KEY,) if column.source is ColumnSource.KEY else ()
    for path in (column.path, *column.other_paths):
        yield (*inside, *path) or (_VALUE,)
