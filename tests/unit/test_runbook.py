from __future__ import annotations

import re
from pathlib import Path

from kafka_ingest.errors import IngestError

RUNBOOK = Path(__file__).parents[2] / "docs" / "runbook.md"


def error_names(root: type[IngestError]) -> set[str]:
    return {name for child in root.__subclasses__() for name in (child.__name__, *error_names(child))}


def test_every_error_has_a_section_in_the_runbook_and_every_section_an_error() -> None:
    sections = set(re.findall(r"^## (\w+)$", RUNBOOK.read_text(), flags=re.MULTILINE))
    assert sections == error_names(IngestError)
