"""Partitions of many topics in many directories: `LogManager` and its parts.

manager.py              facade and composition root: topics, partitions, their logs
manager_gate.py         lock, process, closed
registry.py             the partitions: data directory, and log if it is open
directory.py            one data directory: lock, identity, partitions, checkpoints
directory_group.py      all data directories: open, offline, online, close; one identity
checkpoints.py          the four checkpoint files of a data directory, cached
checkpoint_store.py     checkpoints of one partition in a data directory
sessions.py             partitions that were closed in order, and the shutdown marker
topics.py               create, delete and reconfigure topics; placement; duplicate partitions
settings.py             settings of topics, and changed defaults
overrides.py            the file that stores these settings
incarnations.py         topic ids
deletion_marks.py       marks that distinguish a deleted partition from a newer one of its name
deleted_directories.py  removal of directories of deleted partitions
moving.py               move of a partition to another data directory
move_notes.py           notes of unfinished moves
group_commit.py         commits of many logs together
opening.py              open, reopen and close logs
open_log_limit.py       limit of logs with files open for writing
recovery.py             recovery and closing of many partitions with several threads
supervision.py          periodic tasks, retries and the fault registry
background.py           threads of background work
background_tasks.py     the periodic tasks
health.py               health and metrics
cleaning/               compaction in the background and on demand
"""
