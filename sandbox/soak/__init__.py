"""The soak: the real system under a producer that never stops, with parts of it killed at seeded moments.

``python -m sandbox.soak`` (``make soak``) runs cycles of chaos, with an operator who reloads, resets, skips and rolls
back at the same time. At the end it proves that every record that can be read from the topic, and that nobody gave up,
is in the database exactly once.
"""
