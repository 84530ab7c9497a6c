"""Which archive of Spark's classes a submission uses: only one that fits, and that nobody else may have written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafka_ingest.errors import ConfigError
from kafka_ingest.spark.installation import CACHE_VARIABLE, archive_path, class_archive, jvm_conf

PLAIN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-CreateCoredumpOnCrash"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a Java in ``java`` and a Spark in ``spark``, both found through their variables."""
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    for file in ("java/bin/java", "java/lib/modules", "spark/jars/core.jar", "spark/jars/py4j.jar"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(file)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir(mode=0o755)
    return tmp_path


def made_archive() -> Path:
    path = archive_path()
    path.write_text("classes")
    path.chmod(0o644)
    return path


def test_without_an_archive_only_the_other_options_are_set(machine: Path) -> None:
    assert class_archive() is None
    assert jvm_conf({}, is_local=True) == {"spark.driver.extraJavaOptions": PLAIN}


def test_an_archive_is_used_where_it_was_made(machine: Path) -> None:
    path = made_archive()
    assert class_archive() == path == archive_path()
    assert jvm_conf({}, is_local=True) == {
        "spark.driver.extraJavaOptions": f'{PLAIN} -XX:SharedArchiveFile="{path}"',
    }


@pytest.mark.parametrize("changed", ["java/bin/java", "java/lib/modules", "spark/jars/core.jar", "spark/jars/new.jar"])
def test_an_archive_of_another_java_or_of_other_jars_is_not_used(machine: Path, changed: str) -> None:
    made_archive()
    (machine / changed).write_text("updated since")
    assert class_archive() is None


def test_a_jar_of_the_same_size_and_another_time_makes_another_archive(machine: Path) -> None:
    made_archive()
    os.utime(machine / "spark/jars/core.jar", (1, 1))
    assert class_archive() is None


def test_another_class_path_has_no_archive(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_archive()
    assert jvm_conf({"spark.driver.extraClassPath": "/opt/own.jar"}, is_local=True) == {
        "spark.driver.extraJavaOptions": PLAIN
    }
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    assert class_archive() is None
    monkeypatch.delenv("HADOOP_CONF_DIR")
    (machine / "spark/conf").mkdir()
    (machine / "spark/conf/metrics.properties").write_text("")
    assert class_archive() is None
    with pytest.raises(ConfigError, match="spark/conf"):
        archive_path()


@pytest.mark.parametrize("which", ["archive", "folder"])
def test_an_archive_that_others_can_write_is_not_used(machine: Path, which: str) -> None:
    path = made_archive()
    (path if which == "archive" else path.parent).chmod(0o777)
    assert class_archive() is None


def test_options_of_the_installation_stay_alone(machine: Path) -> None:
    (machine / "spark/conf").mkdir()
    (machine / "spark/conf/spark-defaults.conf").write_text(
        "# of the machine\nspark.driver.defaultJavaOptions=-XX:+UseG1GC\nspark.executor.extraJavaOptions  -Dx=1\n"
    )
    assert jvm_conf({}, is_local=False) == {}


def test_without_java_or_spark_there_is_no_archive(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_archive()
    monkeypatch.setenv("JAVA_HOME", str(machine / "nowhere"))
    assert class_archive() is None
    monkeypatch.setenv("JAVA_HOME", str(machine / "java"))
    monkeypatch.setenv("SPARK_HOME", str(machine / "nowhere"))
    assert class_archive() is None
    with pytest.raises(ConfigError, match="jars were not found"):
        archive_path()
