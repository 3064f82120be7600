"""Log start offset of a log that another process writes: its checkpoint, read when it may differ.

A checkpoint is replaced by a rename, which changes the directory of the checkpoints. While that
directory has an unchanged change mark, old enough to show the next change, the value that was read
is valid.

Thread-safety: none; the caller holds the lock of its refreshes.
"""

from __future__ import annotations

from kafkalog.log.checkpoint_store import CheckpointStore

__all__ = ["FollowedStartOffset"]


class FollowedStartOffset:
    """
    The checkpointed log start offset of another process's log.

    Args:
        store: reads the checkpoint.
    """

    def __init__(self, store: CheckpointStore) -> None:
        self._store = store
        self._filesystem = store.paths.filesystem
        self._directory = store.paths.state_directory
        self._mark: tuple[int, ...] | None = None
        self._offset: int | None = None

    def is_unchanged(self) -> bool:
        """Return whether the checkpoint is certainly as it was when it was last read."""
        mark = self._mark
        return mark is not None and self._filesystem.change_mark(self._directory) == mark

    def read(self, *, trusts_mark: bool = True) -> int | None:
        """
        Return the checkpointed log start offset, None without one.

        Args:
            trusts_mark: False to read the file in any case.

        Raises:
            CorruptStateError: the checkpoint is damaged.
            OSError, LogStorageError: the disk failed.
        """
        mark = self._filesystem.change_mark(self._directory)
        if not trusts_mark or mark is None or mark != self._mark:
            # Forgotten first: an error must not leave an old value with a new mark.
            self._mark = None
            self._offset = self._store.read_start_offset()
            self._mark = mark
        return self._offset
