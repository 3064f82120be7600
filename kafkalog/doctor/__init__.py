"""Checks of a data directory and its machine: facts, findings and remedies."""
