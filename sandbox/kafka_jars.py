"""The Kafka broker's jars, fetched once: no Kafka distribution is needed.

Each fetched file is compared with its checksum in ``kafka_jars.sha256``.
"""

from __future__ import annotations

import os
from pathlib import Path

from sandbox.maven import Artifact, check_files, checksums, fetch, made_once

KAFKA_VERSION = "4.2.0"
#: Names another version for a test of what else is supported: there are no checksums for it but those of Maven Central.
VERSION_VARIABLE = "KAFKA_INGEST_KAFKA_VERSION"
_LOG4J_VERSION = "2.25.3"
_CHECKSUMS = Path(__file__).with_name("kafka_jars.sha256")


def kafka_jars(cache: Path) -> Path:
    """Return the folder with the broker's jars, fetching them (44 MB) the first time.

    Raises:
        SandboxError: The download failed, or a file is not the expected one.
    """
    version = os.environ.get(VERSION_VARIABLE) or KAFKA_VERSION

    def make(draft: Path) -> None:
        print(f"fetching the Kafka {version} broker from Maven Central (44 MB, once) ...", flush=True)
        for root in _roots(version):
            fetch([root], draft, ivy_cache=cache / "ivy")
        if version == KAFKA_VERSION:
            check_files(draft, checksums(_CHECKSUMS), listed_in=_CHECKSUMS)

    return made_once(cache / "kafka" / version, make)


def _roots(version: str) -> list[Artifact]:
    # Kafka's jars bring the SLF4J interface without a binding; without one a broker fails silently.
    logging = ["log4j-slf4j-impl"]
    if version.startswith("3."):
        # Its broker calls Log4j 1, too.
        logging.append("log4j-1.2-api")
    log4j = [Artifact("org.apache.logging.log4j", name, _LOG4J_VERSION) for name in logging]
    return [Artifact("org.apache.kafka", "kafka_2.13", version), *log4j]
