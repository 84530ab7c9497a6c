"""Position changes with real Kafka and PostgreSQL, and loads after them: each readable record is there exactly once."""

from __future__ import annotations

import getpass
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_ingest.__main__ import main
from kafka_ingest.errors import TopicRecreated
from sandbox.kafka import KafkaBroker
from tests.deadlines import until
from tests.integration.pipeline_under_test import FedPipeline, PipelineUnderTest
from tests.services import ProducerFactory, TopicFactory


@pytest.fixture
def admin(kafka_broker: KafkaBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka_broker.bootstrap})


def delete_before(admin: AdminClient, topic: str, offset: int) -> None:
    partition = TopicPartition(topic, 0, offset)
    admin.delete_records([partition])[partition].result(30)


def recreate(admin: AdminClient, topic: str, partitions: int) -> None:
    admin.delete_topics([topic])[topic].result(30)
    until(lambda: topic not in admin.list_topics(timeout=10).topics, f"{topic} is gone")
    recreate_deleted(admin, topic, partitions)


def recreate_deleted(admin: AdminClient, topic: str, partitions: int) -> None:
    def created() -> bool:
        # A broker may still know the former topic for a moment.
        return admin.create_topics([NewTopic(topic, partitions, 1)])[topic].exception(30) is None

    until(created, f"{topic} is there again")


RECORDED = "SELECT count(*) FROM kafka_ingest.position_change WHERE kind <> 'initialised'"


def change(pipeline: PipelineUnderTest, *arguments: str, name: str = "events") -> dict[str, Any]:
    """Makes a change, after a look at it that shows the same and writes nothing."""
    before = pipeline.query(RECORDED)
    code, preview, notes = pipeline.command("change", name, *arguments)
    assert code == 0, notes
    assert pipeline.query(RECORDED) == before
    code, made, notes = pipeline.command("change", name, *arguments, "--reason", "because", "--apply")
    assert code == 0, notes
    assert (made["positions"], made["settings"]) == (preview["positions"], preview["settings"])
    assert (made["who"], made["why"]) == (getpass.getuser(), "because")
    assert pipeline.command("audit", name)[:2] == (0, [])
    return dict(made)


def offsets(pipeline: PipelineUnderTest) -> list[tuple[int, ...]]:
    """Return generation, partition and offset of every row."""
    return sorted(pipeline.rows("kafka_generation, kafka_partition, kafka_offset"))


def everything(generation: int = 0, **spans: tuple[int, int]) -> list[tuple[int, ...]]:
    """Return what a table holds that has the spans of offsets, by partition, each offset once."""
    return [(generation, int(name[1:]), offset) for name, (start, end) in spans.items() for offset in range(start, end)]


def test_a_reset_backwards_is_loaded_again_in_place_of_the_rows_that_stay_until_then(pipeline: FedPipeline) -> None:
    name = pipeline.open(2)
    pipeline.send(*"abcde")
    pipeline.send(*"xyz", partition=1)
    first = pipeline.load_here()["batch_id"]
    made = change(pipeline, "reset", "--to", "earliest", "--only", name, "0")
    assert made["positions"] == [
        {
            "topic": name,
            "partition": 0,
            "from": 5,
            "to": 0,
            "generation": 0,
            "line": 1,
            "read_again": "[0, 5)",
            "given_up": None,
        }
    ]
    assert offsets(pipeline) == everything(p0=(0, 5), p1=(0, 3))
    pipeline.send("f")
    again = pipeline.load_here()["batch_id"]
    assert offsets(pipeline) == everything(p0=(0, 6), p1=(0, 3))
    written_by = pipeline.rows("batch_id::text")
    assert written_by == [(again,)] * 6 + [(first,)] * 3


def test_a_reset_forwards_gives_up_what_it_passes_over_and_goes_on_in_its_line(pipeline: FedPipeline) -> None:
    pipeline.open()
    pipeline.send(*"abc")
    pipeline.load_here()
    pipeline.send(*"defgh")
    [moved] = change(pipeline, "skip-lag", "--keep", "1")["positions"]
    assert (moved["from"], moved["to"], moved["line"], moved["given_up"]) == (3, 7, 0, "[3, 7)")
    pipeline.load_here()
    assert offsets(pipeline) == everything(p0=(0, 3)) + everything(p0=(7, 8))


def test_a_reset_to_a_time_goes_to_its_first_record(pipeline: FedPipeline) -> None:
    pipeline.open(1, {"retention.ms": "-1"})
    for second in range(1, 6):
        pipeline.send("x", timestamp=second * 1_000)
    pipeline.load_here()
    [moved] = change(pipeline, "reset", "--to-time", "1970-01-01T00:00:03Z")["positions"]
    assert (moved["from"], moved["to"]) == (5, 2)
    pipeline.load_here()
    assert offsets(pipeline) == everything(p0=(0, 5))


