"""Compaction of a manager's logs: selection, threads, states, throttle and history."""
