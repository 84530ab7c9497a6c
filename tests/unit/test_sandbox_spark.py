"""A Spark cluster of the sandbox: what a master that starts answers."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import pytest

from sandbox.ports import PortBook
from sandbox.spark import SparkCluster


@pytest.mark.parametrize(("answer", "state"), [(b"<!DOCTYPE html>", None), (b'{"url": "spark"}', {"url": "spark"})])
def test_a_page_in_place_of_json_is_no_state_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes, state: dict[str, str] | None
) -> None:
    monkeypatch.setattr("urllib.request.urlopen", lambda *_, **__: BytesIO(answer))
    PortBook(tmp_path).port_for_start("spark-master-web")
    assert SparkCluster(tmp_path / "spark", workers=1, cores=1)._state() == state
