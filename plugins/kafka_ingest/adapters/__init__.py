"""The outside world behind the ports of ``core``: each module with its one library."""
