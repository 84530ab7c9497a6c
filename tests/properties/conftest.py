"""Generated cases take the time that they take: a test never asserts a time, and machines are shared.

``pytest tests/properties --hypothesis-profile=deep`` looks at thirty times as many cases.
"""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("without_deadline", deadline=None)
settings.register_profile("deep", deadline=None, max_examples=3_000)
settings.load_profile("without_deadline")
