"""The job's processes: how they start, what they log, and how they end with their parent."""

from __future__ import annotations

import ctypes
import logging
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from kafka_ingest.secrets import scrubbed

# ----------
# A process with secrets leaves none behind, and the driver ends with the process that started it.

_PR_SET_PDEATHSIG = 1


def leave_no_core_file() -> None:
    """Have no core file written when this process crashes: its memory holds passwords."""
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    # The upper limit stays: the process may be a task of Airflow's.
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent ends; end it at once when the parent is gone already.

    SIGKILL of spark-submit, which Airflow sends at an execution time-out, leaves the Python driver running as an orphan
    that goes on writing. Does nothing where the kernel cannot do it (prctl(2) is Linux's); fencing protects there, too.
    """
    if sys.platform != "linux":
        return
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent may have ended before the call, which then waits for the death of the adopting process. A parent that
    # ended even before getppid() is noticed when the driver finds no JVM to talk to.
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


# ----------
# PySpark from where pip installed it, not from the zip in the same folder, which Python compiles at every start.
#
# Spark puts ``$SPARK_HOME/python/lib/*.zip`` before everything else (``PythonUtils.sparkPythonPath``, 4.2). Where
# ``SPARK_HOME`` is the installed package, both hold the same code; importing that of the zip took half a second more,
# in the driver and again in the workers' daemon.


def prefer_installed_pyspark() -> None:
    """Move the zips of ``SPARK_HOME`` behind the installed packages, if PySpark is installed there."""
    home = Path(os.environ.get("SPARK_HOME", ""))
    if str(home.parent) not in sys.path or not (home / "__init__.py").is_file():
        return
    zips = [entry for entry in sys.path if Path(entry).parent == home / "python" / "lib"]
    sys.path[:] = [*(entry for entry in sys.path if entry not in zips), *zips]


# ----------
# Arrow without pandas.


def start_arrow_without_pandas() -> None:
    """Load pyarrow in a process that passes no pandas objects to it.

    pyarrow looks for pandas when it makes its first value, and spends 0.4 s on loading it wherever it is installed
    (``_PandasAPIShim``, pyarrow 26). It looks once: later it treats a pandas object as any other sequence.
    """
    if "pandas" in sys.modules:
        return
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        import pyarrow as pa

        pa.scalar(0)
    finally:
        sys.meta_path.remove(finder)


class _NoPandas(MetaPathFinder):
    def find_spec(self, fullname: str, *_: Any) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("not loaded for pyarrow", name=fullname)


# ----------
# What they log: never a secret, never what quotes a row.

_log = logging.getLogger("kafka_ingest.job")


class ScrubbedFormatter(logging.Formatter):
    """Formats log records, traces included, and replaces secrets by ``***``: texts of libraries are not ours to trust.

    Args:
        pattern: Format of a line.
        secrets: The values to hide.
    """

    def __init__(self, pattern: str, secrets: Sequence[str]) -> None:
        super().__init__(pattern, "%H:%M:%S")
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        """Format and scrub."""
        return scrubbed(super().format(record), self._secrets)

    def formatException(  # noqa: N802 (the name of logging.Formatter's method)
        self,
        ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None],
    ) -> str:
        """Format a trace; of database errors without anything that could quote a row."""
        # Only here: a process is tied to its parent before it loads libraries.
        from kafka_ingest.postgres.faults import trace_without_payload

        return trace_without_payload(ei[1]) if ei[1] else ""


def set_up_logging(secrets: Sequence[str]) -> None:
    """Send log lines and the traces of unexpected errors of all threads to standard output, without secrets."""
    logging.basicConfig(level=logging.INFO, handlers=[job_handler(sys.stdout, secrets)], force=True)
    # py4j logs each command that it sends on level DEBUG, and its own shutdown on INFO.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    sys.excepthook = _log_unexpected
    threading.excepthook = lambda args: _log_unexpected(args.exc_type, args.exc_value, args.exc_traceback)


def job_handler(stream: TextIO, secrets: Sequence[str]) -> logging.Handler:
    """Return what writes the job's log lines, in UTC, without secrets."""
    handler = logging.StreamHandler(stream)
    formatter = ScrubbedFormatter("%(asctime)s %(levelname)s %(message)s", secrets)
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    return handler


def _log_unexpected(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    if kind is KeyboardInterrupt:
        _log.info("interrupted")
    elif error is not None:
        _log.critical("unexpected error", exc_info=(kind, error, trace))
