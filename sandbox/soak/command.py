"""``python -m sandbox.soak``: chaos by seed, and at the end a comparison of every record.

A producer keeps writing to a topic: plain records, transactions that commit or abort, malformed records, records
without key or value. Each cycle runs the pipeline once, by the command line or through Airflow, while one or two faults
hit it: drivers, executors, PostgreSQL, Kafka and Airflow's processes are killed, a driver is frozen past its heartbeat,
the same run is started twice. Before the runs and beside them an operator reloads spans, resets positions backwards and
forwards, skips lag and rolls batches back; half of these commands are killed. Runs and commands are then repeated until
they succeed.

With --mode upsert the producer writes changes of a few keys, with tombstones, and the table holds the newest record of
each key. The operator rebuilds the table instead of rolling batches back, and the table is compared with the fold of
the topic.
"""

from __future__ import annotations

import argparse
import itertools
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from sandbox.errors import SandboxError
from sandbox.paths import CHECKOUT, private_folder
from sandbox.soak.choices import SoakOptions
from sandbox.soak.journal import Journal
from sandbox.soak.pipeline import SoakMode
from sandbox.soak.report import SoakResult, replay_command, report_lines
from sandbox.soak.soak import Soak
from sandbox.soak.world import SoakWorld

_EPILOG = """\
The seed decides kinds of run, faults, what the operator does, all moments (as a share of the run's progress, as the
ledger shows it) and every record that is sent; choices.jsonl in the state folder lists them. How fast the processes of
the machine are is not replayed, so a replay makes the same choices and may meet another state. events.jsonl says what
really happened.

exit status: 0 every record is there exactly once, but for those that were given up, or every key is as its newest
record says, and every invariant held; 1 not so,
or a run failed in a way that no fault excuses (state and logs then stay, and all is stopped); 2 wrong arguments.
"""


def run_soak(options: SoakOptions, state: Path) -> SoakResult:
    """Run one soak in a state folder. Everything is stopped on return; state and log stay.

    Raises:
        SoakFailure: The system did what it must not do.
        SandboxError: A part of the sandbox did not start.
    """
    journal = Journal(state)
    world = SoakWorld(state, options)
    try:
        world.start(journal.say)
        return Soak(options, world, journal).run()
    finally:
        world.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit status."""
    options, state = _parsed(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(f"soak: {replay_command(options)}\nstate and logs: {state}", flush=True)
    try:
        result = run_soak(options, state)
    except SandboxError as fault:
        print(f"error: {fault}", file=sys.stderr)
        return _failed(options, state)
    except KeyboardInterrupt:
        return 130
    print("\n".join(report_lines(result)), flush=True)
    if not result.is_exact:
        return _failed(options, state)
    SoakWorld(state, options).destroy()
    return 0


def _failed(options: SoakOptions, state: Path) -> int:
    print(f"seed {options.seed}; state and logs stay in {state}\nagain: {replay_command(options)}", file=sys.stderr)
    return 1


def _parsed(arguments: Sequence[str] | None) -> tuple[SoakOptions, Path]:
    parser = argparse.ArgumentParser(
        prog="python -m sandbox.soak",
        description=__doc__,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--cycles", type=int, default=20, help="runs of the pipeline (default: 20)")
    parser.add_argument("--seed", type=int, default=1, help="where all choices come from (default: 1)")
    parser.add_argument("--airflow", type=int, help="how many runs go through Airflow (default: 15 in 100)")
    parser.add_argument("--spark", type=int, help="how many use Spark by the command line (default: 8 in 100)")
    parser.add_argument("--rate", type=int, default=400, help="records per second, at most (default: 400)")
    parser.add_argument(
        "--mode", type=SoakMode, default=SoakMode.APPEND, choices=list(SoakMode), help="of the target (default: append)"
    )
    parser.add_argument("--state", type=Path, help="a new folder (default: .sandbox/soak-<seed>)")
    given = parser.parse_args(arguments)
    airflow = given.cycles * 15 // 100 if given.airflow is None else given.airflow
    spark = given.cycles * 8 // 100 if given.spark is None else given.spark
    if given.cycles < 1 or given.rate < 1 or min(airflow, spark) < 0 or airflow + spark > given.cycles:
        parser.error("--cycles and --rate must be above 0, --airflow and --spark together at most --cycles")
    if given.state is not None and given.state.exists():
        parser.error(f"{given.state} exists: it may hold what an earlier soak found; name a new folder or delete it")
    options = SoakOptions(given.cycles, given.seed, airflow=airflow, spark=spark, rate=given.rate, mode=given.mode)
    return options, given.state.resolve() if given.state else _new_folder(given.seed)


def _new_folder(seed: int) -> Path:
    """Return a folder that does not exist yet: the folder of an earlier soak is evidence."""
    names = itertools.chain([f"soak-{seed}"], (f"soak-{seed}-{number}" for number in itertools.count(2)))
    folders = (CHECKOUT / ".sandbox" / name for name in names)
    return private_folder(next(folder for folder in folders if not folder.exists()))
