"""The promise: what a run reads, when it counts, and how it ends. Standard library only."""
