"""Drawn schemas and records, some damaged: the quick way of Protobuf reads what the exact way reads, or doubts it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_ingest.column_types import parse_column_type
from kafka_ingest.settings import Conversion
from spark_jobs.decode import proto_columns, proto_leaves
from spark_jobs.decode.json import JsonColumns
from spark_jobs.decode.protobuf import ProtobufSchema
from spark_jobs.decode.values import ColumnPlan, QuickColumn
from tests.drawn_columns import ANY_COLUMN, damaged
from tests.drawn_protobuf import SCALARS, WRAPPERS, Field, Schema, Writer
from tests.protobuf_messages import message_class, varint

DECIMAL = "confluent.type.Decimal"
DECIMAL_FILE = "confluent/type/decimal.proto"
DECIMAL_TEXT = """
syntax = "proto3";
package confluent.type;
message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
"""
WELL_KNOWN = ["Timestamp", *WRAPPERS]
LEAVES = [*SCALARS, "Kind", DECIMAL, *(f"google.protobuf.{name}" for name in WELL_KNOWN)]
WHOLE = ("integer", "bigint", "numeric", "jsonb")
LIKELY: dict[str, tuple[str, ...]] = {
    **{name: WHOLE for name in SCALARS if "int" in name or "fixed" in name},
    "bool": ("boolean",),
    "string": ("text", "varchar(3)", "jsonb"),
    "bytes": ("bytea", "jsonb"),
    "float": ("real", "double precision", "jsonb"),
    "double": ("double precision", "jsonb"),
    "Kind": ("text", "jsonb"),
    "Inner": ("jsonb",),
    DECIMAL: ("numeric", "numeric(9,2)", "jsonb"),
    "google.protobuf.Timestamp": ("timestamptz", "text", "date", "jsonb"),
}


class QuickSchema(Schema):
    """A schema of what whole columns can be read of."""

    @property
    def text(self) -> str:
        messages = "".join(f"message {name} {{ {' '.join(map(str, of))} }}" for name, of in self.messages.items())
        imports = "".join(f'import "google/protobuf/{name}.proto";' for name in ("timestamp", "wrappers"))
        uses = f"message Uses {{ optional google.protobuf.Timestamp a = 1; optional {DECIMAL} b = 2;"
        uses += " optional google.protobuf.BoolValue c = 3; }"
        kind = "enum Kind { ZERO = 0; ONE = 1; MINUS_FIVE = -5; }"
        head = f'syntax = "{self.syntax}"; package drawn; {imports} import "{DECIMAL_FILE}";'
        return f"{head} {messages} {kind} {uses}"


class QuickWriter(Writer):
    """Fills decimals, too."""

    def _fill(self, message: Any, type_name: str, depth: int) -> None:
        if type_name != DECIMAL:
            super()._fill(message, type_name, depth)
            return
        message.value = self._draw(st.binary(max_size=9))
        message.scale = self._draw(st.sampled_from([2, 2, 2, 0, 7, -1]))


@st.composite
def quick_schemas(draw: st.DrawFn) -> QuickSchema:
    syntax = draw(st.sampled_from(["proto2", "proto3"]))
    labels = ["optional", "optional", "repeated", "oneof", "required" if syntax == "proto2" else ""]
    types = {"Outer": [*LEAVES, *["Inner"] * 4], "Inner": LEAVES}
    messages = {}
    for message, of in types.items():
        count = draw(st.integers(0, 6))
        numbers = draw(st.lists(st.integers(1, 40), min_size=count, max_size=count, unique=True))
        messages[message] = [
            Field(draw(st.sampled_from(labels)), draw(st.sampled_from(of)), "", f"f{number}", number)
            for number in numbers
        ]
    return QuickSchema(syntax, messages)


@st.composite
def plans_of(draw: st.DrawFn, schema: Schema) -> list[ColumnPlan]:
    paths: list[tuple[tuple[str, ...], tuple[str, ...]]] = [(("missing",), ("text",))]
    for of in schema.messages["Outer"]:
        paths.append(((of.name,), _likely(of)))
        if of.type == "Inner" and of.label != "repeated":
            paths += [((of.name, below.name), _likely(below)) for below in schema.messages["Inner"]]
    plans = []
    for number, (path, likely) in enumerate(draw(st.permutations(paths))):
        name = draw(st.sampled_from(likely) | st.sampled_from(likely) | st.sampled_from(ANY_COLUMN))
        conversion = Conversion.EPOCH_SECONDS if name == "timestamptz" and draw(st.booleans()) else None
        plans.append(ColumnPlan(f"c{number}", parse_column_type(name), path, conversion=conversion))
    return plans


def _likely(field: Field) -> tuple[str, ...]:
    if field.label == "repeated":
        return ("jsonb", "text[]", "bigint[]")
    inner = WRAPPERS.get(field.type.removeprefix("google.protobuf."), field.type)
    return LIKELY[inner]


@st.composite
def groups(draw: st.DrawFn) -> tuple[QuickSchema, list[bytes], list[ColumnPlan]]:
    schema = draw(quick_schemas())
    outer = message_class(schema.text, "drawn.Outer", {DECIMAL_FILE: DECIMAL_TEXT})
    payloads = []
    for _ in range(draw(st.integers(1, 6))):
        message = outer()
        QuickWriter(draw, schema).fill(message, "Outer")
        payloads.append(message.SerializeToString())
    some = [draw(damaged(payload, payloads)) if draw(st.integers(0, 3)) == 0 else payload for payload in payloads]
    frames = [b"\x02\x02" if draw(st.integers(0, 19)) == 0 else b"\0" for _ in some]
    return schema, [frame + payload for frame, payload in zip(frames, some, strict=True)], draw(plans_of(schema))


def both_ways(
    schema: ProtobufSchema, payloads: list[bytes], plans: list[ColumnPlan]
) -> tuple[list[str | None], list[str | None] | None]:
    """Return the rows of both ways; ``None`` for one that is refused, or doubtful."""
    documents = schema.documents(payloads)
    fits = [document if isinstance(document, bytes) else b"" for document in documents]
    part = JsonColumns(plans, quick=False, of_binary=True).decode(pa.array(fits, pa.large_binary()))
    rows = list(zip(*(array.to_pylist() for array in part.arrays), strict=True))
    exact = [None if number in part.decode_errors else _row(row) for number, row in enumerate(rows)]
    array = pa.array([b"x", *payloads, b"y"], pa.large_binary())[1:-1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(proto_columns, "FEWEST_RECORDS", 1)
        patch.setattr(proto_leaves, "FEWEST_RECORDS", 1)
        columns = proto_columns.ProtobufColumns(schema).columns(array, plans)
    if columns is None:
        return exact, None
    for column, of in zip(columns, part.arrays, strict=True):
        assert column.array.type == of.type
        assert column.array.validate(full=True) is None
    return exact, rows_of(columns)


def rows_of(columns: list[QuickColumn]) -> list[str | None]:
    doubtful = {row for column in columns for row in column.doubtful}
    rows = zip(*(column.array.to_pylist() for column in columns), strict=True)
    return [None if number in doubtful else _row(row) for number, row in enumerate(rows)]


def _row(row: tuple[Any, ...]) -> str:
    return repr(tuple(map(_without_zeros, row)))


def _without_zeros(value: Any) -> Any:
    """Write the fraction of a second of a time as short as it can be."""
    is_time = isinstance(value, str) and value[10:11] == "T" and value[19:20] == "." and value[-1:] == "Z"
    return value.rstrip("Z").rstrip("0").rstrip(".") + "Z" if is_time else value


@given(groups())
def test_the_quick_way_reads_what_the_exact_way_reads(
    group: tuple[QuickSchema, list[bytes], list[ColumnPlan]],
) -> None:
    schema, payloads, plans = group
    exact, quick = both_ways(ProtobufSchema(schema.text, {}), payloads, plans)
    assert quick is not None or not payloads[0].startswith(b"\0")
    for slow, fast in zip(exact, quick or exact, strict=True):
        assert fast in (None, slow)


FIXED = ProtobufSchema(
    'syntax = "proto3"; message A { B a = 1; repeated sint32 b = 2; string c = 3; repeated B d = 4; fixed32 e = 5;'
    " oneof o { bytes f = 6; uint64 g = 7; } repeated double h = 8; }"
    " message B { string a = 1; bool b = 2; int32 c = 3; }",
    {},
)
FIXED_PLANS = [
    ColumnPlan(name, parse_column_type("jsonb"), (name,)) for name in ("a", "b", "c", "d", "e", "f", "g", "h")
]
#: Tags of the fields with each wire type, and small numbers: what a reader takes for more than it is.
PIECES = st.one_of(
    st.builds(lambda number, wire: varint(number << 3 | wire), st.integers(0, 9), st.integers(0, 5)),
    st.builds(varint, st.integers(0, 12) | st.integers(0, 2**70)),
    st.binary(max_size=9),
)


@given(st.lists(st.lists(PIECES, max_size=8).map(b"".join), min_size=1, max_size=4))
def test_bytes_that_are_no_message_are_never_one(messages: list[bytes]) -> None:
    exact, quick = both_ways(FIXED, [b"\0" + message for message in messages], FIXED_PLANS)
    assert quick is not None
    for slow, fast in zip(exact, quick, strict=True):
        assert fast in (None, slow)
