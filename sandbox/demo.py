"""``python -m sandbox.demo``: the main job on real parts, with a Spark driver killed on the way, and its proof.

Every demo has pipelines, topics and tables of its own, made from ``dags/pipelines/orders.yaml`` and
``docs/examples``' ``payments.yaml`` and ``inventory.yaml``, so that it can run again in a sandbox that is in use.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from sandbox.demo_driver import kill_driver, wait_for_staged_rows
from sandbox.demo_pipeline import DemoPipeline, new_demo_pipelines
from sandbox.demo_report import DemoLoad, DemoResult, report_lines
from sandbox.errors import SandboxError
from sandbox.inventory import Inventory, compare_inventory
from sandbox.orders import orders, send_records
from sandbox.paths import default_paths
from sandbox.payments import compare_payments, payment_records
from sandbox.system import WAREHOUSE, Sandbox, create_topics
from sandbox.verification import compare_orders

PARTITIONS, PAYMENT_PARTITIONS, ITEM_PARTITIONS = 4, 2, 2
FIRST_ORDERS, MALFORMED, SECOND_ORDERS = 300_000, 25, 20_000
PAYMENTS = 20_000
ITEMS, ITEM_CHANGES = 20_000, 80_000
_LOAD, _TRIES_AFTER_KILL = "load_batch", 2


@dataclass(frozen=True, slots=True)
class Demo:
    """One demo in a running sandbox."""

    sandbox: Sandbox
    orders: DemoPipeline
    payments: DemoPipeline
    items: DemoPipeline

    def run(self) -> DemoResult:
        """Send, load, kill, load again, clear, load records with two schemas and changes of a table, compare.

        Raises:
            SandboxError: A run did not end as it should.
        """
        topic, bootstrap = self.orders.topic, self.sandbox.kafka.bootstrap
        others = {self.payments.topic: PAYMENT_PARTITIONS, self.items.topic: ITEM_PARTITIONS}
        create_topics(bootstrap, {topic: PARTITIONS, **others})
        _say(f"sending {FIRST_ORDERS:,} orders to topic {topic} ({PARTITIONS} partitions), {MALFORMED} malformed")
        send_records(bootstrap, topic, orders(FIRST_ORDERS, malformed=MALFORMED))
        client = self.sandbox.airflow().client()
        for pipeline in (self.orders, self.payments, self.items):
            client.wait_for_dag(pipeline.dag_id)
            client.unpause(pipeline.dag_id)
        first_run, first = self._killed_run(self.orders, "run 1")
        _say(f"sending {SECOND_ORDERS:,} more")
        send_records(bootstrap, topic, orders(SECOND_ORDERS, first=FIRST_ORDERS))
        second_run = client.trigger(self.orders.dag_id)
        _say(f"run 2: {second_run}")
        second = self._finished(self.orders, second_run, "run 2", tries=1)
        _say("clearing run 1, which had succeeded: all its tasks run again")
        client.clear(self.orders.dag_id, first_run)
        of_payments = self._load_payments()
        self._finished(self.orders, first_run, "run 1 again", tries=None)
        inventory = Inventory(seed=1)
        events, of_items = self._load_inventory(inventory)
        return self._compared((first, second, of_payments, of_items), inventory, events)

    def _killed_run(self, pipeline: DemoPipeline, name: str) -> tuple[str, DemoLoad]:
        """Trigger a run and kill its Spark driver while it copies rows; Airflow tries again."""
        run_id = self.sandbox.airflow().client().trigger(pipeline.dag_id)
        _say(f"{name}: {run_id}")
        staged = wait_for_staged_rows(self.sandbox.postgres.params(WAREHOUSE), pipeline.name)
        killed = kill_driver(staged.batch_id)
        _say(f"{name}: rows were being copied ({staged.staged_bytes:,} bytes staged): sent SIGKILL to {killed}")
        return run_id, self._finished(pipeline, run_id, name, tries=_TRIES_AFTER_KILL)

    def _load_inventory(self, inventory: Inventory) -> tuple[int, DemoLoad]:
        """Load the changes of a table in two runs, of which the first is killed; return how many events there are."""
        topic, bootstrap = self.items.topic, self.sandbox.kafka.bootstrap
        _say(
            f"sending change events of a table to topic {topic}: {ITEMS:,} rows of a snapshot, {ITEM_CHANGES:,} changes"
        )
        sent = send_records(bootstrap, topic, inventory.events(ITEMS, ITEM_CHANGES))
        _, load = self._killed_run(self.items, "inventory")
        _say("changing the table once more, in values that were loaded before")
        sent += send_records(bootstrap, topic, inventory.events(0, ITEM_CHANGES // 20))
        self._finished(self.items, self.sandbox.airflow().client().trigger(self.items.dag_id), "more changes", tries=1)
        return sent, load

    def _load_payments(self) -> DemoLoad:
        topic = self.payments.topic
        _say(f"meanwhile sending {PAYMENTS:,} payments as Avro to topic {topic}; their schema changes halfway")
        records = payment_records(str(self.sandbox.registry_url), topic, PAYMENTS)
        send_records(self.sandbox.kafka.bootstrap, topic, records)
        run_id = self.sandbox.airflow().client().trigger(self.payments.dag_id)
        return self._finished(self.payments, run_id, "payments", tries=1)

    def _compared(self, loads: Sequence[DemoLoad], inventory: Inventory, events: int) -> DemoResult:
        _say("reading the topics with a plain consumer, and comparing record by record")
        bootstrap, postgres = self.sandbox.kafka.bootstrap, self.sandbox.postgres.params(WAREHOUSE)
        registry, topic, target = str(self.sandbox.registry_url), self.payments.topic, self.payments.target
        of_orders = compare_orders(bootstrap, self.orders.topic, postgres, self.orders.target)
        of_payments = compare_payments(bootstrap, registry, topic, postgres, target)
        of_items = compare_inventory(inventory, events, postgres, self.items.target)
        for pipeline in (self.orders, self.payments, self.items):
            self.sandbox.ingest(["audit", pipeline.name, *(["--all"] if pipeline is self.items else [])])
        return DemoResult(self.orders, of_orders, loads, MALFORMED, self.payments, of_payments, self.items, of_items)

    def _finished(self, pipeline: DemoPipeline, run_id: str, name: str, *, tries: int | None) -> DemoLoad:
        """Wait for a run to succeed, with exactly ``tries`` tries of the load (``None``: any number)."""
        client, dag_id = self.sandbox.airflow().client(), pipeline.dag_id
        state = client.wait_for_run(dag_id, run_id)
        task = client.task(dag_id, run_id, _LOAD)
        if state != "success" or tries not in (None, task["try_number"]):
            log = client.task_log(dag_id, run_id, _LOAD, task["try_number"])
            raise SandboxError(
                f"{name} ended {state} after {task['try_number']} tries of {_LOAD}",
                found="\n".join(log.splitlines()[-25:]),
                next_step="make demo KEEP=1, then look at the run in Airflow",
            )
        summary = client.xcom(dag_id, run_id, _LOAD)
        load = DemoLoad(name, summary["counts"]["rows"], float(task["duration"]), int(task["try_number"]))
        _say(f"{name}: success, {load.rows:,} rows, try {load.tries} of {_LOAD} took {load.seconds:.1f} s")
        return load


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and return the exit status: 0 when every record is there exactly once, 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m sandbox.demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the sandbox running afterwards")
    options = parser.parse_args(arguments)
    started = time.monotonic()
    # A running sandbox without a registry gets one, and is left running as well.
    was_running = "stopped" not in Sandbox(default_paths()).states().values()
    sandbox = Sandbox(default_paths(), registry=True)
    try:
        sandbox.start(_say)
        result = Demo(sandbox, *new_demo_pipelines(sandbox.paths)).run()
        print("\n".join(report_lines(result, total_seconds=time.monotonic() - started)), flush=True)
        return 0 if result.is_proved else 1
    except SandboxError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        _leave(sandbox, keep=options.keep or was_running)


def _leave(sandbox: Sandbox, *, keep: bool) -> None:
    if not keep:
        sandbox.stop(_say)
        return
    from sandbox.cli import usage

    print(usage(sandbox))


def _say(text: str) -> None:
    print(f"- {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
