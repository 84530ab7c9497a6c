"""``make mutants``: removes each guard of the protocol in turn, and requires that a test fails for it.

The guards, how to remove them and the tests that must then fail are in ``guards.toml``. Each runs in a copy of the
checkout; the tests of all guards are run unchanged first, because a test that fails anyway proves nothing.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GUARDS = Path(__file__).with_name("guards.toml")
_TESTS_FAILED = 1  # pytest's exit code; any other but 0 means that nothing was proved
_TEST_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Edit:
    """One change of one file; ``text`` occurs exactly once in it."""

    file: str
    text: str
    becomes: str

    def apply(self, root: Path) -> None:
        """Change the file below ``root``.

        Raises:
            ValueError: The text is not there exactly once: the list of guards is stale.
        """
        path = root / self.file
        content = path.read_text(encoding="utf-8")
        if content.count(self.text) != 1:
            raise ValueError(f"{self.file} has {content.count(self.text)} times, instead of once: {self.text!r}")
        path.write_text(content.replace(self.text, self.becomes), encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Guard:
    """A guard: how to remove it, and the pytest arguments of the tests that must then fail."""

    name: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]


def read_guards(path: Path = GUARDS) -> list[Guard]:
    """Read the list."""
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    return [
        Guard(entry["name"], tuple(Edit(**edit) for edit in entry["edits"]), tuple(entry["tests"]))
        for entry in document["guard"]
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all guards, or those whose name contains a text; return 0 when a test failed for each."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--only", default="", help="run guards whose name contains this text")
    options = parser.parse_args(arguments)
    guards = [guard for guard in read_guards() if options.only in guard.name]
    with _test_services() as environment:
        if not _unchanged_tests_pass(guards, environment):
            return 1
        survivors = [guard.name for guard in guards if not _is_caught(guard, environment)]
    print(f"{len(guards) - len(survivors)} of {len(guards)} guards are missed by a test when they are removed")
    for name in survivors:
        print(f"NOT MISSED: {name}")
    return 1 if survivors else 0


@contextmanager
def _test_services() -> Iterator[dict[str, str]]:
    """One PostgreSQL and one Kafka for all runs, because starting a pair for each would take most of the time."""
    if "KAFKA_INGEST_TEST_SERVICES" in os.environ:
        yield dict(os.environ)
        return
    sys.path[:0] = [str(ROOT), str(ROOT / "plugins")]
    from tests.services import services_of_one_test

    services = services_of_one_test()
    try:
        services.postgres.start()
        services.kafka.start()
        env_file = services.folder / "services.env"
        env_file.write_text(f"KAFKA_INGEST_TEST_STATE={services.folder}\n", encoding="utf-8")
        yield {**os.environ, "KAFKA_INGEST_TEST_SERVICES": str(env_file)}
    finally:
        services.remove()


def _unchanged_tests_pass(guards: Sequence[Guard], environment: dict[str, str]) -> bool:
    commands = dict.fromkeys(test for guard in guards for test in guard.tests)
    for command in commands:
        answer = _pytest(ROOT, command, environment)
        if answer.returncode != 0:
            print(f"pytest {command} does not pass on the unchanged code:\n{answer.stdout[-3000:]}")
            return False
    print(f"{len(commands)} selections of tests pass on the unchanged code", flush=True)
    return True


def _is_caught(guard: Guard, environment: dict[str, str]) -> bool:
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        root = Path(folder)
        _copy_checkout(root)
        for edit in guard.edits:
            edit.apply(root)
        caught = _first_failure(guard, root, environment)
    seconds = time.monotonic() - started
    print(f"{'ok  ' if caught else 'NO  '}{guard.name}: {caught or 'every test passes'} ({seconds:.0f} s)", flush=True)
    return caught is not None


def _first_failure(guard: Guard, root: Path, environment: dict[str, str]) -> str | None:
    for command in guard.tests:
        answer = _pytest(root, command, environment)
        if answer.returncode == _TESTS_FAILED and (failed := re.search(r"^FAILED (\S+)", answer.stdout, re.MULTILINE)):
            return failed[1]
        if answer.returncode not in (0, _TESTS_FAILED):
            print(answer.stdout[-2000:], answer.stderr[-2000:])
    return None


def _pytest(root: Path, command: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *shlex.split(command)]
    words.append(f"--timeout={_TEST_SECONDS}")
    return subprocess.run(words, cwd=root, env=environment, capture_output=True, text=True, check=False)


def _copy_checkout(root: Path) -> None:
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        if (source := ROOT / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, root / name)
    (root / ".cache").symlink_to(ROOT / ".cache")


if __name__ == "__main__":
    sys.exit(main())
