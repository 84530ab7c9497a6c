"""Files of others on the page are what their authors published, with their licences."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from tools.licences import licences_page

PAGE = Path(__file__).resolve().parents[2] / "plugins" / "kafka_ingest" / "page"
VENDOR = PAGE / "static" / "vendor"
LISTED = {name: digest for digest, name in map(str.split, (VENDOR / "SHA256").read_text().splitlines())}


def test_files_of_others_are_those_that_are_listed() -> None:
    found = {path.relative_to(VENDOR).as_posix() for path in VENDOR.rglob("*") if path.is_file()}
    assert found - {"SHA256"} == set(LISTED)
    for name, digest in LISTED.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == digest, name


def test_each_library_has_its_licence_beside_it_and_is_on_the_page_of_licences() -> None:
    text = licences_page("make generate")
    folders = {name.partition("/")[0] for name in LISTED}
    assert len(folders) == 2
    for folder in folders:
        assert f"{folder}/LICENSE" in LISTED
        name, _, version = folder.rpartition("-")
        assert re.search(rf"\[{name}\]\([^)]*\) {re.escape(version)} ", text, flags=re.IGNORECASE), folder


def test_every_file_that_a_template_names_is_there() -> None:
    texts = [path.read_text() for path in (PAGE / "templates").iterdir()]
    named = {name for text in texts for name in re.findall(r"links\.static\('([^']+)'", text)}
    assert len(named) > 5
    assert [name for name in named if not (PAGE / "static" / name).is_file()] == []
