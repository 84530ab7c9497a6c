"""Which YARN the sandbox fetches, and what a cluster says that was never started."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox import yarn
from sandbox.errors import SandboxError
from sandbox.maven import Artifact, checksums, pyspark_jars
from sandbox.yarn import HADOOP_VERSION, YarnCluster


def test_yarn_has_the_version_of_pysparks_hadoop_client() -> None:
    listed = checksums(Path(yarn.__file__).with_name("yarn_jars.sha256"))
    assert f"hadoop-client-minicluster-{HADOOP_VERSION}.jar" in listed
    assert (pyspark_jars() / f"hadoop-client-api-{HADOOP_VERSION}.jar").is_file()


def test_a_cluster_that_was_never_started_has_no_address_and_is_stopped(tmp_path: Path) -> None:
    cluster = YarnCluster(tmp_path / "yarn")
    assert not cluster.is_running()
    cluster.stop()
    with pytest.raises(SandboxError, match="never started"):
        _ = cluster.url


@pytest.mark.parametrize(("alone", "transitive"), [(True, "false"), (False, "true")])
def test_a_jar_comes_with_what_it_needs_unless_it_is_wanted_alone(alone: bool, transitive: str) -> None:
    assert f'transitive="{transitive}"' in Artifact("g", "one", "1.0", alone=alone).as_ivy()
