"""The verb that recovers data directories."""
