"""The demo's own pipelines: example files with other names, topics and tables."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from sandbox.paths import CHECKOUT, SandboxPaths, private_folder

#: The example files, by the name of their pipelines.
_EXAMPLES = {
    "orders": CHECKOUT / "dags" / "pipelines" / "orders.yaml",
    "payments": CHECKOUT / "docs" / "examples" / "payments.yaml",
    "inventory": CHECKOUT / "docs" / "examples" / "inventory.yaml",
}
_SCHEMA = "shop"
#: Lines of an example file that the demo replaces, and their replacements.
_CHANGES = (
    (r"^pipeline: .*$", "pipeline: {name}"),
    (r"^schedule: .*$", "schedule: null"),
    (r"^  topics: \[.*$", "  topics: [{name}]"),
    (rf"^  table: {_SCHEMA}\..*$", f"  table: {_SCHEMA}.{{name}}"),
)


@dataclass(frozen=True, slots=True)
class DemoPipeline:
    """Names of one pipeline; topic and table are named like it."""

    name: str
    schema: str = _SCHEMA

    @property
    def topic(self) -> str:
        """The topic."""
        return self.name

    @property
    def table(self) -> str:
        """The target, in ``schema``."""
        return self.name

    @property
    def target(self) -> tuple[str, str]:
        """Schema and name of the target."""
        return self.schema, self.table

    @property
    def dag_id(self) -> str:
        """The DAG that the pipeline file makes."""
        return f"kafka_to_postgres__{self.name}"


def new_demo_pipelines(paths: SandboxPaths) -> tuple[DemoPipeline, DemoPipeline, DemoPipeline]:
    """Write the files of the next demo, orders, payments and inventory, into the sandbox's own folder of pipelines.

    Files of earlier demos are removed, so that Airflow shows only the newest; their tables stay.
    """
    folder = private_folder(paths.pipelines)
    earlier = list(folder.glob("*_demo_*.yaml"))
    number = max((int(file.stem.rpartition("_")[2]) for file in earlier), default=0) + 1
    orders, payments, inventory = (_written(example, number, folder) for example in _EXAMPLES)
    for file in earlier:
        file.unlink()
    return orders, payments, inventory


def _written(example: str, number: int, folder: Path) -> DemoPipeline:
    pipeline = DemoPipeline(f"{example}_demo_{number}")
    text = _EXAMPLES[example].read_text(encoding="utf-8")
    for pattern, replacement in _CHANGES:
        text, found = re.subn(pattern, replacement.format(name=pipeline.name), text, flags=re.MULTILINE)
        if found != 1:
            raise ValueError(f"{_EXAMPLES[example]} has {found} lines like {pattern}, and the demo needs one")
    (folder / f"{pipeline.name}.yaml").write_text(text, encoding="utf-8")
    return pipeline
