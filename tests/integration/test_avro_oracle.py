"""Decoder and Spark's ``from_avro`` agree on a sample of schemas: a reader that is neither ours nor the writer's."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from spark_jobs.decode.avro import AvroSchema
from tests.drawn_avro import SPECIAL, written
from tests.integration.run_spark import run_spark

ORACLE = Path(__file__).with_name("spark_avro_oracle.py")
RECORDS = 200
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Makes a value as fastavro writes it.
Make = Callable[[Random], Any]


def record(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": key, "type": of} for key, of in fields.items()]}


def logical(kind: Any, name: str, **more: Any) -> dict[str, Any]:
    return {**(kind if isinstance(kind, dict) else {"type": kind}), "logicalType": name, **more}


def text(random: Random) -> str:
    return "".join(random.choices('aä"\\\n€😀 ', k=random.randrange(6)))


def number(bits: int) -> Make:
    return lambda random: random.choice([random.randrange(-(2 ** (bits - 1)), 2 ** (bits - 1)), random.randrange(200)])


def real(random: Random) -> float:
    return random.choice([random.uniform(-1e9, 1e9), 0.5, -0.0, float("inf"), float("nan")])


def decimal(digits: int, scale: int) -> Make:
    return lambda random: Decimal(random.randrange(-(10**digits) + 1, 10**digits)).scaleb(-scale)


def moment(random: Random) -> datetime:
    return EPOCH + timedelta(microseconds=random.randrange(-(10**15), 4 * 10**15))


def local(random: Random) -> datetime:
    return moment(random).replace(tzinfo=None)


def in_millis(make: Make) -> Make:
    def made(random: Random) -> datetime:
        found: datetime = make(random)
        return found.replace(microsecond=found.microsecond // 1_000 * 1_000)

    return made


def day(random: Random) -> date:
    return moment(random).date()


FIXED_16 = {"type": "fixed", "name": "F16", "size": 16}
SIMPLE: dict[str, tuple[Any, Make]] = {
    "flag": ("boolean", lambda random: random.random() < 0.5),
    "small": ("int", number(32)),
    "large": ("long", number(64)),
    "narrow": ("float", lambda random: random.choice([1.5, 0.1, -(2.0**-140), 3.0e38])),
    "wide": ("double", real),
    "words": ("string", text),
    "raw": ("bytes", lambda random: random.randbytes(random.randrange(5))),
    "amount": (logical("bytes", "decimal", precision=20, scale=4), decimal(20, 4)),
    "sum": (logical(FIXED_16, "decimal", precision=38, scale=10), decimal(38, 10)),
    "born": (logical("int", "date"), day),
    "at_millis": (logical("long", "timestamp-millis"), in_millis(moment)),
    "at_micros": (logical("long", "timestamp-micros"), moment),
    "local_millis": (logical("long", "local-timestamp-millis"), in_millis(local)),
    "local_micros": (logical("long", "local-timestamp-micros"), local),
    "id": (logical("string", "uuid"), lambda random: UUID(int=random.getrandbits(128))),
    "kind": ({"type": "enum", "name": "K", "symbols": ["A", "B"]}, lambda random: random.choice("AB")),
}


def some(make: Make) -> Make:
    return lambda random: None if random.random() < 0.3 else make(random)


def several(make: Make) -> Make:
    return lambda random: [make(random) for _ in range(random.randrange(4))]


def by_name(make: Make) -> Make:
    return lambda random: {f"{text(random)}{n}": make(random) for n in range(random.randrange(4))}


POINT = record("Point", x="int", y=["null", "double"])
CONTAINERS: dict[str, tuple[Any, Make]] = {
    "numbers": ({"type": "array", "items": "long"}, several(number(64))),
    "maybe": ({"type": "array", "items": ["null", "string"]}, several(some(text))),
    "prices": ({"type": "map", "values": SIMPLE["amount"][0]}, by_name(decimal(20, 4))),
    "place": (["null", POINT], some(lambda random: {"x": number(32)(random), "y": some(real)(random)})),
    "path": ({"type": "array", "items": "Point"}, several(lambda random: {"x": random.randrange(9), "y": None})),
    "nested": ({"type": "map", "values": {"type": "array", "items": "int"}}, by_name(several(number(32)))),
}
SCHEMAS: dict[str, dict[str, tuple[Any, Make]]] = {
    "simple": SIMPLE,
    "nullable": {name: (["null", of], some(make)) for name, (of, make) in SIMPLE.items()},
    "containers": CONTAINERS,
}


@pytest.fixture(scope="module")
def samples() -> dict[str, tuple[Any, list[bytes]]]:
    """The schema and the records of each name."""
    random, found = Random(13), {}
    for name, fields in SCHEMAS.items():
        schema = record("R", **{key: of for key, (of, _) in fields.items()})
        values = ({key: make(random) for key, (_, make) in fields.items()} for _ in range(RECORDS))
        found[name] = (schema, [written(schema, value) for value in values])
    return found


@pytest.fixture(scope="module")
def read_by_spark(
    samples: dict[str, tuple[Any, list[bytes]]], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("oracle")
    asked = [
        {"schema": schema, "records": [base64.b64encode(of).decode() for of in records]}
        for schema, records in samples.values()
    ]
    (folder / "asked.json").write_text(json.dumps(asked), encoding="utf-8")
    run_spark(
        Path(__file__).with_name("spark_avro_oracle.py"), "spark-avro", folder / "asked.json", folder / "found.json"
    )
    return dict(zip(samples, json.loads((folder / "found.json").read_text(encoding="utf-8")), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEMAS)
def test_documents_say_what_from_avro_reads(
    name: str, samples: dict[str, tuple[Any, list[bytes]]], read_by_spark: dict[str, Any]
) -> None:
    schema, records = samples[name]
    documents = AvroSchema(json.dumps(schema)).documents(records)
    ours = [json.loads(of, parse_float=Decimal) for of in documents if isinstance(of, bytes)]
    assert len(ours) == RECORDS
    assert list(map(comparable, ours)) == list(map(comparable, read_by_spark[name]))


NAMES = {number: name for name, number in SPECIAL.items()}


def comparable(value: Any) -> Any:
    """Return numbers as decimals, and times with all six digits, whoever has written them."""
    match value:
        case {"decimal": str(digits)}:
            return Decimal(digits)
        case dict():
            return {key: comparable(item) for key, item in value.items()}
        case list():
            return [comparable(item) for item in value]
        case float() | Decimal():
            exact = Decimal(repr(value)) if isinstance(value, float) else value
            return NAMES.get(exact, exact)
        case str() if value[10:11] == "T" and value[13:14] == ":":
            return datetime.fromisoformat(value)
    return value
