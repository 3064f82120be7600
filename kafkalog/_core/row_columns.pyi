"""Types of the kernels that fill columns; nothing of them is for Python."""
