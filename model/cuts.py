"""Which guards are taken out together, and in which family of assertions that must show.

A guard that is needed alone is a cut of one. Several guards that stand in for each other are a cut of several: with all
of them gone something breaks, with any one put back nothing does (``check.py --minimal`` proves it).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Checked(IntEnum):
    """How many families of assertions are looked at; see ``ledger.pml``."""

    PROMISE = 1
    RULES = 2
    PROGRESS = 3


@dataclass(frozen=True, slots=True)
class Cut:
    """Guards to take out.

    Attributes:
        guards: Their names in ``guards.pml``.
        checked: The families of assertions in which a counterexample is looked for.
        max_faults: How many faults may happen, besides one zombie and one re-creation of the topic.
        scenario: Macro of the search, where it is not the first one: ``RESET`` or ``ACCEPT`` (``ledger.pml``).
    """

    guards: tuple[str, ...]
    checked: Checked = Checked.PROGRESS
    max_faults: int = 1
    scenario: str = ""


CUTS = (
    # One guard, and the promise breaks.
    Cut(("ONE_TRANSACTION",), Checked.PROMISE),
    Cut(("STAGED_COUNT",), Checked.PROMISE),
    Cut(("TOPIC_ID_BEFORE_PUBLISH",), Checked.PROMISE),
    # One guard, and a sound run gets stuck, is stopped by another check, or is told something wrong.
    Cut(("VIEW_RECHECK",)),
    Cut(("BATCHES_BEFORE_POSITIONS",)),
    Cut(("PIPELINE_LOCK",)),
    Cut(("SUPERSEDE_ONLY_PLANNED",)),
    Cut(("HOLD",)),
    Cut(("TOPIC_ID_AT_PLAN",)),
    Cut(("TOPIC_ID_AFTER_OFFSETS",)),
    Cut(("BATCH_LOCK",)),
    Cut(("STATE_CHECK",)),
    Cut(("WINNER_FILTER",)),
    Cut(("STAGING_PER_CLAIM",)),
    Cut(("IN_DOUBT_READ",)),
    Cut(("IN_DOUBT_LOCK",)),
    # Guards that stand in for each other, and a rule breaks.
    Cut(("CLAIM_CHECK", "COMMIT_RECHECK"), Checked.RULES),
    Cut(("STATE_CHECK", "COMMIT_RECHECK", "FORWARD_STATES"), Checked.RULES),
    Cut(("SUPERSEDE_ONLY_PLANNED", "FORWARD_STATES"), Checked.RULES),
    Cut(("PIPELINE_LOCK", "ONE_OUTSTANDING"), Checked.RULES),
    # Guards that stand in for each other, and the promise breaks.
    Cut(("VIEW_RECHECK", "COMPARE_AND_SET", "CHAIN_INDEX"), Checked.PROMISE),
    Cut(("BATCHES_BEFORE_POSITIONS", "COMPARE_AND_SET", "CHAIN_INDEX"), Checked.PROMISE),
    Cut(("PIPELINE_LOCK", "COMPARE_AND_SET", "CHAIN_INDEX"), Checked.PROMISE),
    Cut(("VIEW_RECHECK", "ONE_STANDING"), Checked.PROMISE),
    Cut(("BATCH_LOCK", "COMPARE_AND_SET", "RANGES_ONCE", "COMMIT_RECHECK"), Checked.PROMISE),
    Cut(("STATE_CHECK", "CLAIM_CHECK", "COMPARE_AND_SET", "RANGES_ONCE", "COMMIT_RECHECK"), Checked.PROMISE),
    Cut(("STATE_CHECK", "COMMIT_RECHECK", "FORWARD_STATES", "COMPARE_AND_SET", "CHAIN_INDEX"), Checked.PROMISE),
    Cut(("WINNER_FILTER", "STAGED_COUNT"), Checked.PROMISE, max_faults=0),
    Cut(("STAGING_PER_CLAIM", "STAGED_COUNT"), Checked.PROMISE, max_faults=0),
    # Reloads and position changes: one guard.
    Cut(("REPLACE",), Checked.PROMISE, max_faults=0, scenario="RESET"),
    Cut(("UP_TO_LOADED",), Checked.PROMISE, max_faults=0, scenario="RESET"),
    Cut(("NOTHING_LOST",), Checked.PROMISE, max_faults=0, scenario="RESET"),
    Cut(("NO_GAP",), Checked.PROMISE, max_faults=0, scenario="RESET"),
    Cut(("NEXT_LINE",), max_faults=0, scenario="RESET"),
    Cut(("CHANGE_SUPERSEDES",), max_faults=0, scenario="RESET"),
    Cut(("CHANGE_RECHECK",), max_faults=0, scenario="RESET"),
    Cut(("GENERATION",), max_faults=0, scenario="ACCEPT"),
    # Two that stand in for each other.
    Cut(("CHANGE_RECHECK", "CHANGE_COMPARE_AND_SET"), Checked.PROMISE, max_faults=0, scenario="RESET"),
)
