"""Sampled records that name schemas, read by the job's own decoder in a process of its own: what a draft asks for.

Who drafts a file never imports the job, and the formats have one reader. The process gets schemas and records on its
standard input and no connection and no secret, since the schemas are fetched before.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from kafka_ingest.column_types import MAX_PRECISION
from kafka_ingest.errors import RetryLater
from kafka_ingest.kafka.registry import missing_package
from kafka_ingest.spark.archive import job_archive

_MODULE = "spark_jobs.read_sample"
#: 32 MB of Protobuf take half a minute.
_MOST_SECONDS = 300.0
_TAIL = 500


@dataclass(frozen=True, slots=True)
class SchemaSample:
    """The sampled records of one schema.

    Attributes:
        kind: What the registry calls its format: ``AVRO`` or ``PROTOBUF``.
        text: The schema.
        references: The schemas that it refers to, as ``RegisteredSchema`` has them.
        payloads: What follows the schema's number or GUID in each record.
    """

    kind: str
    text: str
    references: Mapping[str, str]
    payloads: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the documents of a schema, and the column type that holds what the schema lets stand there.

    Attributes:
        path: From the root of the document.
        type: A column type without numbers in brackets.
        precision: Digits of a ``numeric``; 0 where the schema does not say.
        scale: Digits of it after the point.
        is_finer: Whether times have digits beyond microseconds.
        name: What the schema calls the type: ``io.debezium.time.Date``.
        why: Why it is ``jsonb``, where that needs words.
    """

    path: tuple[str, ...]
    type: str
    precision: int = 0
    scale: int = 0
    is_finer: bool = False
    name: str = ""
    why: str = ""

    @property
    def sql(self) -> str:
        """The column type, with the numbers in brackets that PostgreSQL takes."""
        if self.type == "numeric" and 0 < self.precision <= MAX_PRECISION and 0 <= self.scale <= self.precision:
            return f"numeric({self.precision},{self.scale})"
        return self.type


@dataclass(frozen=True, slots=True)
class RecordType:
    """The records of one type: of an Avro schema there is one, of a Protobuf schema each message may be one.

    Attributes:
        name: What the schema calls it; empty where it has no name.
        places: In the order of the schema.
        documents: The records, as JSON.
    """

    name: str
    places: Sequence[Place]
    documents: Sequence[str]


@dataclass(frozen=True, slots=True)
class ReadSample:
    """What the decoder made of the records of one schema.

    Attributes:
        types: The types of its records.
        faults: Why records are none, or why the schema cannot be read, for the first of them.
        faulty: How many records cannot be read.
    """

    types: Sequence[RecordType] = ()
    faults: str = ""
    faulty: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """What the process says: one entry a sample, or the package that it misses."""

    samples: Sequence[ReadSample] = field(default_factory=list)
    missing: str = ""


def read_samples(samples: Sequence[SchemaSample]) -> Sequence[ReadSample]:
    """Read the records of schemas; the answers stand in the order of the samples.

    Raises:
        ConfigError: A package of the formats is not installed.
        RetryLater: The process ended without an answer, as one that was killed does.
    """
    found = _ended(msgspec.json.encode(samples))
    try:
        answer = msgspec.json.decode(found.stdout, type=Answer)
    except msgspec.DecodeError:
        raise RetryLater(
            "the sample could not be read",
            expected=f"an answer of {_MODULE}",
            found=f"exit code {found.returncode}: {found.stderr.decode(errors='replace')[-_TAIL:].strip()}",
            next_command="the same draft again, with fewer --records where memory is short",
        ) from None
    if answer.missing:
        raise missing_package(ImportError(answer.missing))
    return answer.samples


def _ended(question: bytes) -> subprocess.CompletedProcess[bytes]:
    # The command consists of our own module; no shell is involved. -P keeps modules of the current folder out.
    command = [sys.executable, "-P", "-m", _MODULE]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")}
    environment["PYTHONPATH"] = str(job_archive())
    try:
        return subprocess.run(  # noqa: S603
            command, input=question, env=environment, capture_output=True, timeout=_MOST_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        late = f"nothing within {_MOST_SECONDS:.0f} s".encode()
        return subprocess.CompletedProcess(command, 1, b"", late)
