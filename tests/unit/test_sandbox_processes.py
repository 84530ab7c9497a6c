"""A background process is found again by its pid file, and stopped with all that it started."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox.errors import SandboxError
from sandbox.process_table import mark_of
from sandbox.processes import ManagedProcess

# Starts a grandchild in a group of its own that ignores TERM, says its number, and waits for ever.
STUBBORN = """
import os, signal, sys, time
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    open(sys.argv[1] + ".ready", "w").close()
while not os.path.exists(sys.argv[1] + ".ready"):
    time.sleep(0.01)
if child:
    with open(sys.argv[1] + ".draft", "w") as file:
        file.write(str(child))
    os.replace(sys.argv[1] + ".draft", sys.argv[1])
while True:
    signal.pause()
"""


@pytest.fixture
def process(tmp_path: Path) -> Iterator[ManagedProcess]:
    made = ManagedProcess("sleeper", tmp_path)
    yield made
    made.stop(grace_seconds=0)


def test_a_started_process_is_found_by_another_object_with_the_same_folder(process: ManagedProcess) -> None:
    process.start(["sleep", "600"])
    other = ManagedProcess("sleeper", process.pid_file.parent)
    assert other.pid() == process.pid()
    other.stop()
    assert not process.is_running()


def test_starting_twice_leaves_one_process(process: ManagedProcess) -> None:
    process.start(["sleep", "600"])
    first = process.pid()
    process.start(["sleep", "600"])
    assert process.pid() == first


def test_a_number_given_to_another_program_is_not_taken_for_ours(process: ManagedProcess) -> None:
    stranger = mark_of(os.getpid())
    assert stranger is not None
    text = json.dumps({"pid": stranger.pid, "started": "an earlier time", "boot": stranger.boot})
    process.pid_file.write_text(text, encoding="utf-8")
    assert not process.is_running()
    process.stop()  # must not stop the process that runs this test
    assert not process.pid_file.exists()


def test_a_pid_file_of_an_earlier_boot_is_not_believed(process: ManagedProcess) -> None:
    own = mark_of(os.getpid())
    assert own is not None
    text = json.dumps({"pid": own.pid, "started": own.started, "boot": "an earlier boot"})
    process.pid_file.write_text(text, encoding="utf-8")
    assert not process.is_running()
    process.stop()


def test_stop_ends_what_the_process_started_in_other_groups(process: ManagedProcess, tmp_path: Path) -> None:
    grandchild = _start_stubborn(process, tmp_path)
    process.stop(grace_seconds=0.2)
    assert mark_of(grandchild) is None


def test_stop_ends_children_of_a_process_that_died_before(process: ManagedProcess, tmp_path: Path) -> None:
    grandchild = _start_stubborn(process, tmp_path)
    leader = process.pid()
    assert leader is not None
    os.kill(leader, 9)
    _wait_for(lambda: not process.is_running())
    assert mark_of(grandchild) is not None
    process.stop(grace_seconds=0.2)
    assert mark_of(grandchild) is None


def test_a_process_that_ends_while_it_starts_is_reported_with_its_output_tail(process: ManagedProcess) -> None:
    process.start([sys.executable, "-c", "print('no such port')"])
    with pytest.raises(SandboxError, match="sleeper ended while it was starting") as caught:
        process.wait_until(lambda: False, timeout_seconds=30)
    assert "no such port" in caught.value.found


def _start_stubborn(process: ManagedProcess, folder: Path) -> int:
    said = folder / "grandchild"
    process.start([sys.executable, "-c", STUBBORN, str(said)])
    _wait_for(said.exists)
    return int(said.read_text(encoding="ascii"))


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