def test_offsets_outside_the_log_are_refused_and_named(pipeline: FedPipeline) -> None:
    name = pipeline.open(2)
    pipeline.send(*"abc")
    pipeline.load_here()
    wanted = ("--to-offset", name, "0", "4", "--to-offset", name, "1", "1", "--to-offset", name, "2", "0")
    code, preview, _ = pipeline.command("change", "events", "reset", *wanted)
    assert (code, len(preview["faults"])) == (78, 3)
    code, _, notes = pipeline.command("change", "events", "reset", *wanted, "--reason", "because", "--apply")
    assert (code, '"class": "ConfigError"' in notes) == (78, True)
    assert pipeline.query(RECORDED) == [(0,)]


def test_c11_accepted_loss_records_what_was_lost_and_loads_what_is_left(
    pipeline: FedPipeline, admin: AdminClient
) -> None:
    name = pipeline.open()
    pipeline.send(*"abc")
    pipeline.load_here()
    pipeline.send(*"defgh")
    delete_before(admin, name, 5)
    code, _, notes = pipeline.command("run", "events", "--runner", "in-process")
    assert (code, "change events accept-loss" in notes) == (78, True)
    [moved] = change(pipeline, "accept-loss", "--margin", "1")["positions"]
    assert (moved["from"], moved["to"], moved["given_up"]) == (3, 6, "[3, 6)")
    stored = "SELECT why, details -> 'given_up' FROM kafka_ingest.position_change WHERE kind = 'loss_accepted'"
    assert pipeline.query(stored) == [("because", [3, 6])]
    pipeline.load_here()
    assert offsets(pipeline) == everything(p0=(0, 3)) + everything(p0=(6, 8))


def test_an_accepted_recreation_loads_the_new_log_beside_the_rows_of_the_old_one(
    pipeline: FedPipeline, admin: AdminClient
) -> None:
    name = pipeline.open(2)
    pipeline.send(*"abc")
    pipeline.send(*"xy", partition=1)
    pipeline.load_here()
    recreate(admin, name, 1)
    pipeline.send(*"ABCD")
    code, _, notes = pipeline.command("run", "events", "--runner", "in-process")
    assert (code, f"change events accept-recreation {name}" in notes) == (78, True), notes
    made = change(pipeline, "accept-recreation")
    assert [(p["partition"], p["from"], p["to"], p["generation"]) for p in made["positions"]] == [
        (0, 3, 0, 1),
        (1, 2, None, None),
    ]
    pipeline.load_here()
    assert offsets(pipeline) == everything(p0=(0, 3), p1=(0, 2)) + everything(1, p0=(0, 4))
    assert change(pipeline, "accept-recreation")["positions"] == []


def bind_to_another_cluster(pipeline: PipelineUnderTest) -> None:
    """Makes the ledger one of another cluster: the connection then leads elsewhere."""
    for table in ("pipeline", "served_topic", "committed_offset", "batch"):
        pipeline.query(f"UPDATE kafka_ingest.{table} SET cluster_id = 'former'")


def test_an_accepted_cluster_begins_a_generation_of_every_topic(pipeline: FedPipeline, topic: TopicFactory) -> None:
    one, other = topic(), topic()
    pipeline.write(one, kafka={"topics": [one, other]})
    pipeline.send(*"abc", to=one)
    pipeline.send(*"xy", to=other)
    pipeline.load_here()
    bind_to_another_cluster(pipeline)
    code, _, notes = pipeline.command("run", "events", "--runner", "in-process")
    assert (code, "change events accept-cluster" in notes) == (78, True)
    made = change(pipeline, "accept-cluster")
    assert sorted((p["topic"], p["to"], p["generation"]) for p in made["positions"]) == sorted(
        [(one, 0, 1), (other, 0, 1)]
    )
    assert [setting["from"] for setting in made["settings"]] == ["former"]
    pipeline.load_here()
    counted = pipeline.query(
        "SELECT kafka_topic, kafka_generation, count(*) FROM shop.events GROUP BY 1, 2 ORDER BY count(*), 2"
    )
    assert counted == [(other, 0, 2), (other, 1, 2), (one, 0, 3), (one, 1, 3)]


