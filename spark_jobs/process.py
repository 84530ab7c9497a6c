"""The job's processes: how they start, and that none outlives its parent."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

# ----------
# Ties the driver's life to that of the process that started it.

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Asks the kernel to kill this process when its parent ends; ends it at once when the parent is gone already.

    Why: SIGKILL of spark-submit, as an execution time-out of Airflow sends it, leaves the Python driver running as an
    orphan that goes on writing. Does nothing where the kernel cannot (prctl(2) is Linux's); fencing holds there too.
    """
    if sys.platform != "linux":
        return
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent may have ended before the call, which then waits for the death of whoever adopted this process.
    # One that ended even before getppid() is noticed when the driver finds no JVM to talk to.
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


# ----------
# Takes PySpark from where pip installed it, not from the zip in the same folder, which Python compiles at every start.
#
# Spark puts ``$SPARK_HOME/python/lib/*.zip`` in front of everything (``PythonUtils.sparkPythonPath``, 4.2). Where
# ``SPARK_HOME`` is the installed package, both hold the same code; importing the zip's took half a second more, in the
# driver and again in the workers' daemon.


def prefer_installed_pyspark() -> None:
    """Move the zips of ``SPARK_HOME`` behind the installed packages, if PySpark is one of them and lies there."""
    home = Path(os.environ.get("SPARK_HOME", ""))
    if str(home.parent) not in sys.path or not (home / "__init__.py").is_file():
        return
    zips = [entry for entry in sys.path if Path(entry).parent == home / "python" / "lib"]
    sys.path[:] = [*(entry for entry in sys.path if entry not in zips), *zips]


# ----------
# Keeps pyarrow from loading pandas.


def start_arrow_without_pandas() -> None:
    """Load pyarrow in a process that hands it no pandas objects.

    pyarrow looks for pandas when it makes its first value, and takes the 0.4 s to load it wherever it is installed
    (``_PandasAPIShim``, pyarrow 26). It looks once: afterwards it takes a pandas object for any other sequence.
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
