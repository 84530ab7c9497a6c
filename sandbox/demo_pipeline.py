"""The demo's own pipeline: the example file with another name, topic and table."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sandbox.paths import CHECKOUT, SandboxPaths, private_folder

_EXAMPLE = CHECKOUT / "dags" / "pipelines" / "orders.yaml"
_SCHEMA = "shop"
#: Lines of the example file that the demo replaces, and their replacements.
_CHANGES = (
    (r"^pipeline: orders\b.*$", "pipeline: {name}"),
    (r'^schedule: "@hourly".*$', "schedule: null"),
    (r"^  topics: \[orders\].*$", "  topics: [{name}]"),
    (rf"^  table: {_SCHEMA}\.orders.*$", f"  table: {_SCHEMA}.{{name}}"),
)


@dataclass(frozen=True, slots=True)
class DemoPipeline:
    """Names of one demo; topic and table are named like the pipeline."""

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
    def dag_id(self) -> str:
        """The DAG that the pipeline file makes."""
        return f"kafka_to_postgres__{self.name}"


def new_demo_pipeline(paths: SandboxPaths) -> DemoPipeline:
    """Write the pipeline file of the next demo into the sandbox's own folder of pipelines.

    Files of earlier demos are removed, so that Airflow shows only the newest; their tables stay.
    """
    folder = private_folder(paths.pipelines)
    earlier = sorted(folder.glob("orders_demo_*.yaml"), key=lambda file: int(file.stem.rpartition("_")[2]))
    number = int(earlier[-1].stem.rpartition("_")[2]) + 1 if earlier else 1
    pipeline = DemoPipeline(f"orders_demo_{number}")
    (folder / f"{pipeline.name}.yaml").write_text(_file_of(pipeline), encoding="utf-8")
    for file in earlier:
        file.unlink()
    return pipeline


def _file_of(pipeline: DemoPipeline) -> str:
    text = _EXAMPLE.read_text(encoding="utf-8")
    for pattern, replacement in _CHANGES:
        text, found = re.subn(pattern, replacement.format(name=pipeline.name), text, flags=re.MULTILINE)
        if found != 1:
            raise ValueError(f"{_EXAMPLE} has {found} lines like {pattern}, and the demo needs one")
    return text
