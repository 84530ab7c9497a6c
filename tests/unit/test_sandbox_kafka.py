"""The sandbox's broker: what its command line gets."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from sandbox import kafka


def test_a_cluster_id_does_not_begin_like_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    # The first six bits 62 are written "-" in base64url: 0xF8 = 111110 00.
    drawn: Iterator[uuid.UUID] = iter([uuid.UUID(bytes=b"\xf8" * 16), uuid.UUID(bytes=b"\xfb" * 16), uuid.UUID(int=1)])
    monkeypatch.setattr(uuid, "uuid4", lambda: next(drawn))
    assert kafka._cluster_id() == "AAAAAAAAAAAAAAAAAAAAAQ"
