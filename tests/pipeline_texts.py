"""Texts of pipeline files: a sound one to change, and the faults that a text has."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_ingest.errors import ConfigError
from kafka_ingest.pipeline_files.files import load_pipeline

# A sound file, one top-level key a line, so that a test can say which line it changes.
_SOUND = {
    "pipeline": "orders",
    "schedule": '"@hourly"',
    "kafka": "{topics: [orders]}",
    "first_run": "earliest",
    "value": "{format: json, columns: [{name: id, type: bigint}]}",
    "target": "{table: shop.orders, create_table: true}",
}


def pipeline_text(**changes: str | None) -> str:
    lines = {key: value for key, value in (_SOUND | changes).items() if value is not None}
    return "".join(f"{key}: {value}\n" for key, value in lines.items())


def faults_of(path: Path, text: str) -> list[str]:
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_pipeline(path)
    return [line.removeprefix(f"{path}:") for line in caught.value.found.splitlines()]
