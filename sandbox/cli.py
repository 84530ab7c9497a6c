"""``python -m sandbox up | down | status | doctor | produce``: what the make targets call."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sandbox.airflow import USER
from sandbox.errors import SandboxError
from sandbox.java import java, java_for_registry, java_version
from sandbox.orders import orders, send_records
from sandbox.paths import SandboxPaths, default_paths
from sandbox.postgres import PostgresServer
from sandbox.system import TOPICS, WAREHOUSE, Sandbox

_LOWEST_PYTHON = (3, 11)
_DISK_BYTES = 3 * 1024**3  # environment 1.7 GB, jars, data of the demo; with room to spare


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status: 0 done, 1 something does not run, 2 wrong arguments."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except SandboxError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; `make down` stops what runs", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m sandbox", description=__doc__)
    commands = parser.add_subparsers(required=True)
    up = commands.add_parser("up", help="start what is not running, then say how to use it")
    up.add_argument("--spark", choices=("local", "cluster"), help="where jobs run (as last time; local at first)")
    up.add_argument("--registry", action="store_true", help="with a schema registry, from now on")
    up.set_defaults(run=_up)
    down = commands.add_parser("down", help="stop everything")
    down.add_argument("--delete", action="store_true", help="delete all data, too")
    down.set_defaults(run=_down)
    commands.add_parser("status", help="show every part").set_defaults(run=_status)
    commands.add_parser("doctor", help="check what the machine has to bring").set_defaults(run=_doctor)
    produce = commands.add_parser("produce", help="send a few orders")
    produce.add_argument("--count", type=int, default=10)
    produce.add_argument("--malformed", type=int, default=0, help="how many of them cannot be read")
    produce.add_argument("--topic", default="orders")
    produce.set_defaults(run=_produce)
    return parser


def _up(options: argparse.Namespace) -> int:
    _require_machine()
    paths = default_paths()
    on_cluster = _choose_spark(paths, options.spark) == "cluster"
    sandbox = Sandbox(paths, spark_cluster=on_cluster, registry=options.registry)
    sandbox.start(_say)
    print(usage(sandbox))
    return 0


def _down(options: argparse.Namespace) -> int:
    sandbox = _sandbox()
    if options.delete:
        sandbox.destroy(_say)
    else:
        sandbox.stop(_say)
    return 0


def _status(_: argparse.Namespace) -> int:
    sandbox = _sandbox()
    states = sandbox.states()
    for part, state in states.items():
        print(f"{part:24} {state}")
    if "stopped" not in states.values():
        print(f"{'page':24} {sandbox.airflow().url}/kafka-ingest/")
    return 1 if "stopped" in states.values() else 0


def _doctor(_: argparse.Namespace) -> int:
    findings = [(name, *_try(check)) for name, check in _CHECKS.items()]
    for name, good, text in findings:
        print(f"{'ok  ' if good else 'NO  '}{name}: {text}")
    return 0 if all(good for _, good, _ in findings) else 1


def _produce(options: argparse.Namespace) -> int:
    sandbox = _sandbox()
    if not sandbox.kafka.is_running():
        raise SandboxError("Kafka is not running", next_step="make up")
    first = _next_number(sandbox.paths, options.count)
    records = orders(options.count, first=first, malformed=options.malformed)
    sent = send_records(sandbox.kafka.bootstrap, options.topic, records)
    print(f"sent {sent} orders to {options.topic}, {options.malformed} of them malformed")
    return 0


def usage(sandbox: Sandbox) -> str:
    """Return how to look at the running sandbox and how to send records to it."""
    airflow, env_file = sandbox.airflow(), sandbox.paths.env_file
    registry = f"\n  Registry    {sandbox.registry_url}" if sandbox.registry_url else ""
    shown, psql = _shown(env_file), _shown(sandbox.postgres.program("psql"))
    return f"""
the sandbox is running
  Airflow     {airflow.url}   user {USER}   password {airflow.password}
  page        {airflow.url}/kafka-ingest/   (Kafka in Airflow's navigation)
  PostgreSQL  . {shown} && {psql}     (database {WAREHOUSE})
  Kafka       {sandbox.kafka.bootstrap}   topics {", ".join(TOPICS)}{registry}
  send        . {shown} && python -m sandbox produce --count 100 --malformed 2
  load        . {shown} && python -m kafka_ingest run orders
              or unpause and trigger kafka_to_postgres__orders in Airflow
  look        . {shown} && python -m kafka_ingest status
  stop        make down
every address is in {shown} (it holds passwords; do not share it)
"""


def _shown(path: Path) -> str:
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def _sandbox() -> Sandbox:
    paths = default_paths()
    return Sandbox(paths, spark_cluster=_choose_spark(paths, None) == "cluster")


def _choose_spark(paths: SandboxPaths, wanted: str | None) -> str:
    choice = _remembered(paths)
    if wanted is not None and choice.get("spark") != wanted:
        choice["spark"] = wanted
        _remember(paths, choice)
    return str(choice.get("spark", "local"))


def _next_number(paths: SandboxPaths, count: int) -> int:
    choice = _remembered(paths)
    first = int(choice.get("next_order", 0))
    _remember(paths, {**choice, "next_order": first + count})
    return first


def _remembered(paths: SandboxPaths) -> dict[str, Any]:
    file = paths.state / "choices.json"
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return found


def _remember(paths: SandboxPaths, choices: dict[str, Any]) -> None:
    paths.state.mkdir(parents=True, exist_ok=True)
    (paths.state / "choices.json").write_text(json.dumps(choices), encoding="utf-8")


def _require_machine() -> None:
    for name, check in _CHECKS.items():
        try:
            check()
        except SandboxError as error:
            raise SandboxError(f"{name}: {error.what}", found=error.found, next_step=error.next_step) from error


def _try(check: Any) -> tuple[bool, str]:
    try:
        return True, str(check())
    except SandboxError as error:
        return False, str(error)


def _python() -> str:
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < _LOWEST_PYTHON:
        raise SandboxError(
            "Python 3.11 or newer is needed", found=found, next_step="install python3.11, then make setup"
        )
    return found


def _java() -> str:
    return _with_version(java())


def _registry_java() -> str:
    return _with_version(java_for_registry())


def _with_version(path: str) -> str:
    return f"{java_version(path)} ({path})"


def _postgres() -> str:
    return str(PostgresServer(default_paths().state / "postgres").program("postgres"))


def _disk() -> str:
    free = shutil.disk_usage(default_paths().cache.parent).free
    if free < _DISK_BYTES:
        raise SandboxError("less than 3 GB of disk space is free", found=f"{free / 1024**3:.1f} GB")
    return f"{free / 1024**3:.0f} GB free"


_CHECKS = {
    "Python": _python,
    "Java": _java,
    "Java of the schema registry": _registry_java,
    "PostgreSQL's programs": _postgres,
    "disk": _disk,
}


def _say(text: str) -> None:
    print(f"- {text}", flush=True)
