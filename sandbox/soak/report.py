"""The last lines of a soak: what it did and what it proved, or how to run it again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from sandbox.soak.choices import SoakOptions
from sandbox.soak.pipeline import SoakMode
from sandbox.state_verification import StateComparison
from sandbox.verification import Comparison


@dataclass(frozen=True, slots=True)
class SoakResult:
    """The findings of a soak when nothing was left to load.

    Attributes:
        options: The options of the soak.
        runs: Cycles by kind of run.
        attempts: Attempts by the command line, and tries of Airflow's tasks.
        kills: What was hit, and how often.
        late_faults: Faults that found nothing to hit: the run had ended, or its process was not there yet.
        interventions: Reloads, resets, skips and roll-backs that the ledger holds.
        refused: Interventions that a rule of the ledger refused.
        sent: The producer's tally.
        comparison: The topic against the database.
        violations: Rows of invariants that did not hold, in all audits.
        audits: How often the invariants were checked.
        seconds: From the first start to the comparison.
    """

    options: SoakOptions
    runs: Counter[str]
    attempts: int
    kills: Counter[str]
    late_faults: int
    interventions: Counter[str]
    refused: Counter[str]
    sent: Mapping[str, int]
    comparison: Comparison | StateComparison
    violations: int
    audits: int
    seconds: float

    @property
    def is_exact(self) -> bool:
        """Whether every record is there exactly once, or every key as it must be, and every invariant held."""
        return self.comparison.is_exact and not self.violations


def report_lines(result: SoakResult) -> list[str]:
    """Return the lines to print."""
    found, sent = result.comparison, result.sent
    if isinstance(found, StateComparison):
        proved, compared = "Every key is as its newest record says", _lines_of_state(found)
    else:
        proved, compared = "Every record is there exactly once", _lines_of_records(found)
    transactions = ", ".join(f"{sent.get(name, 0):,} {name}" for name in _TRANSACTIONS)
    return [
        "",
        proved if result.is_exact else "THE SOAK FAILED",
        f"  cycles        {sum(result.runs.values()):>9,}   {_counts(result.runs)}; {result.attempts} attempts",
        f"  faults        {result.kills.total():>9,}   {_counts(result.kills)}",
        f"  late faults   {result.late_faults:>9,}   chosen, but there was nothing to hit yet, or any more",
        f"  interventions {result.interventions.total():>9,}   {_counts(result.interventions)}",
        f"  refused       {result.refused.total():>9,}   roll-backs that would have passed a position change",
        f"  sent          {sent.get('acknowledged', 0):>9,}   records acknowledged; {transactions}",
        *compared,
        f"  given up      {found.given_up:>9,}   by resets forwards and skips, and not loaded by anything else",
        f"  violations    {result.violations:>9,}   of invariants, in {result.audits} audits",
        f"  seconds       {result.seconds:>9,.0f}   seed {result.options.seed}",
    ]


def _lines_of_records(found: Comparison) -> list[str]:
    return [
        f"  records       {found.produced:>9,}   with a value, read back with a plain read_committed consumer",
        f"  rows          {found.rows:>9,}",
        f"  dead letters  {found.dead_letters:>9,}",
        f"  tombstones    {found.tombstones:>9,}   in the topic; {found.miscounted_ranges} ranges counted others",
        f"  missing       {found.missing:>9,}",
        f"  duplicates    {found.duplicates:>9,}",
        f"  unexpected    {found.unexpected:>9,}",
    ]


def _lines_of_state(found: StateComparison) -> list[str]:
    return [
        f"  changes       {found.changes:>9,}   of keys, read back and folded with a plain read_committed consumer",
        f"  rows          {found.rows:>9,}   keys whose newest record is an order",
        f"  removed keys  {found.removed:>9,}   whose newest record is a tombstone",
        f"  dead letters  {found.dead_letters:>9,}",
        f"  differing     {found.differing:>9,}   keys, and {found.differing_dead_letters} dead letters",
    ]


_TRANSACTIONS = ("committed transactions", "aborted transactions", "broken transactions")


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.most_common()) or "none"


def replay_command(options: SoakOptions) -> str:
    """Return the command that makes the same choices again."""
    mode = "" if options.mode is SoakMode.APPEND else f" --mode {options.mode}"
    return (
        f"python -m sandbox.soak --cycles {options.cycles} --seed {options.seed} --airflow {options.airflow}"
        f" --spark {options.spark} --rate {options.rate}{mode}"
    )
