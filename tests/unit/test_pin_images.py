"""Images are pinned all or none; a program stands for Docker's client, since no registry is asked by tests."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from tools import pin_images

CHECKOUT = Path(__file__).resolve().parents[2]
#: It answers with a digest of the image's own: its name in hexadecimal, filled up with zeros.
CLIENT = """#!/bin/sh
[ "$1 $2 $3 $5 $6" = "buildx imagetools inspect --format {{.Manifest.Digest}}" ] || exit 2
printf 'sha256:%.64s\\n' "$(printf %s "$4" | od -An -tx1 | tr -d ' \\n')$(printf '%064d' 0)"
"""


def digest(image: str) -> str:
    return f"sha256:{image.encode().hex():0<64.64}"


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for file in pin_images.FILES:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        shutil.copy(CHECKOUT / file, tmp_path / file)
    monkeypatch.setattr(pin_images, "CHECKOUT", tmp_path)
    return tmp_path


def client(folder: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin" / "docker").write_text(program)
    (folder / "bin" / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder / "bin"), prepend=os.pathsep)


def texts(folder: Path) -> list[str]:
    return [(folder / file).read_text(encoding="utf-8") for file in pin_images.FILES]


def test_every_image_gets_the_digest_of_its_tag_and_keeps_the_tag(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client(copy, monkeypatch, CLIENT)
    before = texts(copy)
    assert pin_images.main() == 0
    found = pin_images.images()
    assert len(found) == 9
    assert [image["digest"] for image in found] == [f"@{digest(image['tagged'])}" for image in found]
    assert [re.sub(r"@sha256:[0-9a-f]{64}", "", text) for text in texts(copy)] == before
    assert "FROM apache/spark:4.2.0-scala2.13-java17-ubuntu@sha256:" in texts(copy)[2]
    assert " AS spark\n" in texts(copy)[2]


def test_a_digest_is_replaced_when_its_tag_was_changed(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client(copy, monkeypatch, CLIENT)
    assert pin_images.main() == 0
    compose = copy / "docker-compose.yaml"
    compose.write_text(compose.read_text(encoding="utf-8").replace("postgres:18.6-", "postgres:18.7-"))
    assert pin_images.main() == 0
    pinned = {image["tagged"]: image["digest"] for image in pin_images.images()}
    assert pinned["postgres:18.7-bookworm"] == f"@{digest('postgres:18.7-bookworm')}"


def test_nothing_is_written_when_one_image_is_not_found(
    copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refusal = 'case "$4" in python:*) echo "ERROR: no such host" >&2; exit 1;; esac\n'
    client(copy, monkeypatch, CLIENT.replace("\nprintf", f"\n{refusal}printf", 1))
    before = texts(copy)
    assert pin_images.main() == 1
    assert texts(copy) == before
    told = capsys.readouterr().err
    assert "error: no digest of python:3.11.14-slim-bookworm: ERROR: no such host" in told
    assert "next: make pin-images" in told


def test_a_machine_without_docker_is_told_so(
    copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(copy))
    assert pin_images.main() == 1
    assert "there is no docker on PATH" in capsys.readouterr().err
