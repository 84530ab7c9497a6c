"""A record becomes a row: value, key, headers, metadata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from kafka_ingest.column_types import parse_column_type
from kafka_ingest.errors import DeadLetterReason
from kafka_ingest.kafka.registry import (
    KEY_SCHEMA_HEADER,
    SCHEMA_KINDS,
    VALUE_SCHEMA_HEADER,
    RegisteredSchema,
    SchemaRegistry,
)
from kafka_ingest.protocol.staging import NewField
from kafka_ingest.protocol.target import TargetShape, written_columns
from kafka_ingest.settings import (
    REGISTRY_FORMATS,
    BatchSettings,
    ColumnSource,
    MetadataColumns,
    NewFields,
    Tombstones,
    ValueFormat,
)
from spark_jobs.decode.framed import FramedColumns, Schema, Schemas
from spark_jobs.decode.json import JsonColumns
from spark_jobs.decode.paths import WatchedColumns
from spark_jobs.decode.values import (
    RECORD_TIME,
    ColumnPlan,
    DecodedBatch,
    DecodedPart,
    DecodeError,
    PartDecoder,
    Rejected,
    excerpt,
    positions,
)
from spark_jobs.decode.whole import HeaderColumns, Headers, whole_part
from spark_jobs.records import TIME_TYPE_NAMES

# What the pipeline's settings and the target say of each column.


def _column_plans(settings: BatchSettings, shape: TargetShape, source: ColumnSource) -> tuple[ColumnPlan, ...]:
    """Plan the columns of one source, in their order."""
    not_null = _not_null_names(shape)
    envelope = settings.upsert.envelope if settings.upsert and source is ColumnSource.VALUE else None
    own = (*envelope.path, "after") if envelope else ()
    return tuple(
        ColumnPlan(
            c.name,
            parse_column_type(c.type),
            c.path,
            f"the {source}" if c.header is None else f'header "{excerpt(c.header)}"',
            required=c.required,
            not_null=c.name in not_null,
            conversion=c.conversion,
            other_paths=c.other_paths,
            default=c.default,
            is_rounded=c.rounding is not None,
            unavailable=envelope.placeholder if envelope else None,
            is_filled=envelope is not None
            and c.name not in settings.never_null
            and all(path[: len(own)] == own for path in (c.path, *c.other_paths)),
        )
        for c in settings.value.columns
        if c.source is source
    )


def _key_plan(settings: BatchSettings, shape: TargetShape) -> ColumnPlan | None:
    """Plan the column that the key fills, if there is one."""
    key = settings.key
    if key is None or key.column is None:
        return None
    types = {column.name: column.type for column in written_columns(settings)}
    is_not_null = key.column in _not_null_names(shape)
    return ColumnPlan(key.column, parse_column_type(types[key.column]), (), "the key", key.required, is_not_null)


def _metadata_plan(name: str, type_name: str, source: str, shape: TargetShape) -> ColumnPlan:
    """Plan a column that neither value nor key fills."""
    return ColumnPlan(name, parse_column_type(type_name), (), source, False, name in _not_null_names(shape))


def _not_null_names(shape: TargetShape) -> frozenset[str]:
    return frozenset(column.name for column in shape.columns if column.is_not_null)


# The columns that tell where a row came from.

#: 0001-01-01T00:00:00.000Z and 9999-12-31T23:59:59.999Z, in ms since 1970: the years that every client can read.
FIRST_RECORD_TIME_MS, LAST_RECORD_TIME_MS = -62_135_596_800_000, 253_402_300_799_999


class Metadata:
    """Topic, generation, partition, offset, record time, time type (where wanted) and batch id, in that order.

    Where deletes mark rows, the time of a delete stands before the batch id: NULL, for nothing here is deleted. The
    record time is exact to the millisecond, in UTC; a record without a time has NULL.
    """

    def __init__(
        self, columns: MetadataColumns, shape: TargetShape, *, batch_id: str, marks_deleted: bool = False
    ) -> None:
        self._batch_id = batch_id
        self._marks_deleted = marks_deleted
        self._time = _metadata_plan(columns.timestamp, "timestamptz", "the record time", shape)
        self._time_type: ColumnPlan | None = None
        if columns.timestamp_type:
            self._time_type = _metadata_plan(columns.timestamp_type, "text", "the record time's type", shape)

    def decode(self, batch: pa.RecordBatch, *, generation: int) -> DecodedPart:
        """Return the columns for a batch of ``RECORD_SCHEMA``."""
        times = batch.column("timestamp_ms")
        decode_errors = self._time_decode_errors(times)
        arrays = [
            batch.column("topic"),
            pa.repeat(pa.scalar(generation, pa.int32()), len(batch)),
            batch.column("partition"),
            batch.column("offset"),
            _stored_times(times),
        ]
        if self._time_type:
            types = [TIME_TYPE_NAMES.get(number) for number in batch.column("timestamp_type").to_pylist()]
            arrays.append(pa.array(types, pa.string()))
            for row in positions(pc.is_null(arrays[-1])) if self._time_type.not_null else ():
                decode_errors.setdefault(row, self._time_type.null_error("a record without a time"))
        if self._marks_deleted:
            arrays.append(pa.nulls(len(batch), RECORD_TIME))
        arrays.append(pa.repeat(pa.scalar(self._batch_id, pa.string()), len(batch)))
        return DecodedPart(tuple(arrays), decode_errors)

    def _time_decode_errors(self, times: pa.Array) -> dict[int, DecodeError]:
        decode_errors = {}
        for row in positions(pc.invert(has_storable_time(times))):
            detail = f"expected a record time in the years 1 to 9999, found {times[row]} ms since 1970"
            decode_errors[row] = DecodeError(DeadLetterReason.RECORD_TIME_OUT_OF_RANGE, detail).at(self._time.place)
        if self._time.not_null:
            decode_errors |= {
                row: self._time.null_error("a record without a time") for row in positions(pc.is_null(times))
            }
        return decode_errors


def has_storable_time(times: pa.Array) -> pa.Array:
    """Tell for each time, in ms since 1970, whether it lies in the years 1 to 9999; null stays null."""
    return pc.and_(pc.greater_equal(times, FIRST_RECORD_TIME_MS), pc.less_equal(times, LAST_RECORD_TIME_MS))


def _stored_times(times: pa.Array) -> pa.Array:
    return pc.if_else(has_storable_time(times), times, pa.scalar(None, pa.int64())).cast(RECORD_TIME)


# The schemas of a registry's formats.


def opened_schema(kind: str, found: RegisteredSchema) -> Schema:
    """Parse a schema. Libraries of formats are imported here, for pipelines that need them alone."""
    if kind == "PROTOBUF":
        from spark_jobs.decode.proto_columns import ProtobufColumns
        from spark_jobs.decode.protobuf import ProtobufSchema
        from spark_jobs.decode.schema_places import protobuf_types

        protobuf = ProtobufSchema(found.text, found.references)
        return Schema(protobuf.documents, ProtobufColumns(protobuf).columns, types=protobuf_types(protobuf))
    if kind == "AVRO":
        from spark_jobs.decode.avro import AvroSchema
        from spark_jobs.decode.avro_columns import quick_columns
        from spark_jobs.decode.leaf_columns import may_have_others
        from spark_jobs.decode.schema_places import avro_types

        avro = AvroSchema(found.text, tuple(found.references.values()))
        may_have = partial(may_have_others, avro.root)
        return Schema(avro.documents, partial(quick_columns, avro), may_have, avro_types(avro.root))
    return Schema()  # columns are strict themselves: documents are not validated against their JSON Schema


@cache
def _schemas_of(registry: tuple[tuple[str, str], ...], kind: str, subject: str | None) -> Schemas:
    return Schemas(SchemaRegistry(dict(registry)), kind, subject, opened_schema)


def schemas_of(registry: Mapping[str, str], value_format: str, subject: str | None) -> Schemas:
    """Return the schemas of a format in a registry, the same object for every task of this process."""
    return _schemas_of(tuple(sorted(registry.items())), SCHEMA_KINDS[value_format], subject)


# Kafka records into the target's columns: every record is a row, a dead letter, or a counted tombstone.

NO_REGISTRY: Mapping[str, str] = {}


class RecordDecoder:
    """The decoder of one pipeline's ``RECORD_SCHEMA`` batches. Built once a task; batches share no state.

    Strict: a value that is present is stored exactly or its record is a dead letter; nothing is rounded, truncated or
    turned into NULL. Of a record's faults one is reported: value before key, headers and record time, and by column
    order within the value.

    Args:
        settings: The batch's frozen settings.
        shape: The target's columns, which may be stricter about NULL than the settings.
        batch_id: The batch, for the rows' metadata.
        registry: Configuration of the schema registry; empty for a pipeline without one.
    """

    def __init__(
        self, settings: BatchSettings, shape: TargetShape, *, batch_id: str, registry: Mapping[str, str] = NO_REGISTRY
    ) -> None:
        self._names = [column.name for column in written_columns(settings)]
        self._tombstones = settings.tombstones
        self._sources = [column.source for column in settings.value.columns]
        self._value_plans = _column_plans(settings, shape, ColumnSource.VALUE)
        self._value, self._watched = _value_part(settings, self._value_plans, registry)
        self._key_plans = _column_plans(settings, shape, ColumnSource.KEY)
        self._key_columns = _key_part(settings, self._key_plans, registry) if self._key_plans else None
        header_plans = _column_plans(settings, shape, ColumnSource.HEADER)
        self._header_columns = HeaderColumns(settings, header_plans, _json_header) if header_plans else None
        self._key_plan = _key_plan(settings, shape)
        self._key = whole_part(settings.key.format, self._key_plan) if settings.key and self._key_plan else None
        self._headers: Headers | None = None
        if settings.headers_column:
            self._headers = Headers(_metadata_plan(settings.headers_column, "jsonb", "the headers", shape))
        marks_deleted = settings.upsert is not None and settings.upsert.deleted_at is not None
        self._metadata = Metadata(settings.metadata, shape, batch_id=batch_id, marks_deleted=marks_deleted)

    @property
    def new_fields(self) -> tuple[NewField, ...]:
        """What all batches so far held and no column reads, where the pipeline wants a warning of it."""
        return self._watched.new_fields if self._watched else ()

    def decode(self, batch: pa.RecordBatch, *, generation: int) -> DecodedBatch:
        """Decode a batch of one topic's records.

        Args:
            batch: Records, one a row, in the schema ``RECORD_SCHEMA``; any number of rows.
            generation: Generation of the topic.
        """
        null_values = positions(batch.column("value").is_null())
        counted = null_values if self._tombstones is Tombstones.COUNT else []
        by_source, others = dict(self._column_parts(batch)), self._other_parts(batch, generation)
        decode_errors = self._tombstone_decode_errors(null_values)
        for part in (*by_source.values(), *others):
            decode_errors = {**part.decode_errors, **decode_errors}
        for row in counted:
            decode_errors.pop(row, None)
        left_out = {*decode_errors, *counted}
        kept = range(len(batch)) if not left_out else [row for row in range(len(batch)) if row not in left_out]
        arrays = [*self._in_order(by_source), *chain.from_iterable(part.arrays for part in others)]
        columns = pa.RecordBatch.from_arrays(arrays, self._names)
        dead = [Rejected(row, decode_errors[row].reason, decode_errors[row].detail) for row in sorted(decode_errors)]
        fitting = columns.take(pa.array(kept, pa.int64())) if left_out else columns
        value = by_source.get(ColumnSource.VALUE)
        return DecodedBatch(fitting, kept, dead, counted, unavailable=value.unavailable if value else {})

    def _column_parts(self, batch: pa.RecordBatch) -> Iterator[tuple[ColumnSource, DecodedPart]]:
        keys, headers = batch.column("key"), batch.column("headers")
        if self._value:
            yield ColumnSource.VALUE, _decoded(self._value, batch.column("value"), headers)
        if self._key_columns:
            part = _decoded(self._key_columns, keys, headers)
            yield ColumnSource.KEY, _with_missing(part, keys, self._key_plans)
        if self._header_columns:
            yield ColumnSource.HEADER, self._header_columns.decode(batch)

    def _in_order(self, by_source: Mapping[ColumnSource, DecodedPart]) -> list[pa.Array]:
        """Return the columns as the pipeline lists them, whatever fills them."""
        arrays = {source: iter(part.arrays) for source, part in by_source.items()}
        return [next(arrays[source]) for source in self._sources]

    def _other_parts(self, batch: pa.RecordBatch, generation: int) -> list[DecodedPart]:
        parts = []
        if self._key and self._key_plan:
            parts.append(_with_missing(self._key.decode(batch.column("key")), batch.column("key"), [self._key_plan]))
        if self._headers:
            parts.append(self._headers.decode(batch))
        return [*parts, self._metadata.decode(batch, generation=generation)]

    def _tombstone_decode_errors(self, rows: list[int]) -> dict[int, DecodeError]:
        if self._tombstones is Tombstones.DEAD_LETTER:
            detail = "the value: expected one, found a tombstone, which this pipeline makes a dead letter"
            decode_error = DecodeError(DeadLetterReason.TOMBSTONE, detail)
        elif self._tombstones is Tombstones.ROW and any(plan.refuses_null for plan in self._value_plans):
            plan = next(plan for plan in self._value_plans if plan.refuses_null)
            decode_error = plan.null_error("a tombstone (a null value)")
        else:
            return {}
        return dict.fromkeys(rows, decode_error)


def _json_header(plan: ColumnPlan) -> JsonColumns:
    return JsonColumns([plan], place=plan.place)


def _with_missing(part: DecodedPart, keys: pa.Array, plans: Sequence[ColumnPlan]) -> DecodedPart:
    """Add the null keys whose records a column refuses."""
    plan = next((plan for plan in plans if plan.refuses_null), None)
    if plan is None or not keys.null_count:
        return part
    missing = {row: plan.null_error("a null key") for row in positions(keys.is_null())}
    return DecodedPart(part.arrays, {**part.decode_errors, **missing})


def _decoded(part: PartDecoder | FramedColumns, values: pa.Array, headers: pa.Array) -> DecodedPart:
    return part.decode(values, headers) if isinstance(part, FramedColumns) else part.decode(values)


def _value_part(
    settings: BatchSettings, plans: Sequence[ColumnPlan], registry: Mapping[str, str]
) -> tuple[PartDecoder | FramedColumns | None, WatchedColumns | None]:
    """Return the decoder of values, and what watches their fields, which a pipeline that ignores new ones needs not.

    Values are not looked at where no column reads them, as of a delete with its key in the record's key.
    """
    value = settings.value
    if not plans:
        return None, None
    if value.format not in (ValueFormat.JSON_COLUMNS, *REGISTRY_FORMATS):
        return whole_part(value.format, plans[0]), None
    documents = _documents(plans, value.format)
    watched = None if value.new_fields is NewFields.IGNORE else WatchedColumns(documents, plans, value.new_fields)
    if value.format is ValueFormat.JSON_COLUMNS:
        return watched or documents, watched
    schemas = schemas_of(registry, value.format, value.subject)
    part = FramedColumns(plans, documents.decode, schemas, VALUE_SCHEMA_HEADER, watched=watched)
    return part, watched


def _key_part(
    settings: BatchSettings, plans: Sequence[ColumnPlan], registry: Mapping[str, str]
) -> JsonColumns | FramedColumns:
    key = settings.key
    if key and key.format in REGISTRY_FORMATS:
        schemas = schemas_of(registry, key.format, key.subject)
        return FramedColumns(plans, _documents(plans, key.format).decode, schemas, KEY_SCHEMA_HEADER)
    return JsonColumns(plans, place=plans[0].source)


def _documents(plans: Sequence[ColumnPlan], of: str) -> JsonColumns:
    if of == ValueFormat.JSON_COLUMNS:
        return JsonColumns(plans)
    return JsonColumns(plans, of_binary=of != ValueFormat.JSON_SCHEMA, place=plans[0].source)
