"""Read-only calls over the logs of directories: list partitions, read records, search records."""
