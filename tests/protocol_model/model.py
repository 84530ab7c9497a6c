"""The model: every rule together."""

from __future__ import annotations

from tests.protocol_model.change_rules import ChangeRules
from tests.protocol_model.database_rules import DatabaseRules
from tests.protocol_model.log_rules import LogRules
from tests.protocol_model.reload_rules import ReloadRules
from tests.protocol_model.run_rules import AttemptRules, RunRules


class ProtocolModel(LogRules, RunRules, ReloadRules, ChangeRules, AttemptRules, DatabaseRules):
    """Random schedules against the database in memory."""
