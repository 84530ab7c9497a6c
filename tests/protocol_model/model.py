"""The model: every rule together. Position changes, reloads and roll-backs join as one more class of rules."""

from __future__ import annotations

from tests.protocol_model.database_rules import DatabaseRules
from tests.protocol_model.log_rules import LogRules
from tests.protocol_model.run_rules import AttemptRules, RunRules


class ProtocolModel(LogRules, RunRules, AttemptRules, DatabaseRules):
    """Random schedules against the database in memory."""
