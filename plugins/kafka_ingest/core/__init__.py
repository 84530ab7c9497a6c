"""Decisions and values of the protocol. Standard library only; no I/O."""
