"""Instructions a record on each hot path: numbers that do not drift with the machine's load."""
