"""Changes that accept another log, or change what binds a pipeline; values worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_ingest.errors import ConfigError
from kafka_ingest.protocol.changes import choose_changes
from kafka_ingest.protocol.decisions import (
    AcceptCluster,
    AcceptRecreation,
    AcceptSameLog,
    Change,
    ChangeIdentityColumns,
    ChangeIsolationLevel,
    ChangeRequest,
    ChangeTarget,
    ChangeView,
    LogPlace,
    ReadTopicAgain,
    RenamePipeline,
    ResetToPlace,
    RetireTopic,
)
from kafka_ingest.protocol.ledger_view import ChangePlan, PlanView, PositionPoint, ServedTopic, SettingChange
from kafka_ingest.protocol.log import LogSnapshot
from kafka_ingest.protocol.position import Position
from kafka_ingest.settings import IsolationLevel, MetadataColumns, PipelineSettings, TargetSettings, TopicIdentity
from tests.builders import (
    CLUSTER,
    EMPTY_VIEW,
    NOON,
    TOPIC_ID,
    batch_settings,
    partition_state,
    pipeline_settings,
    position,
    snapshot,
    view_of,
)

OTHER_ID, OTHER_CLUSTER = "topic-id-2", "cluster-2"
SETTINGS = pipeline_settings()
BLIND = pipeline_settings(batch=replace(batch_settings(), topic_identity=TopicIdentity.NONE))


def asked(change: Change, *, pipeline: str = "orders") -> ChangeRequest:
    return ChangeRequest(pipeline, "r1", change, "ada", "because")


def choose(
    change: Change,
    view: PlanView,
    log: LogSnapshot | None = None,
    *,
    settings: PipelineSettings = SETTINGS,
    taken: bool = False,
    columns: dict[str, str] | None = None,
) -> ChangePlan:
    seen = ChangeView(view, settings.batch.target, name_is_taken=taken, target_columns=columns)
    request = asked(change, pipeline=settings.pipeline)
    return choose_changes(settings, request, view=seen, snapshot=log, offsets_at={})


def test_a_recreated_topic_begins_a_generation_with_exactly_its_new_partitions() -> None:
    read = replace(position(0, 100), timeline=3, leader_epoch=7, valid_through=NOON)
    log = snapshot({"orders": [partition_state(0, 0, 50), partition_state(2, 4, 9)]}, topic_id=OTHER_ID)
    plan = choose(AcceptRecreation(), view_of(read, position(1, 80)), log)
    before = [PositionPoint(100, 0, 3, TOPIC_ID, CLUSTER), PositionPoint(80, 0, 0, TOPIC_ID, CLUSTER), None]
    after = [PositionPoint(0, 1, 0, OTHER_ID, CLUSTER), None, PositionPoint(4, 1, 0, OTHER_ID, CLUSTER)]
    assert [c.before for c in plan.positions] == before
    assert [c.after for c in plan.positions] == after
    assert [(c.given_up, c.read_again) for c in plan.positions] == [(None, None)] * 3
    [new, *_] = [move.after for move in plan.moves if move.after]
    assert (new.loaded_to, new.leader_epoch, new.valid_through) == (0, None, None)
    assert plan.faults == ()


def test_a_recreated_topic_can_begin_at_its_end_and_gives_up_what_is_there() -> None:
    log = snapshot({"orders": [partition_state(0, 10, 50, end=40), partition_state(1, 0, 0)]}, topic_id=OTHER_ID)
    plan = choose(AcceptRecreation(begin=LogPlace.LATEST), view_of(position(0, 100), position(1, 80)), log)
    assert [c.after.offset for c in plan.positions if c.after] == [40, 0]
    assert [c.given_up for c in plan.positions] == [(10, 40), None]


def test_a_topic_that_was_not_recreated_stays() -> None:
    log = snapshot({"orders": [partition_state(0, 0, 500)]})
    assert choose(AcceptRecreation(), view_of(position(0, 100)), log) == ChangePlan()
    assert choose(AcceptRecreation(("orders",)), view_of(position(0, 100)), log) == ChangePlan()


def test_without_topic_ids_a_recreation_is_accepted_only_by_name() -> None:
    log = snapshot({"orders": [partition_state(0, 0, 50)]}, topic_id=None)
    view = view_of(replace(position(0, 100), topic_id=None))
    assert choose(AcceptRecreation(), view, log, settings=BLIND) == ChangePlan()
    [change] = choose(AcceptRecreation(("orders",)), view, log, settings=BLIND).positions
    assert change.after == PositionPoint(0, 1, 0, None, CLUSTER)


def test_a_recreation_of_a_topic_whose_id_was_never_stored_is_accepted_by_name() -> None:
    """Planned under none, re-created, and the brokers tell ids by now."""
    log = snapshot({"orders": [partition_state(0, 0, 50)]}, topic_id=OTHER_ID)
    view = view_of(replace(position(0, 100), topic_id=None))
    assert choose(AcceptRecreation(), view, log) == ChangePlan()
    [change] = choose(AcceptRecreation(("orders",)), view, log).positions
    assert change.after == PositionPoint(0, 1, 0, OTHER_ID, CLUSTER)


@pytest.mark.parametrize("known", [0, 1])
def test_a_recreated_topic_is_known_by_the_id_of_any_partition(known: int) -> None:
    ids = {known: TOPIC_ID}
    positions = [replace(position(number, 5), topic_id=ids.get(number)) for number in (0, 1)]
    log = snapshot({"orders": [partition_state(0, 0, 9), partition_state(1, 0, 9)]}, topic_id=OTHER_ID)
    after = [c.after for c in choose(AcceptRecreation(), view_of(*positions), log).positions]
    assert after == [PositionPoint(0, 1, 0, OTHER_ID, CLUSTER)] * 2


@pytest.mark.parametrize(("ids", "names"), [((None, TOPIC_ID), []), ((TOPIC_ID, "older"), ["TopicRecreated"])])
def test_the_same_log_under_another_cluster_is_shown_by_all_ids_that_are_stored(
    ids: tuple[str | None, str], names: list[str]
) -> None:
    positions = [replace(position(number, 5), topic_id=topic_id) for number, topic_id in enumerate(ids)]
    log = snapshot({"orders": [partition_state(0, 0, 9), partition_state(1, 0, 9)]}, cluster_id=OTHER_CLUSTER)
    plan = choose(AcceptSameLog(), view_of(*positions), log)
    assert [fault.error.__name__ for fault in plan.faults] == names
    assert len(plan.moves) == (0 if names else 2)


def test_a_recreated_topic_with_a_partition_without_offsets_has_to_wait() -> None:
    leaderless = replace(partition_state(0, 0, 0), has_leader=False, end_offset=None)
    plan = choose(AcceptRecreation(), view_of(position(0, 5)), snapshot({"orders": [leaderless]}, topic_id=OTHER_ID))
    assert [(f.error.__name__, f.where) for f in plan.faults] == [("LeaderMissing", "orders[0]")]


def test_a_topic_that_is_not_there_cannot_be_accepted() -> None:
    plan = choose(AcceptRecreation(("gone",)), view_of(position(0, 5)), snapshot({}))
    assert [(f.error.__name__, f.where) for f in plan.faults] == [("TopicMissing", "topic gone")]


def test_an_accepted_cluster_begins_a_generation_of_every_topic() -> None:
    view = view_of(position(0, 100), replace(position(0, 7, topic="returns"), generation=2))
    log = snapshot(
        {"orders": [partition_state(0, 3, 50)], "returns": [partition_state(0, 0, 9)]},
        cluster_id=OTHER_CLUSTER,
        topic_id=OTHER_ID,
    )
    plan = choose(AcceptCluster(), view, log)
    assert [c.after for c in plan.positions] == [
        PositionPoint(3, 1, 0, OTHER_ID, OTHER_CLUSTER),
        PositionPoint(0, 3, 0, OTHER_ID, OTHER_CLUSTER),
    ]
    assert plan.binding is not None
    assert plan.binding.cluster_id == OTHER_CLUSTER
    assert plan.settings == (SettingChange("cluster id", CLUSTER, OTHER_CLUSTER),)


def test_a_topic_that_the_new_cluster_lacks_prevents_it_and_a_retired_one_does_not() -> None:
    view = view_of(position(0, 100), position(0, 7, topic="returns"))
    log = snapshot({"orders": [partition_state(0, 0, 5)]}, cluster_id=OTHER_CLUSTER)
    assert [f.where for f in choose(AcceptCluster(), view, log).faults] == ["topic returns"]
    retired = replace(view, served=(view.served[0], ServedTopic("orders", CLUSTER, "returns", is_retired=True)))
    plan = choose(AcceptCluster(), retired, log)
    assert ([str(move.place) for move in plan.moves], plan.faults) == (["orders[0]"], ())


def test_a_topic_of_the_new_cluster_that_another_pipeline_loads_prevents_it() -> None:
    view = view_of(position(0, 100))
    view = replace(view, served=(*view.served, ServedTopic("sales", OTHER_CLUSTER, "orders")))
    log = snapshot({"orders": [partition_state(0, 0, 5)]}, cluster_id=OTHER_CLUSTER)
    for change in (AcceptCluster(), AcceptSameLog()):
        [fault] = choose(change, view, log).faults
        assert (fault.expected, fault.error) == ("one pipeline, which is sales", ConfigError)


def test_the_same_log_under_another_cluster_id_keeps_its_positions() -> None:
    read = replace(position(0, 100), timeline=2, leader_epoch=7, loaded_to=120)
    log = snapshot({"orders": [partition_state(0, 0, 500)]}, cluster_id=OTHER_CLUSTER)
    [move] = choose(AcceptSameLog(), view_of(read), log).moves
    assert move.after == replace(read, cluster_id=OTHER_CLUSTER)


def test_another_topic_id_is_not_the_same_log() -> None:
    log = snapshot({"orders": [partition_state(0, 0, 500)]}, cluster_id=OTHER_CLUSTER, topic_id=OTHER_ID)
    plan = choose(AcceptSameLog(), view_of(position(0, 100)), log)
    assert [(f.error.__name__, f.expected, f.found) for f in plan.faults] == [
        ("TopicRecreated", f"topic id {TOPIC_ID}", f"topic id {OTHER_ID}")
    ]


def test_an_unknown_topic_id_is_not_shown_to_be_the_same_log() -> None:
    log = snapshot({"orders": [partition_state(0, 0, 500)]}, cluster_id=OTHER_CLUSTER, topic_id=None)
    plan = choose(AcceptSameLog(), view_of(replace(position(0, 100), topic_id=None)), log, settings=BLIND)
    assert [f.error.__name__ for f in plan.faults] == ["TopicRecreated"]


@pytest.mark.parametrize("change", [AcceptCluster(), AcceptSameLog()])
def test_the_known_cluster_is_nothing_to_accept(change: Change) -> None:
    assert choose(change, view_of(position(0, 1)), snapshot({"orders": [partition_state(0, 0, 5)]})) == ChangePlan()


def test_a_recreated_topic_on_another_cluster_is_a_matter_of_the_cluster() -> None:
    log = snapshot({"orders": [partition_state(0, 0, 5)]}, cluster_id=OTHER_CLUSTER, topic_id=OTHER_ID)
    plan = choose(AcceptRecreation(), view_of(position(0, 1)), log)
    assert [f.error.__name__ for f in plan.faults] == ["ClusterChanged"]
    assert "python -m kafka_ingest change orders accept-cluster" in plan.faults[0].next_command


def test_a_topic_is_retired_once_and_only_by_the_pipeline_that_loads_it() -> None:
    view = view_of(position(0, 1), position(0, 1, topic="returns"))
    plan = choose(RetireTopic("returns"), view)
    assert (plan.retired_topic, plan.moves, plan.faults) == ("returns", (), ())
    again = replace(view, served=(view.served[0], ServedTopic("orders", CLUSTER, "returns", is_retired=True)))
    assert choose(RetireTopic("returns"), again) == ChangePlan()
    others = replace(view, served=(view.served[0], ServedTopic("sales", CLUSTER, "returns")))
    assert [f.where for f in choose(RetireTopic("returns"), others).faults] == ["topic returns"]
    assert [f.where for f in choose(RetireTopic("misspelt"), view).faults] == ["topic misspelt"]


def retired(*positions: Position) -> PlanView:
    """A ledger of which topic "orders" is retired."""
    view = view_of(*positions)
    return replace(view, served=tuple(replace(s, is_retired=s.topic == "orders") for s in view.served))


def test_a_retired_topic_that_is_read_again_goes_on_from_its_positions() -> None:
    log = snapshot({"orders": [partition_state(0, 0, 50), partition_state(1, 0, 9)]})
    plan = choose(ReadTopicAgain("orders"), retired(position(0, 5)), log)
    assert (plan.topic_read_again, plan.moves, plan.faults) == ("orders", (), ())
    assert plan.settings == (SettingChange("topic orders", "retired", "read"),)


def test_a_retired_topic_that_was_created_again_is_read_again_as_a_new_generation() -> None:
    log = snapshot({"orders": [partition_state(0, 4, 50), partition_state(2, 0, 9)]}, topic_id=OTHER_ID)
    plan = choose(ReadTopicAgain("orders"), retired(position(0, 5), position(1, 7)), log)
    assert (plan.topic_read_again, plan.faults) == ("orders", ())
    assert [c.after for c in plan.positions] == [
        PositionPoint(4, 1, 0, OTHER_ID, CLUSTER),
        None,
        PositionPoint(0, 1, 0, OTHER_ID, CLUSTER),
    ]


@pytest.mark.parametrize(
    ("settings", "topic_id", "after"),
    [
        pytest.param(SETTINGS, TOPIC_ID, PositionPoint(5, 0, 0, TOPIC_ID, OTHER_CLUSTER), id="the same log, by its id"),
        pytest.param(SETTINGS, OTHER_ID, PositionPoint(0, 1, 0, OTHER_ID, OTHER_CLUSTER), id="another log"),
        pytest.param(BLIND, None, PositionPoint(0, 1, 0, None, OTHER_CLUSTER), id="nothing shows that it is the same"),
    ],
)
def test_a_topic_that_was_retired_on_a_former_cluster_is_read_again_on_the_accepted_one(
    settings: PipelineSettings, topic_id: str | None, after: PositionPoint
) -> None:
    """The change of the cluster has left the positions of the retired topic alone."""
    view = retired(position(0, 5))
    assert view.pipeline is not None
    served = tuple(replace(s, cluster_id=OTHER_CLUSTER) for s in view.served)
    view = replace(view, pipeline=replace(view.pipeline, cluster_id=OTHER_CLUSTER), served=served)
    log = snapshot({"orders": [partition_state(0, 0, 50)]}, cluster_id=OTHER_CLUSTER, topic_id=topic_id)
    [change] = choose(ReadTopicAgain("orders"), view, log, settings=settings).positions
    assert change.after == after


def test_only_a_retired_topic_that_is_there_is_read_again() -> None:
    log = snapshot({"orders": [partition_state(0, 0, 50)]})
    assert choose(ReadTopicAgain("orders"), view_of(position(0, 5)), log) == ChangePlan()

    def fault(topic: str, seen: LogSnapshot) -> tuple[str, str]:
        [found] = choose(ReadTopicAgain(topic), retired(position(0, 5)), seen).faults
        return found.error.__name__, found.where

    assert fault("misspelt", log) == ("ConfigError", "topic misspelt")
    assert fault("orders", snapshot({})) == ("TopicMissing", "topic orders")
    assert fault("orders", snapshot({}, cluster_id=OTHER_CLUSTER)) == ("ClusterChanged", "the Kafka connection")


def test_a_recreation_of_a_retired_topic_is_sent_to_the_change_that_reads_it_again() -> None:
    log = snapshot({"orders": [partition_state(0, 0, 50)]}, topic_id=OTHER_ID)
    [fault] = choose(AcceptRecreation(("orders",)), retired(position(0, 5)), log).faults
    assert (fault.found, "change orders read-topic-again orders" in fault.next_command) == ("a retired one", True)


def test_the_target_becomes_what_the_file_says() -> None:
    moved = pipeline_settings(batch=replace(batch_settings(), target=TargetSettings("mart", "sales")))
    view = replace(view_of(position(0, 1)), served=())
    plan = choose(ChangeTarget(), view, settings=moved)
    assert plan.binding is not None
    assert (plan.binding.target_schema, plan.binding.target_table) == ("mart", "sales")
    assert plan.settings == (SettingChange("target", "shop.orders", "mart.sales"),)
    taken = replace(view, served=(ServedTopic("sales", CLUSTER, "orders"), ServedTopic("sales", CLUSTER, "other")))
    assert [f.expected for f in choose(ChangeTarget(), taken, settings=moved).faults] == [
        "one pipeline, which is sales"
    ]
    assert choose(ChangeTarget(), view_of(position(0, 1))) == ChangePlan()


def test_the_target_does_not_become_the_table_of_an_upsert_pipeline_whatever_that_one_reads() -> None:
    moved = pipeline_settings(batch=replace(batch_settings(), target=TargetSettings("mart", "sales")))
    view = replace(view_of(position(0, 1)), served=(ServedTopic("sales", CLUSTER, "other", is_upsert=True),))
    [fault] = choose(ChangeTarget(), view, settings=moved).faults
    assert (fault.where, fault.expected.partition(":")[0]) == (
        "table mart.sales",
        "one pipeline in all, which is sales",
    )


RENAMED = pipeline_settings(batch=replace(batch_settings(), metadata=MetadataColumns(offset="source_offset")))
OTHERS = {"kafka_topic": "text", "kafka_generation": "integer", "kafka_partition": "integer"}


def test_identity_columns_become_what_the_file_says_once_they_are_renamed_in_the_table() -> None:
    plan = choose(
        ChangeIdentityColumns(),
        view_of(position(0, 1)),
        settings=RENAMED,
        columns={**OTHERS, "source_offset": "bigint"},
    )
    assert plan.faults == ()
    assert plan.binding is not None
    assert plan.binding.identity == RENAMED.batch.metadata.identity
    assert plan.settings == (SettingChange("column of offset", "kafka_offset", "source_offset"),)
    assert choose(ChangeIdentityColumns(), view_of(position(0, 1))) == ChangePlan()


DROP_ADDED = 'ALTER TABLE "shop"."orders" DROP COLUMN "source_offset";'
RENAME_OFFSET = 'ALTER TABLE "shop"."orders" RENAME COLUMN "kafka_offset" TO "source_offset";'


@pytest.mark.parametrize("change", [ChangeIdentityColumns(), ChangeTarget()])
@pytest.mark.parametrize(
    ("columns", "found", "next_command"),
    [
        ({"kafka_offset": "bigint"}, "kafka_offset is still there", RENAME_OFFSET),
        (
            {"kafka_offset": "bigint", "source_offset": "bigint"},
            "kafka_offset is still there",
            f"drop the empty source_offset: {DROP_ADDED} then {RENAME_OFFSET}",
        ),
        ({}, "neither kafka_offset nor source_offset", f"restore kafka_offset, then {RENAME_OFFSET}"),
        (
            {"source_offset": "integer"},
            "source_offset is integer, not bigint",
            "name the column that was kafka_offset in the pipeline file",
        ),
    ],
)
def test_identity_columns_that_were_not_renamed_in_the_table_are_refused(
    change: Change, columns: dict[str, str], found: str, next_command: str
) -> None:
    view = view_of(position(0, 1))
    if isinstance(change, ChangeTarget):
        assert view.pipeline is not None
        view = replace(view, pipeline=replace(view.pipeline, target_table="before"), served=())
    plan = choose(change, view, settings=RENAMED, columns={**OTHERS, **columns})
    [fault] = plan.faults
    assert (fault.where, fault.expected) == (
        "table shop.orders",
        "columns that were renamed: kafka_offset to source_offset",
    )
    assert (fault.found, fault.next_command) == (found, next_command)


def test_identity_columns_of_the_same_type_are_not_swapped_in_one_step() -> None:
    swapped = MetadataColumns(generation="kafka_partition", partition="kafka_generation")
    settings = pipeline_settings(batch=replace(batch_settings(), metadata=swapped))
    columns = {**OTHERS, "kafka_offset": "bigint"}
    [fault] = choose(ChangeIdentityColumns(), view_of(position(0, 1)), settings=settings, columns=columns).faults
    assert fault.found == "kafka_generation is still there; kafka_partition is still there"


def test_identity_columns_of_a_table_that_is_not_there_have_no_rows_to_find() -> None:
    assert choose(ChangeIdentityColumns(), view_of(position(0, 1)), settings=RENAMED, columns=None).faults == ()


def test_identity_columns_are_looked_for_in_the_table_that_the_pipeline_is_bound_to() -> None:
    moved = replace(RENAMED.batch, target=TargetSettings("mart", "sales"))
    plan = choose(ChangeIdentityColumns(), view_of(position(0, 1)), settings=pipeline_settings(batch=moved))
    assert [fault.where for fault in plan.faults] == ["target.table"]


def test_another_target_has_the_identity_columns_that_the_file_says() -> None:
    moved = replace(RENAMED.batch, target=TargetSettings("mart", "sales"))
    view = replace(view_of(position(0, 1)), served=())
    plan = choose(ChangeTarget(), view, settings=pipeline_settings(batch=moved))
    assert plan.binding is not None
    assert plan.binding.identity == RENAMED.batch.metadata.identity
    assert plan.settings == (
        SettingChange("target", "shop.orders", "mart.sales"),
        SettingChange("column of offset", "kafka_offset", "source_offset"),
    )
    assert choose(ChangeTarget(), view, settings=RENAMED) == ChangePlan()


def test_the_isolation_level_becomes_what_the_file_says() -> None:
    level = IsolationLevel.READ_UNCOMMITTED
    plan = choose(
        ChangeIsolationLevel(),
        view_of(position(0, 1)),
        settings=pipeline_settings(batch=replace(batch_settings(), isolation_level=level)),
    )
    assert plan.binding is not None
    assert plan.binding.isolation_level is level
    assert plan.settings == (SettingChange("isolation level", "read_committed", "read_uncommitted"),)


def test_a_renamed_pipeline_keeps_everything_else_and_takes_only_a_free_name() -> None:
    view, renamed = view_of(position(0, 1)), replace(SETTINGS, pipeline="sales")
    plan = choose(RenamePipeline("orders"), view, settings=renamed)
    assert view.pipeline is not None
    assert plan.binding == replace(view.pipeline, pipeline="sales")
    assert plan.settings == (SettingChange("pipeline", "orders", "sales"),)
    taken = choose(RenamePipeline("orders"), view, settings=renamed, taken=True)
    assert [f.where for f in taken.faults] == ["the new name sales"]


def test_a_pipeline_that_never_planned_has_nothing_to_change() -> None:
    log = snapshot({"orders": [partition_state(0, 0, 5)]})
    for change in (ResetToPlace(LogPlace.EARLIEST), RenamePipeline("orders"), RetireTopic("orders")):
        assert [f.where for f in choose(change, EMPTY_VIEW, log).faults] == ["pipeline orders"]


def test_a_file_that_differs_from_what_binds_comes_first() -> None:
    moved = pipeline_settings(batch=replace(batch_settings(), target=TargetSettings("mart", "sales")))
    with pytest.raises(ConfigError, match="first plan has bound"):
        choose(RetireTopic("orders"), view_of(position(0, 1)), settings=moved)


def test_arguments_tell_one_change_from_another() -> None:
    assert asked(ResetToPlace(LogPlace.LATEST)).arguments == (
        '{"change":"ResetToPlace","only":{"partitions":[],"topics":[]},"to":"latest"}'
    )
    assert asked(RenamePipeline("old")).known_name == "old"
    assert asked(RetireTopic("a")).arguments != asked(RetireTopic("b")).arguments
