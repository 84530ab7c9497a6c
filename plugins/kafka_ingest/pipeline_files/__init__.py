"""Pipeline files: YAML with line numbers, every key, what keys say about each other."""
