from __future__ import annotations

import sys
from pathlib import Path

import pytest

from spark_jobs.process import prefer_installed_pyspark


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """``SPARK_HOME``, a package in a folder of packages."""
    package = tmp_path / "site-packages" / "pyspark"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.setenv("SPARK_HOME", str(package))
    return package


def test_the_installed_package_comes_before_the_zips_in_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zips = [f"{home}/python/lib/pyspark.zip", f"{home}/python/lib/py4j-0.10.9.9-src.zip"]
    monkeypatch.setattr(sys, "path", ["/tmp/job.zip", *zips, "/usr/lib/python3.11", str(home.parent)])
    prefer_installed_pyspark()
    assert sys.path == ["/tmp/job.zip", "/usr/lib/python3.11", str(home.parent), *zips]


def test_a_spark_that_is_not_the_installed_package_keeps_its_own_pyspark(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = [f"{home}/python/lib/pyspark.zip", "/usr/lib/python3.11", "/other/site-packages"]
    monkeypatch.setattr(sys, "path", list(elsewhere))
    prefer_installed_pyspark()
    assert sys.path == elsewhere
    (home / "__init__.py").unlink()
    unpacked = [*elsewhere, str(home.parent)]
    monkeypatch.setattr(sys, "path", list(unpacked))
    prefer_installed_pyspark()
    assert sys.path == unpacked
    monkeypatch.delenv("SPARK_HOME")
    prefer_installed_pyspark()
    assert sys.path == unpacked
