"""Compaction of a manager's logs: which one is next, by whom, and what it must not meet."""
