"""One module per step. Steps order the decisions of ``core`` over its ports; they import nothing else."""
