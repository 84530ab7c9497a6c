"""Faults of topics and partitions that a plan finds: collected as values, reported all at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kafka_ingest.core.errors import PartitionsFaulty, StopAndCall


@dataclass(frozen=True, slots=True)
class PartitionFault:
    """One fault.

    Attributes:
        error: Class of the error that it is.
        where: Topic, partition or cluster.
        expected: What should have been there.
        found: What was there, with numbers.
        next_command: What resolves it.
        topic: Set when the whole topic is in doubt, so that its partitions need no faults of their own.
        can_be_left_out: Whether ``on_partition_fault: leave_out`` may go on without this partition.
    """

    error: type[StopAndCall]
    where: str
    expected: str
    found: str
    next_command: str
    topic: str = ""
    can_be_left_out: bool = False

    def __str__(self) -> str:
        return f"{self.where}: {self.error.__name__}: expected {self.expected}; found {self.found}"


def fault_error(faults: Sequence[PartitionFault], pipeline: str) -> StopAndCall:
    """Makes one error of all faults: of their class when they share one, else ``PartitionsFaulty``."""
    classes = {fault.error for fault in faults}
    error = classes.pop() if len(classes) == 1 else PartitionsFaulty
    if len(faults) == 1:
        [fault] = faults
        return error(
            fault.where,
            expected=fault.expected,
            found=fault.found,
            next_command=fault.next_command,
            pipeline=pipeline,
        )
    steps = dict.fromkeys(fault.next_command for fault in faults)
    return error(
        f"{len(faults)} faults in the topics of the pipeline",
        expected="topics and partitions that continue where the ledger stands",
        found="".join(f"\n    {fault}" for fault in faults),
        next_command="; ".join(steps),
        pipeline=pipeline,
    )
