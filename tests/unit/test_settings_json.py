from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kafka_ingest.errors import VersionSkew
from kafka_ingest.postgres.rows import (
    first_run_from_json,
    first_run_to_json,
    settings_from_json,
    settings_hash,
    settings_to_json,
)
from kafka_ingest.settings import (
    ColumnSettings,
    Conversion,
    DeadLetterLimits,
    FirstRun,
    FirstRunKind,
    KeyFormat,
    KeySettings,
    NewFields,
    PartitionOffset,
    ValueFormat,
    ValueSettings,
)
from tests.builders import batch_settings

RICH = replace(
    batch_settings(),
    value=ValueSettings(
        ValueFormat.JSON_COLUMNS,
        (
            ColumnSettings("größe", "numeric(12,2)", ("item", "a.b"), required=True),
            ColumnSettings("note", "character varying(40)", ("note",)),
            ColumnSettings("moved", "text", ("new",), other_paths=(("old", "a.b"),), from_key=True),
            ColumnSettings("at", "timestamp with time zone", ("at",), conversion=Conversion.EPOCH_MILLIS),
        ),
    ),
    key=KeySettings(KeyFormat.TEXT, "order_key"),
    headers_column="headers",
    dead_letters=DeadLetterLimits(max_ratio=0.1),
)


@pytest.mark.parametrize("settings", [batch_settings(), RICH])
def test_settings_come_back_exactly(settings: object) -> None:
    assert settings_from_json(settings_to_json(settings)) == settings  # type: ignore[arg-type]


def test_settings_come_back_from_reordered_and_spaced_json() -> None:
    stored = json.dumps(json.loads(settings_to_json(RICH)), indent=2, sort_keys=False)
    assert settings_from_json(stored) == RICH


def test_the_text_is_canonical() -> None:
    text = settings_to_json(RICH)
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def test_a_column_without_conversion_and_other_paths_is_written_as_before_there_were_any() -> None:
    """Else every open batch would be planned anew when the package is upgraded."""
    plain, moved, converted = json.loads(settings_to_json(RICH))["value"]["columns"][1:]
    assert plain == {"name": "note", "path": ["note"], "required": False, "type": "character varying(40)"}
    assert (moved["other_paths"], moved["from_key"]) == ([["old", "a.b"]], True)
    assert converted["conversion"] == "epoch_millis"


def test_settings_that_ignore_new_fields_are_written_as_before_there_was_a_choice() -> None:
    assert "new_fields" not in settings_to_json(RICH)
    adding = replace(RICH, value=replace(RICH.value, new_fields=NewFields.ADD_COLUMN))
    assert json.loads(settings_to_json(adding))["value"]["new_fields"] == "add_column"
    assert settings_from_json(settings_to_json(adding)) == adding
    assert settings_hash(adding) != settings_hash(RICH)


def test_the_hash_follows_every_change_and_nothing_else() -> None:
    assert settings_hash(RICH) == settings_hash(replace(RICH))
    assert settings_hash(RICH) != settings_hash(replace(RICH, headers_column="h"))
    assert len(settings_hash(RICH)) == 64


@pytest.mark.parametrize(
    "first_run",
    [
        FirstRun(FirstRunKind.EARLIEST),
        FirstRun(FirstRunKind.TIMESTAMP, timestamp_ms=1_700_000_000_000),
        FirstRun(FirstRunKind.OFFSETS, offsets=(PartitionOffset("orders", 0, 5), PartitionOffset("orders", 1, 0))),
    ],
)
def test_a_first_run_comes_back_exactly(first_run: FirstRun) -> None:
    assert first_run_from_json(first_run_to_json(first_run)) == first_run


def test_settings_of_another_version_are_named_as_such() -> None:
    stored = json.loads(settings_to_json(RICH))
    del stored["target"]
    with pytest.raises(VersionSkew, match="target"):
        settings_from_json(json.dumps(stored))
