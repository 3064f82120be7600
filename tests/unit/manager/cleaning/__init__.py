"""Tests of the cleaner of a manager: states, choice, threads, and what goes wrong."""
