"""Tests of the cleaner of a manager: states, log selection, threads and errors."""
