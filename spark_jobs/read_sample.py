"""Sampled records of registered schemas become documents, with the column type of every place: for a draft.

Run as ``python -m spark_jobs.read_sample`` by ``kafka_ingest/spark/samples.py``, which says what goes in and out.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import islice

import msgspec

from kafka_ingest.kafka.registry import UnusableSchema
from kafka_ingest.spark.samples import Answer, ReadSample, RecordType, SchemaSample
from spark_jobs.decode.avro import AvroSchema
from spark_jobs.decode.protobuf import ProtobufSchema
from spark_jobs.decode.schema_places import avro_places, message_places
from spark_jobs.decode.values import DecodeError

#: Places of a type. A file has 200 columns at most, and a schema whose types share types may have billions of places.
_MAX_PLACES = 5_000


def main() -> None:
    """Answer what standard input asks."""
    samples = msgspec.json.decode(sys.stdin.buffer.read(), type=list[SchemaSample])
    try:
        answer = Answer([read_sample(sample) for sample in samples])
    except ImportError as error:
        answer = Answer(missing=str(error))
    sys.stdout.buffer.write(msgspec.json.encode(answer))


def read_sample(sample: SchemaSample) -> ReadSample:
    """Read the records of one schema.

    Raises:
        ImportError: A package of its format is not installed.
    """
    try:
        return _protobuf(sample) if sample.kind == "PROTOBUF" else _avro(sample)
    except UnusableSchema as error:
        return ReadSample(faults=str(error), faulty=len(sample.payloads))


def _of_documents(found: Sequence[bytes | DecodeError]) -> tuple[list[str], list[str]]:
    """Part documents from the details of records that are none."""
    documents = [of.decode() for of in found if isinstance(of, bytes)]
    return documents, [of.detail for of in found if isinstance(of, DecodeError)]


# Avro.


def _avro(sample: SchemaSample) -> ReadSample:
    schema = AvroSchema(sample.text, tuple(sample.references.values()))
    documents, faults = _of_documents(schema.documents(sample.payloads))
    places = list(islice(avro_places(schema.root), _MAX_PLACES))
    return ReadSample([RecordType("", places, documents)], "".join(faults[:1]), len(faults))


# Protobuf.


def _protobuf(sample: SchemaSample) -> ReadSample:
    schema = ProtobufSchema(sample.text, sample.references)
    payloads: dict[str, list[bytes]] = {}
    faults: list[str] = []
    for payload in sample.payloads:
        try:
            payloads.setdefault(schema.files.named(payload)[0], []).append(payload)
        except DecodeError as error:
            faults.append(error.detail)
    types = []
    for name, own in payloads.items():
        documents, others = _of_documents(schema.documents(own))
        places = list(islice(message_places(schema, name), _MAX_PLACES))
        types.append(RecordType(name, places, documents))
        faults += others
    return ReadSample(types, "".join(faults[:1]), len(faults))


if __name__ == "__main__":
    main()
