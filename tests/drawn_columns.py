"""What hypothesis draws of columns and of damage, for records of any format."""

from __future__ import annotations

from hypothesis import strategies as st

ANY_COLUMN = (
    *("boolean", "smallint", "integer", "bigint", "real", "double precision", "numeric", "numeric(5,1)", "text"),
    *("varchar(3)", "date", "time", "timestamp", "timestamptz", "uuid", "bytea", "jsonb", "integer[]", "text[]"),
)


@st.composite
def damaged(draw: st.DrawFn, payload: bytes, others: list[bytes]) -> bytes:
    """Draw the bytes of a record with a bit changed, an end cut off, or bytes behind or in it."""
    match draw(st.integers(0, 3)):
        case 0 if payload:
            place, bit = draw(st.integers(0, len(payload) - 1)), draw(st.integers(0, 7))
            return payload[:place] + bytes([payload[place] ^ 1 << bit]) + payload[place + 1 :]
        case 1:
            return payload[: draw(st.integers(0, len(payload)))]
        case 2:
            return payload + draw(st.sampled_from(others) | st.binary(max_size=3))
    place = draw(st.integers(0, len(payload)))
    return payload[:place] + draw(st.binary(min_size=1, max_size=11)) + payload[place:]
