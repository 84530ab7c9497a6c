"""What every type's rule looks like: one exact way to read a value, and a quick way for whole columns.

The exact way decides. The quick way may only take what it can prove to be the same; every value that it doubts is read
again in the exact way, together with its record. So both accept and refuse the same records, with the same values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

#: A value as Arrow takes it; its Arrow type is that of ``decoded.arrow_type``. Bytes in a text column are UTF-8.
Cell = bool | int | float | str | bytes


@dataclass(frozen=True, slots=True)
class QuickColumn:
    """A column read the quick way.

    Attributes:
        array: The values; null where the value is missing or null. At a doubtful position the value means nothing.
        doubtful: Positions to read again in the exact way.
    """

    array: pa.Array
    doubtful: Sequence[int] = field(default=())


class ValueRule(Protocol):
    """How JSON values become values of one column type."""

    @property
    def quick_type(self) -> Any:
        """The type that msgspec decodes a field to before :meth:`quick`; None is always allowed beside it."""

    def exact(self, raw: bytes) -> Cell:
        """Reads one JSON value that is not null, without white space around it.

        Raises:
            Misfit: The type cannot hold the value exactly.
        """

    def quick(self, values: Sequence[Any]) -> QuickColumn:
        """Reads a column of values of ``quick_type``, or ``None`` where a value is missing or null."""
