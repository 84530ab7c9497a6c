"""The job's processes: how they start, and how they end with their parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

# ----------
# The driver ends with the process that started it.

_PR_SET_PDEATHSIG = 1


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