def test_the_same_log_under_another_cluster_id_goes_on_where_it_was(pipeline: FedPipeline) -> None:
    name = pipeline.open()
    pipeline.send(*"abc")
    pipeline.load_here()
    bind_to_another_cluster(pipeline)
    [moved] = change(pipeline, "accept-same-log")["positions"]
    assert (moved["from"], moved["to"], moved["generation"], moved["line"]) == (3, 3, 0, 0)
    pipeline.send("d")
    assert pipeline.load_here()["ranges"] == {name: {"0": [3, 4]}}
    assert offsets(pipeline) == everything(p0=(0, 4))


def test_a_renamed_pipeline_goes_on_where_it_was(pipeline: FedPipeline) -> None:
    name = pipeline.open()
    pipeline.send(*"abc")
    pipeline.load_here()
    renamed = PipelineUnderTest("sales", pipeline.folder, pipeline.database, pipeline.capture)
    renamed.write(name, target={"table": pipeline.table, "create_table": True})
    (pipeline.folder / "events.yaml").unlink()
    code, _, notes = renamed.command("run", "sales", "--runner", "in-process")
    assert (code, "change sales rename --from events" in notes) == (78, True), notes
    arguments = ("sales", "rename", "--from", "events", "--request-id", "r1", "--reason", "because", "--apply")
    code, made, notes = renamed.command("change", *arguments)
    assert (code, made["settings"]) == (0, [{"name": "pipeline", "from": "events", "to": "sales"}]), notes
    assert renamed.command("change", *arguments)[1] == made
    pipeline.send("d")
    assert renamed.load_here()["ranges"] == {name: {"0": [3, 4]}}
    assert offsets(pipeline) == everything(p0=(0, 4))
    assert renamed.command("audit", "sales")[:2] == (0, [])


def test_a_retired_topic_is_read_no_more_and_does_not_hold_back_the_others(
    pipeline: FedPipeline, topic: TopicFactory, admin: AdminClient
) -> None:
    kept, gone = topic(), topic()
    pipeline.write(kept, kafka={"topics": [kept, gone]})
    pipeline.send("a", to=kept)
    pipeline.send("x", to=gone)
    pipeline.load_here()
    admin.delete_topics([gone])[gone].result(30)
    until(lambda: gone not in admin.list_topics(timeout=10).topics, f"{gone} is gone")
    code, _, notes = pipeline.command("run", "events", "--runner", "in-process")
    assert (code, f"change events retire-topic {gone}" in notes) == (78, True), notes
    change(pipeline, "retire-topic", gone)
    pipeline.send("b", to=kept)
    summary = pipeline.load_here()
    assert summary["ranges"] == {kept: {"0": [1, 2]}}
    _, lags, _ = pipeline.command("lag", "events")
    assert [lag["topic"] for lag in lags] == [kept]
    recreate_deleted(admin, gone, 1)
    pipeline.send("y", "z", to=gone)
    assert pipeline.load_here()["ranges"] == {}
    [(warnings,)] = pipeline.query("SELECT warnings FROM kafka_ingest.batch ORDER BY ordinal DESC LIMIT 1")
    assert f"change events read-topic-again {gone}" in warnings[0]
    change(pipeline, "read-topic-again", gone)
    assert pipeline.load_here()["ranges"] == {gone: {"0": [0, 2]}}
    loaded = pipeline.query(
        "SELECT kafka_generation, kafka_offset FROM shop.events WHERE kafka_topic = %s ORDER BY 1, 2", gone
    )
    assert loaded == [(0, 0), (1, 0), (1, 1)]
    assert pipeline.query("SELECT count(*) FROM kafka_ingest.position_change WHERE kind = 'topic_read_again'") == [(1,)]


def test_another_target_begins_where_the_former_one_ended(pipeline: FedPipeline) -> None:
    name = pipeline.open()
    pipeline.send(*"abc")
    pipeline.load_here()
    pipeline.write(name, target={"table": "mart.sales", "create_table": True})
    code, _, notes = pipeline.command("run", "events", "--runner", "in-process")
    assert (code, "change events change-target" in notes) == (78, True)
    change(pipeline, "change-target")
    pipeline.send(*"de")
    pipeline.load_here()
    assert offsets(pipeline) == everything(p0=(0, 3))
    assert pipeline.query("SELECT kafka_offset FROM mart.sales ORDER BY 1") == [(3,), (4,)]


def test_nobody_else_may_load_a_topic_into_the_table_that_a_pipeline_left(pipeline: FedPipeline) -> None:
    name = pipeline.open()
    pipeline.send(*"abc")
    pipeline.load_here()
    pipeline.write(name, target={"table": "mart.sales", "create_table": True})
    change(pipeline, "change-target")
    other = PipelineUnderTest("other", pipeline.folder, pipeline.database, pipeline.capture)
    other.write(name, target={"table": "shop.events"})
    code, _, notes = other.command("run", "other", "--runner", "in-process")
    assert (code, "loaded twice" in notes) == (78, True), notes
    assert offsets(pipeline) == everything(p0=(0, 3))


