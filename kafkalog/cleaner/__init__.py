"""Log compaction: the latest record of every key, and what else must stay."""
