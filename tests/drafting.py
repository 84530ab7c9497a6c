"""Drafts of files for tests, and what the job's decoder makes of the records that they were drafted from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafka_ingest.draft.topic import DraftRequest, checked, drafted
from kafka_ingest.kafka.sample import SampledRecord
from kafka_ingest.pipeline_files.files import check_content
from kafka_ingest.settings import PipelineSettings
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
            headers=[{"name": name, "value": b""} for name in item.header_names or ()] or None,
            headers_readable=item.header_names is not None,
        )
        for item in records
    ]
    return decode(settings_of(text).batch, *rows)
