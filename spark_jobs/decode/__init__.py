"""Strict typed decoding of Kafka records into columns: what does not fit is a dead letter, never a changed value."""
