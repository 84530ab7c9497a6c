"""A driver whose spark-submit is killed must not go on as an orphan."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
DRIVER = "from spark_jobs.process import die_with_parent; die_with_parent(); print('tied', flush=True); {wait}"
PARENT = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', sys.argv[1]]); time.sleep(60)"


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux's kernel can do it; elsewhere fencing holds alone")
def test_a_driver_is_killed_when_the_process_that_started_it_is_killed() -> None:
    driver = DRIVER.format(wait="import os, time; print(os.getpid(), flush=True); time.sleep(60)")
    environment = {**os.environ, "PYTHONPATH": f"{CHECKOUT / 'plugins'}{os.pathsep}{CHECKOUT}"}
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, driver], env=environment, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "tied\n"
        pid = int(parent.stdout.readline())
        assert is_running(pid)
        parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10
    while is_running(pid):
        assert time.monotonic() < deadline, f"driver {pid} lives on"
        os.sched_yield()
