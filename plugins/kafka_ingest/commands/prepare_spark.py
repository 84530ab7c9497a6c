"""Command ``prepare-spark``: what can be done once so that every load starts sooner."""

from __future__ import annotations

import argparse

from kafka_ingest.adapters.spark_archive import prepare_archive
from kafka_ingest.adapters.spark_startup import class_archive
from kafka_ingest.commands.output import Output
from kafka_ingest.core.exit_codes import OK


def run_prepare_spark(options: argparse.Namespace, output: Output) -> int:
    """Makes the archive of Spark's classes, unless there is one that fits, and says what it gains."""
    if not options.again and (existing := class_archive()):
        output.record({"archive": str(existing), "result": "it is there and fits: nothing to do"})
        return OK
    output.note("starting a small Spark job three times: as it is, to make the archive, and with it")
    made = prepare_archive()
    output.record(
        {
            "archive": str(made.path),
            "result": "made, and used by a second start",
            "classes loaded by a start": made.loaded_classes,
            "classes of these from it": made.archived_classes,
            "CPU seconds of a start without it": round(made.cpu_seconds_without, 1),
            "CPU seconds of a start with it": round(made.cpu_seconds_with, 1),
        }
    )
    return OK
