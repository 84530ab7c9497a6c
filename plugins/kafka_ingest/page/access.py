"""Who reads the page, and what they may see."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol


class Reader(Protocol):
    """Whoever is logged in. Every method may block: the page calls it in a thread."""

    name: str

    def readable(self, dag_ids: Collection[str]) -> frozenset[str]:
        """Return those of the DAGs that this reader may read."""

    def may_see_payloads(self, dag_id: str) -> bool:
        """Tell whether this reader may see keys, values and headers of records of the DAG's pipelines."""
