"""Types of the kernels that decode some records; nothing of them is for Python."""
