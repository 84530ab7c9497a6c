"""The lock files hold every package by hash, and what the verification of them tells."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tools import requirements_lock
from tools.requirements_lock import CONSTRAINTS, LOCKS, RUNTIME, pins

CHECKOUT = Path(__file__).resolve().parents[2]
EXECUTOR = CHECKOUT / "requirements-executor.txt"


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The lock files and their sources in a folder of their own, which the tool takes for the checkout."""
    for name in {CONSTRAINTS, *(lock.made for lock in LOCKS), *(lock.source for lock in LOCKS)}:
        shutil.copy(CHECKOUT / name, tmp_path)
    monkeypatch.setattr(requirements_lock, "CHECKOUT", tmp_path)
    return tmp_path


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.made)
def test_every_package_is_pinned_and_has_the_hash_of_a_file(lock: requirements_lock.Lock) -> None:
    entries = dict(pins(CHECKOUT / lock.made))
    assert len(entries) > 20
    assert [str(pin) for pin in entries if not re.fullmatch(r"==[^*,]+", str(pin.specifier))] == []
    assert [str(pin) for pin, hashes in entries.items() if not hashes] == []
    assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", found) for hashes in entries.values() for found in hashes)


def test_the_constraints_are_the_versions_of_the_lock_file_without_hashes() -> None:
    constraints = dict(pins(CHECKOUT / CONSTRAINTS))
    assert set(map(str, constraints)) == {str(pin) for pin, _ in pins(CHECKOUT / RUNTIME.made)}
    assert set(constraints.values()) == {frozenset()}


def test_executors_get_what_the_package_needs_at_the_versions_of_the_airflow_side() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = {Requirement(line).name for line in project["dependencies"] + project["optional-dependencies"]["registry"]}
    executor = {pin.name: hashes for pin, hashes in pins(EXECUTOR)}
    assert asked <= set(executor)
    assert "apache-airflow-core" not in executor
    versions = {pin.name: pin.specifier for pin, _ in pins(CHECKOUT / RUNTIME.made)}
    assert [str(pin) for pin, _ in pins(EXECUTOR) if versions[pin.name] != pin.specifier] == []


def test_lock_files_name_no_package_index() -> None:
    texts = [(CHECKOUT / lock.made).read_text(encoding="utf-8") for lock in LOCKS]
    assert [text for text in texts if "://" in text or "--index" in text or "--find-links" in text] == []


def test_a_source_that_changed_makes_its_lock_file_stale(copy: Path) -> None:
    replace(copy / "requirements.in", "pandas<3", "pandas<4")
    replace(copy / "pyproject.toml", '"msgspec>=0.19"', '"msgspec>=0.20"')
    assert [fault for fault in requirements_lock.verify() if "was not made of" in fault] == [
        "requirements.txt was not made of this requirements.in: make lock-requirements",
        "requirements-executor.txt was not made of this pyproject.toml: make lock-requirements",
    ]


def test_comments_and_settings_of_tools_make_no_lock_file_stale(copy: Path) -> None:
    replace(copy / "requirements.in", "pandas<3", "# why\npandas<3")
    replace(copy / "pyproject.toml", "line-length = 120", "line-length = 100")
    assert [fault for fault in requirements_lock.verify() if "was not made of" in fault] == []


def test_constraints_of_another_lock_file_are_stale(copy: Path) -> None:
    replace(copy / "requirements.txt", "pandas==2.3.3", "pandas==2.3.2")
    faults = requirements_lock.verify()
    assert "constraints.txt was not made of this requirements.txt: make lock-requirements" in faults
    [installed] = [fault for fault in faults if "is installed" in fault and "pandas" in fault]
    assert installed.startswith("requirements.txt has pandas==2.3.2, but 2.3.3 is installed")


def test_a_package_without_hash_is_told(copy: Path) -> None:
    path = copy / "requirements.txt"
    path.write_text(path.read_text(encoding="utf-8") + "left-pad==1.0\n", encoding="utf-8")
    assert "requirements.txt has no hash of left-pad: make lock-requirements" in requirements_lock.verify()
