"""The garbage collector is left as it was found."""

from __future__ import annotations

import gc

import pytest

from kafka_ingest.protocol.staging import relaxed_gc


def test_collections_are_rarer_inside_and_as_before_afterwards() -> None:
    before = gc.get_threshold()
    with relaxed_gc():
        assert gc.get_threshold()[0] > before[0]
    assert gc.get_threshold() == before


def test_an_error_leaves_them_as_they_were_too() -> None:
    before = gc.get_threshold()
    with pytest.raises(ValueError, match="broken"), relaxed_gc():
        raise ValueError("broken")
    assert gc.get_threshold() == before
