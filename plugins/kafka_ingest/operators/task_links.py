"""Links of tasks to where people look next: the batch on the product's own page, the application on Spark's.

Airflow stores a link as an XCom: its API server, which runs nothing of ours, knows name and key alone
(``XComOperatorLink``), so that no plugin need register them. The task runner stores each link when a task has ended
(``finalize`` in ``airflow/sdk/execution_time/task_runner.py``, 3.1.0 and 3.3.2). Here it is stored as soon as it is
known, too: while a load runs, and when its worker dies.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from airflow.configuration import conf
from airflow.sdk import BaseOperatorLink
from airflow.sdk.exceptions import AirflowRuntimeError

from kafka_ingest.errors import ConfigError
from kafka_ingest.pipeline_files.files import PAGE_MOUNT

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

    from kafka_ingest.operators.context import TaskLog
    from kafka_ingest.protocol.batch import Batch

# ----------
# Addresses.

#: How a Spark history server spells the address of an application; without it, a link ends with its application.
HISTORY = "KAFKA_INGEST_SPARK_HISTORY"
_APPLICATION = "{application_id}"


def page_path(*parts: str) -> str:
    """Return the path of one of the product's own pages, for a browser that has Airflow open.

    It begins with the path of ``[api] base_url``, for an Airflow behind ``https://host/airflow``. The host is left out:
    people come by several names, and Airflow's own pages open links of their origin only in the same window (3.3.2).

    Args:
        parts: What follows the mount, part by part, not yet percent-encoded; nothing for the overview.
    """
    prefix = urlsplit(conf.get("api", "base_url", fallback="")).path.rstrip("/")
    return "/".join([prefix + PAGE_MOUNT, *(quote(part, safe="") for part in parts)])


def spark_history(environment: Mapping[str, str] = os.environ) -> str:
    """Return the pattern of :data:`HISTORY`; empty where there is no history server.

    Raises:
        ConfigError: It is no http(s) URL with a place for the application's id.
    """
    pattern = environment.get(HISTORY, "").strip()
    if not pattern or (pattern.startswith(("http://", "https://")) and _APPLICATION in pattern):
        return pattern
    raise ConfigError(
        f"the environment variable {HISTORY} names no application's page",
        expected=f"an http or https URL with {_APPLICATION}, such as https://spark.example/history/{_APPLICATION}/",
        found=pattern,
        next_command=f"correct {HISTORY} where Airflow parses DAGs and runs tasks, or unset it",
    )


# ----------
# The links.


class BatchLink(BaseOperatorLink):
    """To the task's batch on the product's own page."""

    name = "Batch"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the address as the executed copy of the task knows it; empty where it has none."""
        return _found(operator, self)


class SparkLink(BaseOperatorLink):
    """To the load's application: on Spark's own page while it runs, then on a history server."""

    name = "Spark UI"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the address as the executed copy of the task knows it; empty where it has none."""
        return _found(operator, self)


def _found(operator: BaseOperator, link: BaseOperatorLink) -> str:
    # In Airflow 3.1 an error here would keep the callbacks of a success from being called.
    links: TaskLinks | None = getattr(operator, "links", None)
    return links.urls.get(link.xcom_key, "") if links else ""


class TaskLinks:
    """What one try of a task has found so far, and shows.

    Args:
        push: Stores an XCom, as ``xcom_push`` of the task instance.
        log: Told where a link could not be stored; that fails no task.
        history: As :func:`spark_history` returns it.

    Attributes:
        urls: Addresses by the XCom key of their link.
        batch: The task's batch as it was seen last; ``None`` until it is known.
    """

    def __init__(self, push: Callable[[str, Any], object], log: TaskLog, *, history: str = "") -> None:
        self.urls: dict[str, str] = {}
        self.batch: Batch | None = None
        self._push = push
        self._log = log
        self._history = history

    def show_batch(self, batch: Batch) -> None:
        """Link to a batch; called again, remember what became of it."""
        self.batch = batch
        self._show(BatchLink(), page_path("batches", batch.batch_id))

    def show_application(self, application_id: str, ui_url: str) -> None:
        """Link to an application that has started; once Spark's own page is gone, the history server is left.

        Args:
            application_id: Spark's id of it.
            ui_url: Its own page; empty where ``spark.ui.enabled`` is false.
        """
        history = self._history.replace(_APPLICATION, quote(application_id, safe=""))
        self._show(SparkLink(), ui_url or history)
        self.urls[SparkLink().xcom_key] = history

    def _show(self, link: BaseOperatorLink, url: str) -> None:
        if not url or self.urls.get(link.xcom_key) == url:
            return
        self.urls[link.xcom_key] = url
        try:
            self._push(link.xcom_key, url)
        except AirflowRuntimeError as fault:
            self._log.warning("The link %s could not be stored: %s", link.name, fault)
