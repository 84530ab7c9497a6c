"""``pytest tests/protocol_model --hypothesis-profile=deep`` runs many more schedules, other ones each time."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("deep", deadline=None)
