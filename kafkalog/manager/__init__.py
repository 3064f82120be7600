"""Many partitions in many directories: `LogManager`, and what it consists of.

manager.py       the public face: topics, partitions, their logs
registry.py      which partitions there are, where, and whether they are open
directory.py     one data directory: lock, marker, identity, what lies in it
checkpoints.py   its four checkpoint files, kept in memory
identity.py      `meta.properties` of all directories together
checkpoint_store.py          a partition's home that asks its directory instead of files
placement.py     names that topics may have, and where a new partition goes
recovery.py      many partitions opened at once, with progress
deleted_directories.py        directories of deleted partitions
overrides.py     what topics say otherwise than the defaults, kept across restarts
supervision.py   periodic work whose errors are bound to what they concern, and retried
background_tasks.py        which work that is
health.py        what `LogManager.health` tells
"""
