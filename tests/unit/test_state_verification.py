"""The fold that tables are compared with: the newest change of each key, by offset, whatever order records come in."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest

from sandbox.state_verification import Change, Newest, fold


@dataclass(frozen=True)
class Message:
    """A message as confluent_kafka gives it; its value is the content, ``None`` a tombstone."""

    where: tuple[int, int]
    key: str
    content: str | None

    def partition(self) -> int:
        return self.where[0]

    def offset(self) -> int:
        return self.where[1]


def change_of(message: Message) -> Change | None:
    return None if message.content == "malformed" else Change(message.key, message.content)


LOG = [
    Message((0, 0), "a", "first"),
    Message((0, 1), "b", "first"),
    Message((0, 2), "a", None),
    Message((0, 3), "a", "second"),
    Message((0, 4), "b", None),
    Message((0, 5), "a", "malformed"),
    Message((1, 9), "c", "first"),
]
FOLDED = {"a": Newest(0, 3, "second"), "b": Newest(0, 4, None), "c": Newest(1, 9, "first")}


def test_the_newest_change_of_each_key_stands_and_what_says_nothing_changes_nothing() -> None:
    assert fold(LOG, change_of) == FOLDED


@pytest.mark.parametrize("seed", range(5))
def test_the_order_in_which_records_come_does_not_matter(seed: int) -> None:
    assert fold(Random(seed).sample(LOG, k=len(LOG)), change_of) == FOLDED


def test_a_key_in_two_partitions_has_no_fold() -> None:
    with pytest.raises(ValueError, match="partitions 0 and 1"):
        fold([Message((0, 0), "a", "x"), Message((1, 0), "a", "y")], change_of)
