"""The Kafka broker's jars, fetched once: no Kafka distribution is needed.

Each fetched file is compared with its checksum in ``kafka_jars.sha256``.
"""

from __future__ import annotations

from pathlib import Path

from sandbox.maven import Artifact, check_files, checksums, fetch, made_once

KAFKA_VERSION = "4.2.0"
# Kafka's jars bring the SLF4J interface without a binding; without one a broker fails silently.
_ROOTS = (
    Artifact("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    Artifact("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.3"),
)
_CHECKSUMS = Path(__file__).with_name("kafka_jars.sha256")


def kafka_jars(cache: Path) -> Path:
    """Return the folder with the broker's jars, fetching them (44 MB) the first time.

    Raises:
        SandboxError: The download failed, or a file is not the expected one.
    """

    def make(draft: Path) -> None:
        print(f"fetching the Kafka {KAFKA_VERSION} broker from Maven Central (44 MB, once) ...", flush=True)
        for root in _ROOTS:
            fetch([root], draft, ivy_cache=cache / "ivy")
        check_files(draft, checksums(_CHECKSUMS), listed_in=_CHECKSUMS)

    return made_once(cache / "kafka" / KAFKA_VERSION, make)
