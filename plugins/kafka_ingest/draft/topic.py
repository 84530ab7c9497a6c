"""From a topic to the draft of its pipeline file: read a sample, describe it, write the file, and check it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import astuple, dataclass, replace
from pathlib import Path

from kafka_ingest.column_types import RESERVED_COLUMNS
from kafka_ingest.connections import ConnectionValues, kafka_settings_of
from kafka_ingest.draft.fields import share
from kafka_ingest.draft.schemas import Lookup, NamedSchemas, Registered, named_schemas, registered
from kafka_ingest.draft.shapes import (
    BYTES,
    FRAMED,
    MAX_KEY_COLUMNS,
    OBJECT,
    OTHER_JSON,
    TEXT,
    Described,
    Shape,
    described,
    from_key,
    of_key,
    quoted_names,
    shape_of,
)
from kafka_ingest.draft.values import is_text
from kafka_ingest.draft.writing import Draft, Whole, pipeline_name, text_of
from kafka_ingest.errors import ConfigError, SchemaMissing
from kafka_ingest.kafka.client import client_config
from kafka_ingest.kafka.log import KafkaLog
from kafka_ingest.kafka.registry import SchemaRegistry
from kafka_ingest.kafka.sample import SampledRecord, TopicSampler, windows_of
from kafka_ingest.pipeline_files.files import check_content
from kafka_ingest.protocol.log import TopicState
from kafka_ingest.protocol.log_faults import Purpose, grant_read, missing_topic
from kafka_ingest.settings import IsolationLevel, MetadataColumns, TopicSelection

_RESERVED = RESERVED_COLUMNS.union(name for name in astuple(MetadataColumns()) if name)

#: 0001-01-01 and 9999-12-31 in ms since 1970: a record of another time is a dead letter, whatever a file says.
_FIRST_TIME_MS, _LAST_TIME_MS = -62_135_596_800_000, 253_402_300_799_999


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """What is to be drafted.

    Attributes:
        topic: The topic.
        kafka_connection: Its connection.
        target_connection: Connection of the table.
        records: Most records that are looked at.
        target: Schema and table; by default ``public`` and the name of the pipeline.
        pipeline: Name of the pipeline; by default made of the topic's.
        registry: Connection of the schema registry, for records that name schemas; empty without one.
    """

    topic: str
    kafka_connection: str
    target_connection: str
    records: int
    target: str = ""
    pipeline: str = ""
    registry: str = ""

    def empty(self) -> Draft:
        """Return the draft without anything that the topic tells."""
        name = self.pipeline or pipeline_name(self.topic)
        target = self.target or f"public.{name}"
        return Draft(
            self.topic,
            name,
            self.kafka_connection,
            target,
            self.target_connection,
            registry=self.registry,
            value=Whole("raw", "payload"),
            reserved=_RESERVED,
        )


def reading_config(request: DraftRequest, values: ConnectionValues) -> Mapping[str, str]:
    """Return the librdkafka configuration of a draft, secrets included.

    Raises:
        ConfigError: The connection is none of Kafka's, or librdkafka refuses its settings.
    """
    return client_config(
        kafka_settings_of(values),
        IsolationLevel.READ_COMMITTED,
        client_id="kafka_ingest.draft",
        connection=request.kafka_connection,
    )


def draft_of_topic(
    request: DraftRequest,
    config: Mapping[str, str],
    note: Callable[[str], None],
    registry: Mapping[str, str] | None = None,
) -> str:
    """Return the text of a pipeline file that loads the records of a topic. Creates and commits nothing.

    Args:
        request: What is to be drafted.
        config: librdkafka configuration under ``read_committed``.
        note: Told how far it is.
        registry: Configuration of the schema registry, secrets included; ``None`` without one.

    Raises:
        ConfigError: A name in the request is none, the topic is empty, or Kafka or the registry refuses this client.
        TopicMissing: There is no such topic.
        BrokerUnavailable: Kafka does not answer.
        RegistryUnavailable: The registry does not answer.
        SchemaMissing: The registry does not know a schema that values name.
    """
    _require_names(request)
    if registry is None:
        return checked(_drafted(request, config, note, None))
    with closing(SchemaRegistry(registry)) as schemas:
        return checked(_drafted(request, config, note, schemas.schema))


def _drafted(
    request: DraftRequest, config: Mapping[str, str], note: Callable[[str], None], lookup: Lookup | None
) -> Draft:
    note(f"asking for the partitions of {request.topic}")
    with KafkaLog(config, timeout_seconds=ANSWER_SECONDS) as log:
        found = log.snapshot(TopicSelection(names=(request.topic,)), IsolationLevel.READ_COMMITTED)
    ends = _ends(request, found.topics.get(request.topic), note)
    windows = windows_of(ends, request.records)
    note(f"reading at most {request.records:,} records of {len(ends)} partitions")
    records = TopicSampler(config, request.topic, note).read(windows)
    held = sum(end - start for start, end in ends.values())
    if not records:
        raise ConfigError(
            f"there is nothing in topic {request.topic} to draft a file from",
            expected="at least one committed record",
            found=f"{len(ends)} partitions with {held:,} offsets, and no record that a pipeline would read",
            next_command="draft again when the topic has records, or write the file by hand: docs/configuration.md",
        )
    note(f"describing {len(records):,} records")
    return drafted(request, records, held=held, lookup=lookup)


#: A person waits for it; a broker that is busy answers sooner.
ANSWER_SECONDS = 15.0


def _require_names(request: DraftRequest) -> None:
    try:
        checked(request.empty())
    except ConfigError as error:
        raise ConfigError(
            f"no pipeline file of topic {request.topic} can have these names",
            expected="names that a pipeline file takes",
            found=error.found,
            next_command="correct TOPIC, --pipeline, --target, --connection or --target-connection",
        ) from None


def _ends(
    request: DraftRequest, topic: TopicState | None, note: Callable[[str], None]
) -> Mapping[int, tuple[int, int]]:
    if topic is None:
        raise missing_topic(request.topic).error(Purpose.BEGIN)
    if topic.may_read is False:
        raise ConfigError(
            f"topic {request.topic} may not be read",
            expected="the right READ",
            found="a right to describe it, without READ",
            next_command=grant_read(request.topic, request.kafka_connection),
        )
    ends = {}
    for partition in topic.partitions.values():
        if partition.log_start_offset is None or partition.end_offset is None:
            note(f"partition {partition.partition} is left out: {partition.fault or 'it has no leader'}")
        else:
            ends[partition.partition] = (partition.log_start_offset, partition.end_offset)
    return ends


def checked(draft: Draft) -> str:
    """Return the text of a draft, which ``check-config`` takes.

    Raises:
        ConfigError: It does not: a name that was given for the pipeline, its connections or its table is none.
    """
    text = text_of(draft)
    check_content(text.encode(), Path(f"draft of {draft.topic}"))
    return text


# What the records say.


def drafted(
    request: DraftRequest, records: Sequence[SampledRecord], *, held: int, lookup: Lookup | None = None
) -> Draft:
    """Draft the file of a sample: all of its records become rows, none a dead letter.

    Args:
        request: What is asked for.
        records: The sample, by partition and offset; at least one.
        held: Offsets in the topic.
        lookup: Where registered schemas are; ``None`` without a registry.

    Raises:
        RegistryUnavailable, ConfigError, SchemaMissing, RetryLater: A schema, or what it reads, cannot be had.
    """
    draft = replace(request.empty(), comments=_heading(records, held))
    shape = shape_of((_place(record), record.value) for record in records if record.value is not None)
    named = named_schemas((record.value, record.value_schema) for record in records if record.value is not None)
    if lookup and named.named >= _NEARLY_ALL * max(1, named.count):
        draft = _with_schemas(draft, registered(named, lookup), named, shape)
    else:
        draft = _with_value(draft, records, shape, named)
    draft = _with_key(draft, records, lookup)
    draft = _with_headers(draft, records)
    return _with_tombstones(draft, records)


def _heading(records: Sequence[SampledRecord], held: int) -> tuple[str, ...]:
    partitions = len({record.partition for record in records})
    odd = [record for record in records if not _has_storable_time(record)]
    heading = [
        f"Drafted from {len(records):,} records, of the beginning, the middle and the end of each partition.",
        f"Partitions with records: {partitions:,}. Offsets in the log: {held:,}.",
        "A draft guesses: read it, and correct what you know better.",
        "Then: python -m kafka_ingest check-config FILE",
    ]
    if odd:
        heading.append(f"{len(odd):,} records have times outside the years 1 to 9999: each will be a dead letter.")
    return tuple(heading)


def _has_storable_time(record: SampledRecord) -> bool:
    return record.timestamp_ms is None or _FIRST_TIME_MS <= record.timestamp_ms <= _LAST_TIME_MS


#: Fewer other values than this are faults of producers, most likely: so many dead letters do not stop a batch
#: (``dead_letters.max_ratio``).
_NEARLY_ALL = 0.95


def _with_schemas(draft: Draft, of: Registered, named: NamedSchemas, shape: Shape) -> Draft:
    """Take the columns of schemas, where they read every value seen; as a comment where they read nearly all."""
    found = of.found
    draft = replace(draft, columns_format=of.format, columns=found.columns, left_out=found.left_out)
    draft = replace(draft, are_changes=found.are_changes)
    if of.format and found.columns and not of.unread:
        comments = (f"columns come from the schemas that the values name: {named.told()}", *found.comments)
        return replace(draft, value=None, value_comments=comments)
    comments = (*_schemas_told(named, draft.registry), *of.comments, _UNTOUCHED)
    draft = replace(draft, value=Whole("raw", "payload", (f"values: {shape.told()}", *comments)))
    is_few = of.format and of.unread <= (1 - _NEARLY_ALL) * named.count
    return draft if is_few else replace(draft, columns_format="json", columns=(), left_out=())


_UNTOUCHED = "raw keeps the bytes untouched, whatever they are"


def _schemas_told(named: NamedSchemas, registry: str) -> Iterator[str]:
    if named.named:
        yield f"schema ids: {named.told()}"
        if not registry:
            yield "draft again with --registry CONNECTION, if the registry that CONNECTION leads to has these schemas"


def _with_value(draft: Draft, records: Sequence[SampledRecord], shape: Shape, named: NamedSchemas) -> Draft:
    if not shape.are(OBJECT):
        draft = replace(draft, value=_whole_value(shape, named, draft.registry))
        if shape.count and shape.kinds[OBJECT] >= _NEARLY_ALL * shape.count:
            objects = [value for value in _values(records) if shape_of([("", value)]).are(OBJECT)]
            found = described(objects, shape_of(("", value) for value in objects))
            draft = replace(draft, columns=found.columns, left_out=found.left_out)
        return draft
    found = described(_values(records), shape)
    whole = None if found.columns else _whole_value(shape, named, draft.registry)
    draft = replace(draft, value=whole, columns=found.columns, left_out=found.left_out, value_comments=found.comments)
    return replace(draft, are_changes=found.are_changes)


def _values(records: Sequence[SampledRecord]) -> Iterator[bytes]:
    return (record.value for record in records if record.value is not None)


def _place(record: SampledRecord) -> str:
    return f"at partition {record.partition} offset {record.offset}"


def _whole_value(shape: Shape, named: NamedSchemas, registry: str) -> Whole:
    """Choose the format of values that are not all objects with columns."""
    seen = f"values: {shape.told()}" if shape.count else "every value seen is null"
    if shape.are(OBJECT, OTHER_JSON) and not shape.odd:
        return Whole("json", "payload", (seen,))
    if shape.are(TEXT) and not shape.unstorable_texts and not named.in_headers:
        return Whole("text", "payload", (seen,))
    comments = [seen, *_schemas_told(named, registry)]
    if shape.odd:
        comments.append(f"{share(shape.odd, shape.count)} hold what jsonb cannot, such as U+0000")
    return Whole("raw", "payload", (*comments, _UNTOUCHED))


def _with_key(draft: Draft, records: Sequence[SampledRecord], lookup: Lookup | None) -> Draft:
    keys = [(_place(record), record.key) for record in records if record.key is not None]
    if not keys:
        return replace(draft, key_comments=("no record seen has a key",))
    without = len(records) - len(keys)
    told = (f"records without a key: {share(without, len(records))}",) if without else ("every record seen has a key",)
    shape = shape_of(keys)
    named = named_schemas((record.key, record.key_schema) for record in records if record.key is not None)
    if named.named and not shape.are(OBJECT):
        return _with_named_key(draft, named, shape, told, lookup)
    if draft.value is None and shape.are(OBJECT):
        found = of_key((key for _, key in keys), shape)
        if found.columns:
            return _with_key_columns(draft, found, f"keys are JSON objects, with columns above; {told[0]}")
    return replace(draft, key=_whole_key(shape, told))


def _with_named_key(
    draft: Draft, named: NamedSchemas, shape: Shape, told: tuple[str, ...], lookup: Lookup | None
) -> Draft:
    """Take the columns of schemas where they read every key seen, else the whole keys."""
    seen = tuple(_schemas_told(named, draft.registry))
    if lookup and draft.value is None and not named.unnamed:
        try:
            of = registered(named, lookup, most=MAX_KEY_COLUMNS)
        except SchemaMissing as missing:
            # A long of eight bytes looks like it, and a wrong registry fails with the values.
            seen = (*seen, f"not so in {draft.registry}: {missing.found}")
        else:
            if of.format and of.found.columns and not of.unread:
                told_here = f"columns of the keys come from their schemas: {named.told()}; {told[0]}"
                draft = _with_key_columns(draft, from_key(of.found), told_here)
                return replace(draft, key_format=of.format)
            seen = (*seen, *of.comments)
    return replace(draft, key=_whole_key(shape, (*told, *seen), is_named=named.in_headers > 0))


def _with_key_columns(draft: Draft, found: Described, told: str) -> Draft:
    left_out = tuple(replace(member, why=f"of the key: {member.why}") for member in found.left_out)
    first, *others = found.columns
    columns = (replace(first, comments=("from the key", *first.comments)), *others)
    return replace(
        draft,
        columns=(*columns, *draft.columns),
        left_out=(*draft.left_out, *left_out),
        key_comments=(told,),
    )


def _whole_key(shape: Shape, told: tuple[str, ...], *, is_named: bool = False) -> Whole:
    is_json = shape.are(OBJECT, OTHER_JSON)
    if is_json and not shape.odd and (shape.kinds[OBJECT] or shape.are_strings):
        return Whole("json", "key", (*told, f"keys: {shape.told()}"))
    if not shape.kinds[BYTES] and not shape.kinds[FRAMED] and not shape.unstorable_texts and not is_named:
        return Whole("text", "key", told)
    return Whole("raw", "key", (*told, f"keys: {shape.told()}"))


def _with_headers(draft: Draft, records: Sequence[SampledRecord]) -> Draft:
    names = Counter(name for record in records for name in record.header_names or ())
    unreadable = sum(record.header_names is None for record in records)
    refused = unreadable or sum(not is_text(name) for name in names)
    if refused:
        what = "have header names that are not UTF-8" if unreadable else "header names hold U+0000"
        comment = f"headers are left out: {refused:,} {what}, and a headers column would make them dead letters"
        return replace(draft, headers_comment=comment)
    if not names:
        return draft
    having = sum(bool(record.header_names) for record in records)
    comment = f"headers in {share(having, len(records))}: {quoted_names(names)}"
    return replace(draft, has_headers=True, headers_comment=comment)


def _with_tombstones(draft: Draft, records: Sequence[SampledRecord]) -> Draft:
    nulls = sum(record.value is None for record in records)
    if not nulls:
        return draft
    seen = f"null values (tombstones): {share(nulls, len(records))}"
    if draft.value is None and draft.are_changes:
        comment = (
            f"{seen}; each follows an event with op d, unless compaction took it: count only counts, row keeps them"
        )
        return replace(draft, tombstones="count", tombstones_comment=comment)
    comment = f"{seen}: row stores them with NULL in the columns of the value, count only counts them"
    return replace(draft, tombstones="row", tombstones_comment=comment)
