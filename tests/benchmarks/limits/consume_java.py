"""Limit: consuming the topic with Kafka's own performance tool, in Java, and doing nothing with it.

Says what the tool measures without joining its group (``fetch.nMsg.sec``): ``{"records_per_second": …}``.
"""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sandbox.java import java
from sandbox.kafka_jars import KAFKA_VERSION
from sandbox.maven import Artifact
from tests.benchmarks.load import Load
from tests.benchmarks.peers.contender import ContenderError, run
from tests.benchmarks.peers.installs import fetched

_TOOL = "org.apache.kafka.tools.ConsumerPerformance"


def install() -> Path:
    """Fetches the tool; gives the folder with its jars."""
    return fetched("kafka-tools", [Artifact("org.apache.kafka", "kafka-tools", KAFKA_VERSION)])


def consume(load: Load, _params: Mapping[str, Any]) -> dict[str, float]:
    """Consumes all partitions with one consumer."""
    command = [java(), "-cp", f"{install()}/*", _TOOL, "--bootstrap-server", load.bootstrap, "--topic", load.topic]
    command += ["--messages", str(load.records), "--group", f"bench-{uuid.uuid4().hex}", "--hide-header"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    figures = answer.stdout.strip().splitlines()[-1].split(", ") if answer.stdout.strip() else []
    # start, end, MB, MB/s, messages, messages/s, rebalance ms, fetch ms, fetch MB/s, fetch messages/s
    if answer.returncode or len(figures) != 10 or int(figures[4]) != load.records:
        raise ContenderError(f"{_TOOL} ended with {answer.returncode}: {answer.stdout[-500:]} {answer.stderr[-500:]}")
    return {"records_per_second": float(figures[9])}


if __name__ == "__main__":
    run(consume, install=install)
