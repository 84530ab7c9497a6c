"""Where the time of a load goes: seconds of its phases by the clock, and of the parts of staging summed over tasks."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class TaskSeconds:
    """What staging tasks spent their time on. Tasks run side by side: the sum is more than the phase took.

    Attributes:
        read: Waiting for Kafka's records and putting them together.
        decode: Turning records into columns.
        copy: Sending rows and dead letters to staging, and waiting for PostgreSQL.
    """

    read: float = 0.0
    decode: float = 0.0
    copy: float = 0.0

    def __add__(self, other: TaskSeconds) -> TaskSeconds:
        return TaskSeconds(self.read + other.read, self.decode + other.decode, self.copy + other.copy)


@dataclass(frozen=True, slots=True)
class LoadPhases:
    """How long the phases of one attempt took, in seconds, one after another.

    Attributes:
        session: Until Spark could take tasks.
        stage: All tasks, from the first one's start to the last one's end.
        publish: Accounting, the look at Kafka's ids and the one transaction.
        tasks: What the winning tasks did while they staged.
    """

    session: float
    stage: float
    publish: float
    tasks: TaskSeconds

    def __str__(self) -> str:
        tasks = ", ".join(f"{part.name} {getattr(self.tasks, part.name):.1f}" for part in fields(self.tasks))
        return (
            f"session {self.session:.1f} s, staging {self.stage:.1f} s ({tasks} task-seconds), "
            f"publish {self.publish:.1f} s"
        )
