"""docs/tutorial.md, from its first command to its last, on a real Kafka and PostgreSQL."""

from __future__ import annotations

import re
import shlex

from kafka_ingest.__main__ import main
from sandbox.kafka import KafkaBroker
from sandbox.orders import orders, send_records
from sandbox.paths import CHECKOUT
from sandbox.system import TOPICS
from tests.integration.pipeline_under_test import FedPipeline

PAGE = (CHECKOUT / "docs" / "tutorial.md").read_text(encoding="utf-8")
DRAFT = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[0]
SECTIONS = re.split(r"^## .*\n", PAGE, flags=re.MULTILINE)


def commands(section: int, pipeline: FedPipeline) -> list[list[str]]:
    """Return the commands of a section, on the test's topic, without Spark, which other tests run."""
    found = re.findall(r"^    python -m kafka_ingest (.*)$", SECTIONS[section], re.MULTILINE)
    listed = [shlex.split(line.replace("dags/pipelines/", f"{pipeline.folder}/")) for line in found]
    for arguments in listed:
        if arguments[0] == "draft":
            arguments[1] = pipeline.topic
        if arguments[0] == "run":
            arguments += ["--runner", "in-process"]
    return listed


def run_all(section: int, pipeline: FedPipeline) -> str:
    """Run the commands of a section; return what they printed."""
    pipeline.capture.readouterr()
    for arguments in commands(section, pipeline):
        assert main(arguments) == 0, pipeline.capture.readouterr().err
    return pipeline.capture.readouterr().out


def test_the_tutorial_leads_from_a_topic_to_its_table(pipeline: FedPipeline, kafka_broker: KafkaBroker) -> None:
    pipeline.name = "first_orders"
    pipeline.topic = pipeline.make_topic(TOPICS["orders"])
    send_records(kafka_broker.bootstrap, pipeline.topic, orders(1_000))

    run_all(1, pipeline)
    path = pipeline.folder / "first_orders.yaml"
    assert path.read_text().replace(pipeline.topic, "orders") == DRAFT

    before, after = re.findall(r"^    (- \{name: order_id.*\})$", SECTIONS[2], re.MULTILINE)
    assert path.read_text().count(before) == 1
    path.write_text(f"{path.read_text().replace(before, after)}tombstones: dead_letter\n")

    run_all(3, pipeline)
    run_all(4, pipeline)
    assert pipeline.query("SELECT count(*), sum(order_id) FROM shop.first_orders") == [(1_000, 499_500)]

    send_records(kafka_broker.bootstrap, pipeline.topic, orders(100, first=1_000, malformed=3))
    shown = run_all(5, pipeline)
    assert sorted(pipeline.dead_letters("reason")) == [("malformed",), ("missing_required",)]
    assert "missing_required" in shown
    assert pipeline.query("SELECT amount::text FROM shop.first_orders WHERE amount > 10000") == [("12345678901234.56",)]
    assert pipeline.query("SELECT count(*) FROM shop.first_orders") == [(1_098,)]
