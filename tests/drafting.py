"""Drafts of files for tests, and what the job's decoder makes of the records that they were drafted from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from kafka_ingest.draft.topic import DraftRequest, checked, drafted
from kafka_ingest.errors import SchemaMissing
from kafka_ingest.kafka.registry import KEY_SCHEMA_HEADER, SCHEMA_KINDS, VALUE_SCHEMA_HEADER, RegisteredSchema
from kafka_ingest.kafka.sample import SampledRecord
from kafka_ingest.pipeline_files.files import check_content
from kafka_ingest.settings import PipelineSettings
from spark_jobs.decode import record as record_decoder
from spark_jobs.decode.framed import Schemas
from spark_jobs.decode.values import DecodedBatch
from tests.decoding import decode, record
from tests.kafka_records import NOON_MS

REQUEST = DraftRequest("shop.orders", "kafka_default", "postgres_default", 10_000)


def sampled(value: bytes | None = b"{}", **fields: Any) -> SampledRecord:
    """Return one record of a sample."""
    plain = {"partition": 0, "offset": 0, "timestamp_ms": NOON_MS, "key": None, "header_names": ()}
    return SampledRecord(**{**plain, "value": value, **fields})


def values_of(*values: bytes | str | None, **fields: Any) -> list[SampledRecord]:
    """Return records with these values and rising offsets."""
    payloads = [value.encode() if isinstance(value, str) else value for value in values]
    return [sampled(value, offset=offset, **fields) for offset, value in enumerate(payloads)]


def draft_text(records: Sequence[SampledRecord], request: DraftRequest = REQUEST) -> str:
    """Return the text of the draft of a sample, which ``check-config`` takes."""
    return checked(drafted(request, records, held=len(records)))


def missing_schema(schema_id: int | str) -> SchemaMissing:
    """Return what a registry says that does not know a schema."""
    return SchemaMissing("unknown", expected="schema", found=f"no schema {schema_id}", next_command="none")


class KnownSchemas:
    """A registry that knows these schemas, and counts how often each is asked for."""

    def __init__(self, schemas: Mapping[int | str, RegisteredSchema]) -> None:
        self._schemas = schemas
        self.asked: list[int | str] = []

    def schema(self, schema_id: int | str) -> RegisteredSchema:
        self.asked.append(schema_id)
        if schema_id not in self._schemas:
            raise missing_schema(schema_id)
        return self._schemas[schema_id]


def registered_draft(records: Sequence[SampledRecord], registry: KnownSchemas) -> str:
    """Return the draft of a sample with a registry, which ``check-config`` takes."""
    request = replace(REQUEST, registry="schema_registry_default")
    return checked(drafted(request, records, held=len(records), lookup=registry.schema))


def loads(text: str, records: Sequence[SampledRecord], registry: KnownSchemas, patch: pytest.MonkeyPatch) -> bool:
    """Tell whether the job makes a row of every record of the sample, with the file of its draft."""
    return rows_loaded(text, records, registry, patch) == len(records)


def rows_loaded(text: str, records: Sequence[SampledRecord], registry: KnownSchemas, patch: pytest.MonkeyPatch) -> int:
    """Return how many rows the job makes of a sample, none a dead letter, with the file of its draft."""

    def known(_: object, value_format: str, subject: str | None) -> Schemas:
        return Schemas(registry, SCHEMA_KINDS[value_format], subject, record_decoder.opened_schema)  # type: ignore[arg-type]

    patch.setattr(record_decoder, "schemas_of", known)
    found = decoded(text, records)
    assert found.dead == [], [dead.detail for dead in found.dead]
    return len(found.row_index)


def settings_of(text: str, tmp_name: str = "draft.yaml") -> PipelineSettings:
    """Return the settings of a draft."""
    from pathlib import Path

    return check_content(text.encode(), Path(tmp_name))


def decoded(text: str, records: Sequence[SampledRecord]) -> DecodedBatch:
    """Decode a sample as the file of its draft says."""
    rows = [
        record(
            item.value,
            key=item.key,
            timestamp_ms=item.timestamp_ms,
            headers=_headers(item),
            headers_readable=item.header_names is not None,
        )
        for item in records
    ]
    return decode(settings_of(text).batch, *rows)


def _headers(item: SampledRecord) -> list[dict[str, Any]] | None:
    named = {KEY_SCHEMA_HEADER: item.key_schema, VALUE_SCHEMA_HEADER: item.value_schema}
    return [{"name": name, "value": named.get(name, b"")} for name in item.header_names or ()] or None
