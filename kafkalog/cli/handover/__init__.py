"""The verb that prepares data directories for a broker."""
