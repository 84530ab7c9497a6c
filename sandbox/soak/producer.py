"""The soak's producer, a process of its own: ``python -m sandbox.soak.producer`` sends until it is told to end.

TERM lets it finish its portion, flush and end with status 0. Its tally file says what it has done and is replaced after
every portion. Only a consumer knows what is really in the topic: a broker that is killed may answer late, or not at
all.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from confluent_kafka import KafkaException, Producer

from sandbox.soak.pipeline import SoakMode
from sandbox.soak.traffic import Portion, PortionKind, portions

_FLUSH_SECONDS = 120.0
_TRANSACTION_SECONDS = 60.0
#: The broker ends an open transaction of a producer in trouble after this time; until then it holds back all readers.
_TRANSACTION_TIMEOUT_MS = 15_000


class SoakProducer:
    """The sender of portions to one topic; counts what came of them.

    Args:
        bootstrap: Kafka's address.
        topic: The topic.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._settings = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 5,
            "log_level": 0,  # refused connections of a killed broker are expected here
            "error_cb": lambda _: None,
        }
        self._topic = topic
        self._plain = Producer(self._settings)
        self._transactional: Producer | None = None
        self.tally: Counter[str] = Counter()

    def send(self, portion: Portion) -> None:
        """Send a portion. Returns when a transaction has ended, or when plain records are on their way."""
        if portion.kind is PortionKind.PLAIN:
            self._produce(self._plain, portion)
        else:
            self._in_transaction(portion)
        self.tally["portions"] += 1

    def flush(self) -> int:
        """Wait for records on their way; return how many are not acknowledged."""
        return int(self._plain.flush(_FLUSH_SECONDS))

    def _produce(self, producer: Producer, portion: Portion) -> None:
        for record in portion.records:
            while not self._try_produce(producer, record.partition, key=record.key, value=record.value):
                producer.poll(0.2)
            producer.poll(0)

    def _try_produce(self, producer: Producer, partition: int, *, key: bytes | None, value: bytes | None) -> bool:
        try:
            producer.produce(self._topic, partition=partition, key=key, value=value, on_delivery=self._delivered)
        except BufferError:
            return False
        return True

    def _delivered(self, error: object, _: object) -> None:
        self.tally["unacknowledged" if error is not None else "acknowledged"] += 1

    def _in_transaction(self, portion: Portion) -> None:
        """Run one transaction; a broken one counts as such, and the broker or the next producer aborts it."""
        try:
            producer = self._transactional or self._new_transactional()
            producer.begin_transaction()
            self._produce(producer, portion)
            producer.flush(_TRANSACTION_SECONDS)
            if portion.kind is PortionKind.COMMITTED:
                _retrying(lambda: producer.commit_transaction(_TRANSACTION_SECONDS))
            else:
                _retrying(lambda: producer.abort_transaction(_TRANSACTION_SECONDS))
            self.tally[f"{portion.kind} transactions"] += 1
        except KafkaException:
            self.tally["broken transactions"] += 1
            # A producer that takes over the id ends whatever this one left open (init_transactions).
            self._transactional = None

    def _new_transactional(self) -> Producer:
        config = {"transactional.id": f"{self._topic}-soak", "transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS}
        producer = Producer({**self._settings, **config})
        _retrying(lambda: producer.init_transactions(_TRANSACTION_SECONDS))
        self._transactional = producer
        return producer

    def end_transactions(self) -> None:
        """End a transaction that a broken one may have left open, so that readers can read to the end."""
        if self._transactional is None:
            self._new_transactional()


def _retrying(call: Callable[[], None], attempts: int = 5) -> None:
    for _ in range(attempts - 1):
        try:
            return call()
        except KafkaException as fault:
            if not fault.args[0].retriable():
                raise
    return call()


def produce_until_told(
    producer: SoakProducer, traffic: Iterator[Portion], *, rate: int, tally_file: Path, stop: threading.Event
) -> int:
    """Send at the rate until told to stop; return how many records were not acknowledged at the end.

    A producer that was delayed does not catch up: it never sends faster than the rate.
    """
    due = time.monotonic()
    for portion in traffic:
        if stop.wait(max(0.0, due - time.monotonic())):
            break
        producer.send(portion)
        due = max(due, time.monotonic() - 1.0) + len(portion.records) / rate
        _write(tally_file, producer.tally)
    left = producer.flush()
    producer.end_transactions()
    _write(tally_file, producer.tally)
    return left


def _write(path: Path, tally: Counter[str]) -> None:
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(tally), encoding="utf-8")
    draft.replace(path)


def main() -> int:
    """Run the producer and return the exit status: 0 when everything was acknowledged."""
    parser = argparse.ArgumentParser(prog="python -m sandbox.soak.producer", description=__doc__)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--mode", type=SoakMode, required=True, choices=list(SoakMode), help="of the pipeline")
    parser.add_argument("--rate", type=int, required=True, help="records per second")
    parser.add_argument("--tally", type=Path, required=True, help="file for what was done")
    options = parser.parse_args()
    stop = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stop.set())
    producer = SoakProducer(options.bootstrap, options.topic)
    traffic = portions(options.seed, options.mode)
    left = produce_until_told(producer, traffic, rate=options.rate, tally_file=options.tally, stop=stop)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
