"""The draft of a pipeline file from what a topic holds: a person reads it, and no run ever guesses."""
