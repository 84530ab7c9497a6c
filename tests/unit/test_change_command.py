"""Each kind of ``change`` gives the change that its arguments say."""

from __future__ import annotations

import argparse

import pytest

from kafka_ingest.cli.change import change_of
from kafka_ingest.errors import ConfigError
from kafka_ingest.forms.change import add_change
from kafka_ingest.protocol.change_requests import (
    AcceptCluster,
    AcceptLoss,
    AcceptRecreation,
    AcceptSameLog,
    Change,
    ChangeIdentityColumns,
    ChangeIsolationLevel,
    ChangeTarget,
    LogPlace,
    ReadTopicAgain,
    RenamePipeline,
    ResetBy,
    ResetToOffsets,
    ResetToPlace,
    ResetToTime,
    RetireTopic,
    Selection,
    SkipLag,
)
from kafka_ingest.protocol.position import TopicPartition
from kafka_ingest.settings import PartitionOffset

ONE = Selection(partitions=(TopicPartition("orders", 3),))


def parsed(arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_change(parser.add_subparsers())
    return parser.parse_args(["change", "orders", *arguments.split()])


@pytest.mark.parametrize(
    ("arguments", "change"),
    [
        ("reset --to earliest", ResetToPlace(LogPlace.EARLIEST)),
        ("reset --to latest --only orders 3", ResetToPlace(LogPlace.LATEST, ONE)),
        ("reset --to-time 1970-01-01T00:00:01Z", ResetToTime(1_000)),
        ("reset --to-time 1970-01-01T01:00:01 --only orders 3", ResetToTime(1_000, ONE)),
        (
            "reset --to-offset orders 1 50 --to-offset orders 0 7",
            ResetToOffsets((PartitionOffset("orders", 0, 7), PartitionOffset("orders", 1, 50))),
        ),
        ("reset --by -100", ResetBy(-100)),
        ("reset --by 100 --only orders --only returns", ResetBy(100, Selection(("orders", "returns")))),
        ("skip-lag --keep 500", SkipLag(500)),
        ("accept-loss", AcceptLoss(0)),
        ("accept-loss --margin 1000 --only orders 3", AcceptLoss(1_000, ONE)),
        ("accept-recreation", AcceptRecreation()),
        ("accept-recreation orders returns --begin latest", AcceptRecreation(("orders", "returns"), LogPlace.LATEST)),
        ("accept-cluster", AcceptCluster()),
        ("accept-cluster --begin latest", AcceptCluster(LogPlace.LATEST)),
        ("accept-same-log", AcceptSameLog()),
        ("rename --from shop", RenamePipeline("shop")),
        ("retire-topic returns", RetireTopic("returns")),
        ("read-topic-again returns", ReadTopicAgain("returns")),
        ("change-target", ChangeTarget()),
        ("change-identity-columns", ChangeIdentityColumns()),
        ("change-isolation-level", ChangeIsolationLevel()),
    ],
)
def test_arguments_give_the_change(arguments: str, change: Change) -> None:
    options = parsed(arguments)
    # An hour ahead of UTC in 1970.
    assert change_of(options, zone="Europe/Berlin", pipeline="orders") == change
    assert (options.apply, options.supersede, options.reason, options.request_id) == (False, False, "", None)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("reset --to-time yesterday", "a time with its offset from UTC"),
        ("reset --to-offset orders 0 many", "topic, partition and offset"),
        ("reset --to-offset orders 0 1 --to-offset orders 0 2", "each partition once"),
        ("reset --to-offset orders 0 1 --only orders", "--only or --to-offset"),
        ("reset --by 5 --only orders 0 1", "topic, or topic and partition"),
    ],
)
def test_arguments_that_do_not_fit_name_what_was_expected(arguments: str, expected: str) -> None:
    with pytest.raises(ConfigError) as refused:
        change_of(parsed(arguments), zone="UTC", pipeline="orders")
    assert expected in refused.value.expected
    assert refused.value.next_command == "python -m kafka_ingest change orders reset --help"
