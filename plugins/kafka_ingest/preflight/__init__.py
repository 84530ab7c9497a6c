"""Checks before the first load: each asks its system and judges the answer."""
