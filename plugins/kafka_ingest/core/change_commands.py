"""The commands that resolve a fault by changing positions, as messages name them."""

from __future__ import annotations


def change_command(pipeline: str, kind: str) -> str:
    """Gives a command that shows what a change would do; with ``--apply`` it makes the change.

    Args:
        pipeline: Name of the pipeline in its file.
        kind: Kind of change, with its arguments.
    """
    return f'python -m kafka_ingest change {pipeline} {kind} --reason "..."'
