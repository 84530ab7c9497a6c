"""Writes frozen settings as canonical JSON and reads them back, exactly.

Canonical: keys sorted, no spaces, UTF-8; the hash of it tells whether a planned batch still fits its pipeline file.
"""

from __future__ import annotations

import hashlib
from typing import TypeVar

import msgspec

from kafka_ingest.core.errors import VersionSkew
from kafka_ingest.core.settings import BatchSettings, FirstRun

_Value = TypeVar("_Value", BatchSettings, FirstRun)


def settings_to_json(settings: BatchSettings) -> str:
    """Gives the settings as canonical JSON."""
    return _to_json(settings)


def settings_from_json(text: str) -> BatchSettings:
    """Reads settings that :func:`settings_to_json` wrote; the order of keys does not matter.

    Raises:
        VersionSkew: Another version of this package wrote them, in a way that this one cannot read.
    """
    return _from_json(text, BatchSettings)


def settings_hash(settings: BatchSettings) -> str:
    """Gives the SHA-256 of the canonical JSON, in hexadecimal."""
    return hashlib.sha256(settings_to_json(settings).encode()).hexdigest()


def first_run_to_json(first_run: FirstRun) -> str:
    """Gives the choice of the first run as canonical JSON."""
    return _to_json(first_run)


def first_run_from_json(text: str) -> FirstRun:
    """Reads what :func:`first_run_to_json` wrote.

    Raises:
        VersionSkew: Another version of this package wrote it, in a way that this one cannot read.
    """
    return _from_json(text, FirstRun)


def _to_json(value: BatchSettings | FirstRun) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def _from_json(text: str, kind: type[_Value]) -> _Value:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError as error:
        raise VersionSkew(
            f"stored {kind.__name__} cannot be read by this package version",
            expected="what this version writes",
            found=str(error),
            next_command="use one package version for Airflow and the Spark job, then plan again",
        ) from error
