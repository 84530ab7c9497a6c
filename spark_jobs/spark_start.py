"""The start of Spark in the driver: the cluster's secret, patience with a queue, and what a failed start means."""

from __future__ import annotations

import logging
import os
import threading
from typing import Any
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext

from kafka_ingest.errors import ConfigError, IngestError, RetryLater
from kafka_ingest.spark.submission import take_spark_secret

_log = logging.getLogger(__name__)

_MASTER, _TAGS = "spark.master", "spark.yarn.tags"
#: Spark's and YARN's words for a start that cannot succeed before somebody changes a setting (Spark 4.2, Hadoop 3.5).
_NEVER_STARTS = (
    "is above the max threshold",
    "unknown queue",
    "does not have permission to submit",
    "cannot submit applications to queue",
    "AccessControlException",
    "Must specify the",
    "Could not parse Master URL",
)
_MOST_EXECUTORS = "spark.dynamicAllocation.maxExecutors"


class SparkStart:
    """One start of Spark, which another thread may end.

    Spark waits for ever for a place in YARN's queue (``Client.monitorApplication``, 4.2), and killing the driver takes
    nothing out of it. So the application gets a tag of its own, by which it is found there and ended.

    Args:
        timeout_seconds: How long it may wait in the queue.
    """

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._tag = f"kafka-ingest-{uuid4()}"
        self._is_queued = threading.Event()
        self._done = threading.Event()
        self._gave_up = False

    def run(self) -> SparkContext:
        """Start Spark, with the secret that the cluster asks for.

        A driver takes the secret only from the property (``SecurityManager.initializeAuth``, Spark 4.2; files are for
        Kubernetes, ``_SPARK_AUTH_SECRET`` for executors), which must not be on a command line. Spark passes it on to
        nobody: a worker starts executors with its own.

        Raises:
            ConfigError: The secret was handed over in a file that is gone, or Spark refuses settings.
            RetryLater: It did not start, or got no place in the queue in time.
        """
        # A SparkConf that is made before the JVM is there has none of spark-submit's properties.
        SparkContext._ensure_initialized()
        conf = SparkConf()
        if secret := take_spark_secret(os.environ):
            conf.set("spark.authenticate.secret", secret)
        if conf.get(_MASTER, "") == "yarn":
            conf.set(_TAGS, ",".join(filter(None, [conf.get(_TAGS, ""), self._tag])))
            self._is_queued.set()
            threading.Thread(target=self._watch, name="start watch", daemon=True).start()
        try:
            return SparkContext.getOrCreate(conf)
        except Py4JError as error:
            raise self._fault(error, conf) from error
        finally:
            self._done.set()

    def end(self) -> None:
        """End it where it waits in YARN's queue; safe from any thread, and before and after it."""
        if not self._is_queued.is_set() or self._done.is_set():
            return
        try:
            _end_application(self._tag)
        except (Py4JError, OSError) as error:
            _log.warning("could not take the application with the tag %s out of YARN's queue: %s", self._tag, error)

    def _watch(self) -> None:
        if not self._done.wait(self._timeout_seconds):
            self._gave_up = True
            self.end()

    def _fault(self, error: Py4JError, conf: SparkConf) -> IngestError:
        words, master = _words_of(error), conf.get(_MASTER, "")
        if self._gave_up:
            return RetryLater(
                f"YARN gave the application no place within {self._timeout_seconds:.0f} seconds",
                expected="a container for its master within hold.start_timeout_seconds",
                found=words,
                next_command="see on the resource manager's page who fills the queue; then run it again",
            )
        if any(sign in words for sign in _NEVER_STARTS):
            return ConfigError(
                f"Spark refuses to start the application on {master}",
                expected="settings that the cluster accepts: docs/spark-clusters.md",
                found=words,
                next_command="correct spark in the pipeline file, or the extra of the Spark connection",
            )
        return RetryLater(
            f"Spark did not start on {master}",
            expected="a cluster that accepts the application",
            found=words,
            next_command=f"see ERROR in the log above, and {where_to_look(conf)}; then run it again",
        )


def where_to_look(conf: SparkConf) -> str:
    """Return where a cluster tells why an application gets no executors from it."""
    if str(conf.get(_MASTER, "")).startswith("k8s://"):
        return f"kubectl get events --namespace {conf.get('spark.kubernetes.namespace', 'default')}"
    return "the cluster's page"


def _end_application(tag: str) -> None:
    jvm: Any = SparkContext._jvm  # the thread that starts Spark waits in a call of its own
    yarn = jvm.org.apache.hadoop.yarn
    client = yarn.client.api.YarnClient.createYarnClient()
    client.init(yarn.conf.YarnConfiguration())
    client.start()
    try:
        request = yarn.api.protocolrecords.GetApplicationsRequest.newInstance()
        request.setApplicationTags(jvm.java.util.HashSet([tag]))
        for application in client.getApplications(request):
            client.killApplication(application.getApplicationId())
    finally:
        client.stop()


def _words_of(error: Py4JError) -> str:
    cause = getattr(error, "java_exception", None)
    return str(cause.toString() if cause is not None else error).strip()


def most_tasks(spark: SparkContext) -> int:
    """Return how many tasks can run at once: on the executors that are there, or that dynamic allocation may bring."""
    conf, present = spark.getConf(), int(spark.defaultParallelism)
    if str(conf.get("spark.dynamicAllocation.enabled", "false")).lower() != "true":
        return present
    executors = int(conf.get(_MOST_EXECUTORS, "0") or 0)
    if not 0 < executors < 2**31 - 1:
        _log.warning("the batch is cut into %d tasks: set %s, or spark.tasks, for more", present, _MOST_EXECUTORS)
        return present
    cores, a_task = (int(conf.get(key, "1") or 1) for key in ("spark.executor.cores", "spark.task.cpus"))
    return max(present, executors * (cores // a_task))
