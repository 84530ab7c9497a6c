"""Takes PySpark from where pip installed it, not from the zip in the same folder, which Python compiles at every start.

Spark puts ``$SPARK_HOME/python/lib/*.zip`` in front of everything (``PythonUtils.sparkPythonPath``, 4.2). Where
``SPARK_HOME`` is the installed package, both hold the same code; importing the zip's took half a second more, in the
driver and again in the workers' daemon.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def prefer_installed_pyspark() -> None:
    """Moves the zips of ``SPARK_HOME`` behind the installed packages, if PySpark is one of them and lies there."""
    home = Path(os.environ.get("SPARK_HOME", ""))
    if str(home.parent) not in sys.path or not (home / "__init__.py").is_file():
        return
    zips = [entry for entry in sys.path if Path(entry).parent == home / "python" / "lib"]
    sys.path[:] = [*(entry for entry in sys.path if entry not in zips), *zips]
