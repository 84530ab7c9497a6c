"""Produces what the Python client refuses to: a header whose name is not UTF-8. Calls the bundled librdkafka."""

from __future__ import annotations

import ctypes
from pathlib import Path

import confluent_kafka

_PRODUCER, _CONF_OK = 0, 0
_END, _TOPIC, _PARTITION, _VALUE, _HEADERS = 0, 1, 3, 4, 10  # rd_kafka_vtype_t, rdkafka.h
_FLUSH_MS = 30_000


def produce_with_header_name(bootstrap: str, topic: str, name: bytes, value: bytes) -> None:
    """Writes one record with one header into partition 0 and waits until the broker has it."""
    library = _library()
    producer = _producer(library, bootstrap)
    headers = ctypes.c_void_p(library.rd_kafka_headers_new(1))
    library.rd_kafka_header_add(headers, name, ctypes.c_ssize_t(len(name)), b"1", ctypes.c_ssize_t(1))
    failed = library.rd_kafka_producev(
        producer,
        *(ctypes.c_int(_TOPIC), topic.encode()),
        *(ctypes.c_int(_PARTITION), ctypes.c_int32(0)),
        *(ctypes.c_int(_VALUE), value, ctypes.c_size_t(len(value))),
        *(ctypes.c_int(_HEADERS), headers),
        ctypes.c_int(_END),
    )
    assert failed == 0
    assert library.rd_kafka_flush(producer, _FLUSH_MS) == 0
    library.rd_kafka_destroy(producer)


def _producer(library: ctypes.CDLL, bootstrap: str) -> ctypes.c_void_p:
    reason = ctypes.create_string_buffer(512)
    conf = ctypes.c_void_p(library.rd_kafka_conf_new())
    found = library.rd_kafka_conf_set(conf, b"bootstrap.servers", bootstrap.encode(), reason, 512)
    assert found == _CONF_OK, reason.value
    producer = ctypes.c_void_p(library.rd_kafka_new(_PRODUCER, conf, reason, 512))
    assert producer.value, reason.value
    return producer


def _library() -> ctypes.CDLL:
    folder = Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs")
    (path,) = folder.glob("librdkafka*.so*")
    library = ctypes.CDLL(str(path))
    for pointer in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_headers_new"):
        getattr(library, pointer).restype = ctypes.c_void_p
    return library
