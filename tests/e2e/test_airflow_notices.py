"""The examples of notifiers in a running Airflow: what a failed run and a pipeline that is behind send."""

from __future__ import annotations

import shutil

import pytest

from sandbox.paths import CHECKOUT
from tests.deadlines import until
from tests.e2e.airflow_world import AirflowWorld
from tests.e2e.lines_pipeline import LinesPipeline, new_topic
from tests.inbox import Inbox

WATCH = "kafka_ingest_watch"
#: A callback runs after the task has ended.
CALLBACK_SECONDS = 60.0
#: An Airflow of its own for what tests/dags/test_notify.py shows of each part in this process.
pytestmark = pytest.mark.slow


def test_a_failed_run_tells_slack_and_the_mailbox_through_the_cluster_policy(
    telling_world: AirflowWorld, inbox: Inbox
) -> None:
    pipeline = LinesPipeline("topicless", "there_is_no_such_topic")
    telling_world.add(pipeline)
    telling_world.require_end(pipeline.dag_id, telling_world.start_run(pipeline), "failed")
    until(lambda: bool(inbox.slack and inbox.mails), "both were told", CALLBACK_SECONDS)
    for text in (inbox.slack[0], inbox.mail_texts()[0]):
        assert "TopicMissing" in text
        assert "/kafka-ingest/pipelines/topicless" in text


def test_a_pipeline_that_is_behind_is_told_once(telling_world: AirflowWorld, inbox: Inbox) -> None:
    pipeline = LinesPipeline("left_behind", new_topic(telling_world))
    telling_world.add(pipeline)
    telling_world.run(pipeline)
    # As if the run had been three days ago.
    telling_world.ask(
        "UPDATE kafka_ingest.batch SET valid_through = valid_through - interval '3 days' WHERE pipeline = %s",
        pipeline.name,
    )
    shutil.copy(CHECKOUT / "docs" / "examples" / "watch_pipelines.py", telling_world.own_dags)
    telling_world.airflow.wait_for_dag(WATCH)
    inbox.slack.clear()
    inbox.mails.clear()
    telling_world.airflow.unpause(WATCH)
    for _ in range(2):
        telling_world.require_end(WATCH, telling_world.airflow.trigger(WATCH, conf={}), "success")
    [told], [mail] = inbox.slack, inbox.mails
    assert told.startswith("*left_behind is behind*\n")
    assert "python -m kafka_ingest lag left_behind" in told
    assert mail["Subject"] == "left_behind is behind"
