"""Keeps pyarrow from loading pandas."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from typing import Any


def start_arrow_without_pandas() -> None:
    """Loads pyarrow in a process that hands it no pandas objects.

    pyarrow looks for pandas when it makes its first value, and takes the 0.4 s to load it wherever it is installed
    (``_PandasAPIShim``, pyarrow 26). It looks once: afterwards it takes a pandas object for any other sequence.
    """
    if "pandas" in sys.modules:
        return
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        import pyarrow as pa

        pa.scalar(0)
    finally:
        sys.meta_path.remove(finder)


class _NoPandas(MetaPathFinder):
    def find_spec(self, fullname: str, *_: Any) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("not loaded for pyarrow", name=fullname)
