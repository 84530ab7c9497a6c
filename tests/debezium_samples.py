"""Change events that were recorded from a running chain (``tests/data/debezium``)."""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka_ingest.kafka.registry import RegisteredSchema

_FOLDER = Path(__file__).parent / "data" / "debezium"

#: Names of the files.
FILES = sorted(path.stem for path in _FOLDER.glob("*.jsonl"))


@dataclass(frozen=True)
class RecordedEvent:
    """One record: its key, value and headers."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


def recorded_events(name: str) -> Mapping[str, Sequence[RecordedEvent]]:
    """Return the records of a file by topic, in their order."""
    topics: defaultdict[str, list[RecordedEvent]] = defaultdict(list)
    for line in (_FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        headers = [(header["name"], _data(header, "value")) for header in row["headers"] or ()]
        topics[row["topic"]].append(RecordedEvent(_data(row, "key"), _data(row, "value"), headers))
    return topics


class RecordedRegistry:
    """The schemas that the Avro records name."""

    def schema(self, schema_id: int | str) -> RegisteredSchema:
        """Return a schema by its number."""
        found = json.loads((_FOLDER / "avro-schemas.json").read_text(encoding="utf-8"))[str(schema_id)]
        return RegisteredSchema("AVRO", found if isinstance(found, str) else json.dumps(found), {})


def _data(row: Mapping[str, Any], name: str) -> bytes | None:
    if f"{name}_base64" in row:
        return base64.b64decode(row[f"{name}_base64"])
    text = row.get(name)
    return None if text is None else str(text).encode()
