"""One comparison of a log with what the ledger holds, and what a person is told to do about each difference."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_ingest.errors import BrokerUnavailable, LeaderMissing
from kafka_ingest.protocol.log import LogSnapshot, PartitionState, TopicState
from kafka_ingest.protocol.log_faults import (
    Difference,
    LogFault,
    Purpose,
    compare,
    lost_offsets,
    missing_leader,
    missing_partition,
    missing_topic,
    other_cluster,
    other_topic,
)
from kafka_ingest.protocol.position import TopicPartition
from kafka_ingest.settings import TopicIdentity
from tests.builders import TOPIC_ID, partition_state, position, snapshot

PLACE = TopicPartition("orders", 0)
NO_LEADER = PartitionState(0, has_leader=False)


def log(state: PartitionState, *, cluster_id: str = "cluster-1", topic_id: str | None = TOPIC_ID) -> LogSnapshot:
    return snapshot({"orders": [state]}, cluster_id=cluster_id, topic_id=topic_id)


@pytest.mark.parametrize(
    ("seen", "kind"),
    [
        (log(NO_LEADER, cluster_id="cluster-2", topic_id="another"), LogFault.CLUSTER_CHANGED),
        (snapshot({}), LogFault.TOPIC_MISSING),
        (log(partition_state(1, 0, 5), topic_id="another"), LogFault.TOPIC_RECREATED),
        (log(partition_state(1, 0, 5)), LogFault.PARTITION_MISSING),
        (log(NO_LEADER), LogFault.LEADER_MISSING),
        (log(partition_state(0, 91, 95)), LogFault.OFFSETS_EXPIRED),
        (log(partition_state(0, 90, 99)), LogFault.LOG_TRUNCATED),
        (log(partition_state(0, 90, 100)), None),
    ],
)
def test_a_position_is_compared_from_the_whole_to_the_part(seen: LogSnapshot, kind: LogFault | None) -> None:
    """The position is 100, and the log must still hold 90."""
    found = compare(position(0, 100), seen, TopicIdentity.TOPIC_ID, first=90)
    assert (found.kind if found else None) is kind


def test_a_position_that_is_to_move_may_stand_anywhere() -> None:
    for state in (partition_state(0, 150, 200), partition_state(0, 0, 50)):
        assert compare(position(0, 100), log(state), TopicIdentity.TOPIC_ID) is None


@pytest.mark.parametrize("held", [TOPIC_ID, None])
def test_ids_of_topics_are_compared_only_where_both_are_known_and_wanted(held: str | None) -> None:
    stored, seen = replace(position(0, 5), topic_id=held), log(partition_state(0, 0, 9), topic_id="another")
    assert compare(stored, seen, TopicIdentity.NONE) is None
    assert (compare(stored, seen, TopicIdentity.TOPIC_ID) is None) is (held is None)


def the(found: Difference | None) -> Difference:
    assert found is not None
    return found


CLUSTER = the(other_cluster("cluster-1", "cluster-2"))
TOPIC = missing_topic("orders", there="Broker: Unknown topic")
RECREATED = the(other_topic([position(0, 100)], TopicState("orders", "another", {}), TopicIdentity.TOPIC_ID))
PARTITION = the(missing_partition(position(0, 100), TopicState("orders", TOPIC_ID, {})))
LEADER = the(missing_leader(PLACE, NO_LEADER))
EXPIRED = the(lost_offsets(PLACE, partition_state(0, 91, 100), 90, 100))
TRUNCATED = the(lost_offsets(PLACE, partition_state(0, 0, 99), 90, 100))
CHANGE, RUNBOOK = "python -m kafka_ingest change sales", "see docs/runbook.md, section"
LEFT_OUT = "or leave it out (--only, if it takes that)"
OF_ANOTHER_LOG = "none: these batches belong to another log and can no longer be rolled back"
ACCEPT_CLUSTER = (
    f'point the connection at the former cluster; or {CHANGE} accept-cluster --reason "..."; {RUNBOOK} ClusterChanged'
)
CREATE = "create the topic or correct kafka.topics in the pipeline file"
RETIRE = f'if it is gone for good: {CHANGE} retire-topic orders --reason "..."'


@pytest.mark.parametrize(
    ("difference", "purpose", "next_command"),
    [
        (CLUSTER, Purpose.PLAN, ACCEPT_CLUSTER),
        (CLUSTER, Purpose.CHANGE, ACCEPT_CLUSTER),
        (CLUSTER, Purpose.ROLL_BACK, "point the connection at the former cluster"),
        (TOPIC, Purpose.BEGIN, CREATE),
        (TOPIC, Purpose.PLAN, f"{CREATE}; {RETIRE}"),
        (TOPIC, Purpose.CHANGE, f"{RETIRE}; {RUNBOOK} TopicMissing; {LEFT_OUT}"),
        (TOPIC, Purpose.READ_AGAIN, f"{CREATE}, then ask again"),
        (TOPIC, Purpose.ROLL_BACK, OF_ANOTHER_LOG),
        (RECREATED, Purpose.PLAN, f'{CHANGE} accept-recreation orders --reason "..."; {RUNBOOK} TopicRecreated'),
        (RECREATED, Purpose.CHANGE, f"{RUNBOOK} TopicRecreated; {LEFT_OUT}"),
        (RECREATED, Purpose.ROLL_BACK, OF_ANOTHER_LOG),
        (PARTITION, Purpose.PLAN, f"clear the failed task once all brokers are up; {RUNBOOK} PartitionMissing"),
        (PARTITION, Purpose.CHANGE, f"{RUNBOOK} PartitionMissing; {LEFT_OUT}"),
        (PARTITION, Purpose.ROLL_BACK, OF_ANOTHER_LOG),
        (LEADER, Purpose.PLAN, f"bring its brokers back, then clear the failed task; {RUNBOOK} LeaderMissing"),
        (LEADER, Purpose.CHANGE, f"bring its brokers back and ask again, {LEFT_OUT}"),
        (LEADER, Purpose.ROLL_BACK, "bring its brokers back, then roll back again"),
        (EXPIRED, Purpose.PLAN, f'{CHANGE} accept-loss --reason "..."; {RUNBOOK} OffsetsExpired'),
        (EXPIRED, Purpose.ROLL_BACK, "roll back fewer batches; what the log has lost exists only in the table"),
        (TRUNCATED, Purpose.PLAN, f'first {RUNBOOK} LogTruncated; then {CHANGE} reset --to latest --reason "..."'),
        (TRUNCATED, Purpose.ROLL_BACK, OF_ANOTHER_LOG),
    ],
)
def test_what_to_do_depends_on_what_the_log_is_compared_for(
    difference: Difference, purpose: Purpose, next_command: str
) -> None:
    fault = difference.fault(purpose, "sales")
    assert (fault.error, fault.where, fault.next_command) == (difference.kind.error, difference.where, next_command)
    assert not {"{", "}"} & set(fault.expected + fault.found)


def test_a_difference_has_the_same_wording_for_every_purpose_unless_it_would_be_wrong() -> None:
    assert RECREATED.fault(Purpose.ROLL_BACK, "sales").expected == (
        f"topic id {TOPIC_ID}, which the committed offsets [0] 100 belong to"
    )
    assert RECREATED.fault(Purpose.CHANGE, "sales").found == "topic id another: the topic was deleted and created again"
    lost = "log start offset 91: 1 offsets"
    assert EXPIRED.fault(Purpose.PLAN, "sales").found == f"{lost} were deleted before they were read"
    assert EXPIRED.fault(Purpose.ROLL_BACK, "sales").found == f"{lost} could not be read again"
    assert TOPIC.fault(Purpose.PLAN, "sales").found == "no such topic in the cluster"
    assert TOPIC.fault(Purpose.CHANGE, "sales").found == "none"  # it may exist, and not be selected


def test_a_broker_that_tells_no_topic_id_is_not_taken_for_one_that_made_the_topic_again() -> None:
    found = the(other_topic([position(0, 100)], TopicState("orders", None, {}), TopicIdentity.TOPIC_ID))
    assert found.fault(Purpose.ROLL_BACK, "sales").found == "a broker that tells none"


def test_a_partition_without_a_leader_stops_a_plan_and_is_waited_for_by_a_read() -> None:
    assert LEADER.fault(Purpose.PLAN, "sales").error is LeaderMissing
    error = replace(LEADER, values={**LEADER.values, "first": 7}).error(Purpose.READ)
    assert type(error) is BrokerUnavailable
    assert (error.what, error.found) == ("orders[0] cannot be read at offset 7", "no leader")


def test_a_read_that_does_not_know_its_pipeline_names_a_command_to_be_completed() -> None:
    error = EXPIRED.error(Purpose.READ)
    assert error.next_command == (
        'run "python -m kafka_ingest lag" to see what the log holds; '
        'python -m kafka_ingest change PIPELINE accept-loss --supersede --reason "..."; '
        "see docs/runbook.md, section OffsetsExpired"
    )
    assert error.pipeline is None
