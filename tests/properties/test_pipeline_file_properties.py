"""Whatever stands in a pipeline file, reading it gives settings or a list of faults, never another error."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from kafka_ingest.errors import ConfigError
from kafka_ingest.pipeline_files.document import keys_of, models_in
from kafka_ingest.pipeline_files.files import load_pipeline
from kafka_ingest.pipeline_files.model import PipelineFile


def _keys(model: type[BaseModel]) -> Iterator[str]:
    for key, field in keys_of(model).items():
        yield key
        for section in models_in(field.annotation):
            yield from _keys(section)


_SOUND: dict[str, Any] = {
    "pipeline": "orders",
    "schedule": "@hourly",
    "kafka": {"topics": ["orders"]},
    "first_run": {"offsets": {"orders": {}}},
    "value": {"format": "json", "columns": [{"name": "id", "type": "bigint"}, {"name": "a", "type": "text"}]},
    "target": {"table": "shop.orders"},
}
_KNOWN = sorted(set(_keys(PipelineFile)))
_WORDS = [
    "$",
    "$.a",
    "a.b",
    "int",
    "text[]",
    "json",
    "raw",
    "row",
    "earliest",
    "@daily",
    "* * * * *",
    "2025-01-01",
    "(",
]
_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(_WORDS)
_MAPPING_KEYS = st.sampled_from(_KNOWN) | st.text(max_size=4)
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_MAPPING_KEYS, inner, max_size=3)
)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _places(value[key])


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pipelines") / "pipeline.yaml"


def _error_of(path: Path) -> ConfigError | None:
    try:
        load_pipeline(path)
    except ConfigError as error:
        return error
    return None


def _load_or_list_faults(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    error = _error_of(path)
    if error is not None:
        lines = error.found.splitlines()
        assert lines
        assert all(re.match(rf"{re.escape(str(path))}:[0-9]+: ", line) for line in lines), error.found


@given(data=st.data())
def test_a_sound_file_with_anything_in_one_place_gives_settings_or_faults(path: Path, data: st.DataObject) -> None:
    changed = json.loads(json.dumps(_SOUND))
    container, key = data.draw(st.sampled_from(list(_places(changed))))
    container[key] = data.draw(_VALUES)
    _load_or_list_faults(path, json.dumps(changed).encode())


@given(changes=st.dictionaries(st.sampled_from(sorted(PipelineFile.model_fields)), _VALUES))
def test_any_sections_together_give_settings_or_faults(path: Path, changes: dict[str, Any]) -> None:
    _load_or_list_faults(path, json.dumps(_SOUND | changes).encode())


@given(content=st.binary(max_size=60) | st.text(alphabet="ab:[]{}-?!&*<>|'\"#%\n\t ,~", max_size=40).map(str.encode))
def test_any_bytes_give_faults(path: Path, content: bytes) -> None:
    _load_or_list_faults(path, content)