def test_another_isolation_level_is_read_from_then_on(pipeline: FedPipeline, producer: ProducerFactory) -> None:
    name = pipeline.open()
    pipeline.load_here()
    sender = producer(transactional_id=f"{name}-t")
    sender.init_transactions()
    sender.begin_transaction()
    sender.produce(name, value="never committed")
    sender.flush()
    sender.abort_transaction()
    pipeline.write(name, kafka={"topics": [name], "isolation_level": "read_uncommitted"})
    change(pipeline, "change-isolation-level")
    pipeline.load_here()
    assert pipeline.rows("payload") == [(b"never committed",)]


def test_a_change_is_refused_while_a_batch_is_outstanding_unless_it_supersedes_it(pipeline: FedPipeline) -> None:
    name = pipeline.open()
    pipeline.send(*"abc")
    pipeline.load_here()
    pipeline.send(*"de")
    pipeline.plan_only("stays planned")
    wanted = ("change", "events", "reset", "--by", "-1", "--reason", "because", "--apply")
    code, _, notes = pipeline.command(*wanted)
    assert (code, '"class": "BatchOutstanding"' in notes, "stays planned" in notes) == (78, True, True)
    code, made, notes = pipeline.command(*wanted, "--supersede")
    assert code == 0, notes
    assert made["superseded_batch_id"] is not None
    assert pipeline.load_here()["ranges"] == {name: {"0": [2, 5]}}
    assert offsets(pipeline) == everything(p0=(0, 5))


def test_the_same_request_is_made_once_and_never_with_other_arguments(pipeline: FedPipeline) -> None:
    pipeline.open()
    pipeline.send(*"abc")
    pipeline.load_here()
    wanted = ("change", "events", "reset", "--request-id", "r1", "--reason", "because", "--apply")
    first = pipeline.command(*wanted, "--by", "-1")
    assert pipeline.command(*wanted, "--by", "-1")[:2] == first[:2]
    code, _, notes = pipeline.command(*wanted, "--by", "-2")
    assert (code, '"class": "RequestChanged"' in notes) == (78, True)
    assert pipeline.query("SELECT committed_offset FROM kafka_ingest.committed_offset") == [(2,)]


def test_people_see_a_table_and_what_to_do_next(pipeline: FedPipeline) -> None:
    name = pipeline.open()
    pipeline.send(*"abc")
    pipeline.load_here()
    pipeline.capture.readouterr()
    assert main(["change", "events", "reset", "--to", "earliest"]) == 0
    shown = pipeline.capture.readouterr()
    assert shown.out.splitlines()[0].split() == (
        ["topic", "partition", "from", "to", "generation", "line", "read", "again", "given", "up"]
    )
    assert shown.out.splitlines()[2].split() == [name, "0", "3", "0", "0", "1", "[0,", "3)", "-"]
    assert shown.err == "nothing was written: add --apply to make this change\n"
    assert main(["change", "events", "reset", "--to", "earliest", "--apply"]) == 78
    assert "reason" in pipeline.capture.readouterr().err


def test_a_pipeline_planned_without_topic_ids_goes_on_with_them_and_stops_at_a_recreated_topic(
    pipeline: FedPipeline, admin: AdminClient
) -> None:
    name = pipeline.open(2)
    pipeline.write(name, kafka={"topics": [name], "topic_identity": "none"})
    pipeline.send("a", "b")
    pipeline.load_here()
    pipeline.write(name)
    pipeline.send("c", partition=1)
    pipeline.load_here(run_id="with ids")
    assert offsets(pipeline) == everything(p0=(0, 2), p1=(0, 1))
    adopted = (
        "SELECT partition, from_topic_id, to_topic_id IS NOT NULL, from_offset = to_offset, who"
        " FROM kafka_ingest.position_change WHERE kind = 'topic_id_adopted' ORDER BY partition"
    )
    who = "DAG test, run with ids"
    assert pipeline.query(adopted) == [(0, None, True, True, who), (1, None, True, True, who)]
    assert pipeline.command("audit", "events")[:2] == (0, [])
    recreate(admin, name, 2)
    with pytest.raises(TopicRecreated):
        pipeline.load_here()
    change(pipeline, "accept-recreation", name)
    pipeline.send("z")
    pipeline.load_here()
    assert offsets(pipeline) == everything(p0=(0, 2), p1=(0, 1)) + everything(1, p0=(0, 1))
