"""No entry points: offset_table serves the kernels of other modules."""
