"""Runs Spin: makes the verifier of ``protocol.pml``, searches, and reads what it says."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MODEL = Path(__file__).parent
_PROTOCOL = MODEL / "protocol.pml"
_SCRATCH = MODEL.parent / ".cache" / "model"
#: Megabytes for one search; two run side by side, and all is to stay below 8 GB.
_MEMORY_LIMIT_MB = 3_500
#: Far above the depth of the deepest search, which is below 400.
_DEPTH_LIMIT = 10_000
_STORY = re.compile(r"^(run|Kafka|PostgreSQL|operator)\b")
_PLACE = re.compile(r"^spin: (\S+\.pml):(\d+), Error: assertion violated", re.MULTILINE)
_WORDS = re.compile(r"/\* (promise|rule|progress): (.+) \*/")

_running: set[subprocess.Popen[str]] = set()


class SpinFailed(Exception):
    """Spin or the compiler did not do what it should; the text says what."""


@dataclass(frozen=True, slots=True)
class Search:
    """What one search found.

    Attributes:
        states: States stored.
        depth: Depth of the search, or of the counterexample.
        memory_mb: Memory used.
        seconds: Time that the search took.
        broken: The assertion that does not hold; empty when all hold in every state.
        story: The counterexample, a line a step.
    """

    states: int
    depth: int
    memory_mb: float
    seconds: float
    broken: str
    story: tuple[str, ...]


def search(defines: Sequence[str], *, shortest: bool) -> Search:
    """Search every state of the model, or up to the first counterexample.

    Args:
        defines: Macros of the model, such as ``NO_COMPARE_AND_SET`` or ``MAX_FAULTS=1``.
        shortest: Breadth first: the counterexample is the shortest, and the search takes more memory.

    Raises:
        SpinFailed: The search did not come to its end.
    """
    flags = [f"-D{define}" for define in defines]
    _SCRATCH.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_SCRATCH) as folder:
        _run(["spin", *flags, "-a", str(_PROTOCOL)], folder)
        mode = ["-DBFS"] if shortest else []
        # -w: the code that Spin generates is not free of warnings. COLLAPSE: a quarter of the memory for the states.
        options = ["-O2", "-w", "-DSAFETY", "-DCOLLAPSE", "-DVECTORSZ=512", f"-DMEMLIM={_MEMORY_LIMIT_MB}", *mode]
        _run(["cc", *options, "-o", "pan", "pan.c"], folder)
        output = _run(["./pan", f"-m{_DEPTH_LIMIT}", "-w24"], folder)
        if ("Search not completed" in output and "errors: 0" in output) or "max search depth too small" in output:
            raise SpinFailed(f"the search did not reach all states:\n{output}")
        broken, story = _counterexample(flags, folder) if "errors: 0" not in output else ("", ())
    return Search(
        states=int(_number(r"(\d+) states, stored", output)),
        depth=int(_number(r"at depth (\d+)" if broken else r"depth reached (\d+)", output)),
        memory_mb=_number(r"([\d.]+)\s+total actual memory usage", output),
        seconds=_number(r"elapsed time ([\d.]+) seconds", output),
        broken=broken,
        story=story,
    )


def _counterexample(flags: list[str], folder: str) -> tuple[str, tuple[str, ...]]:
    replay = _run(["spin", "-T", "-t", "-k", "protocol.pml.trail", *flags, str(_PROTOCOL)], folder)
    story = tuple(_plain(line) for line in replay.splitlines() if _STORY.match(line))
    place = _PLACE.search(replay)
    return (_assertion(Path(place[1]), int(place[2])) if place else "progress: nothing waits for ever"), story


def _plain(line: str) -> str:
    """Says "none" where the model has batch number 0."""
    return line.replace(", superseding batch 0", "").replace("outstanding batch 0", "no outstanding batch")


def _assertion(file: Path, line: int) -> str:
    """Return the words that stand in the comment above an assertion."""
    for text in reversed(file.read_text(encoding="utf-8").splitlines()[: line - 1]):
        if found := _WORDS.search(text):
            return f"{found[1]}: {found[2]}"
    raise SpinFailed(f"no words above the assertion in {file.name}, line {line}")


def _number(pattern: str, output: str) -> float:
    found = re.search(pattern, output)
    if found is None:
        raise SpinFailed(f"the search did not say {pattern}:\n{output}")
    return float(found[1])


def stop_searches() -> None:
    """End what is running now: a search that nobody waits for would go on for minutes."""
    for process in list(_running):
        process.kill()


def _run(command: list[str], folder: str) -> str:
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        _running.add(process)
        output, _ = process.communicate()
        _running.discard(process)
    if process.returncode != 0:
        raise SpinFailed(f"{' '.join(command)} ended with {process.returncode}:\n{output}")
    return output
