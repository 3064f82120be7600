"""Staging area of tasks before a commit: one directory for each transaction.

A file has a name that no other attempt has, belongs to its writer alone, and is synced, with its
name, before the driver learns of it. Uncommitted files stay, and are swept when nothing of their
transaction was written for a while.

Crash points: any of them leaves files that a sweep removes; they have no effect.

Thread-safety: no state; tasks write at the same time, also during a sweep of older files.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Final
from uuid import uuid4

from kafkalog.files.directories import ensure_no_link, make_directories, remove_tree
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileHandle, FileSystem
from kafkalog.spark.txn.model import TransactionId

__all__ = ["STAGING_DIRECTORY", "StagingArea"]

# The leading dot keeps it out of a manager's inventory; it is removed when it is empty.
STAGING_DIRECTORY: Final = ".kafkalog-sink-staging"

logger = logging.getLogger(__name__)


class StagingArea:
    """
    The staging directories of one data directory.

    Args:
        filesystem: the disk.
        directory: the data directory.
        elsewhere: a directory on the same file system, in which a subdirectory is used for staging;
            in the data directory if None.
    """

    def __init__(
        self, filesystem: FileSystem, directory: Path, elsewhere: Path | None = None
    ) -> None:
        # A sweep here must remove no other owner's files, nor those of another data directory.
        digest = hashlib.blake2b(str(directory).encode(), digest_size=8).hexdigest()
        self._name = f"{STAGING_DIRECTORY}-{digest}"
        self._within = directory / STAGING_DIRECTORY
        self.root = self._within if elsewhere is None else elsewhere / self._name
        self._filesystem = filesystem

    def directory_of(self, transaction: TransactionId) -> Path:
        """Return the staging directory of a transaction."""
        return self.root / transaction.directory_name

    def owns(self, path: str | Path) -> bool:
        """
        Return True if a path is a file of a transaction's directory here, and no link leads to it.

        Paths on the disk, or from a task, are not trusted: a file somewhere else must never be
        taken over by a log, or removed.
        """
        file = Path(path)
        directory, root = file.parent, file.parent.parent
        if ".." in (directory.name, file.name):
            return False
        # Another transaction may have staged with another `stagingDir`, in a root of this name, or
        # with another spelling of the data directory.
        is_root = root in (self.root, self._within) or root.name == self._name
        if not is_root and root.name == STAGING_DIRECTORY:
            with contextlib.suppress(OSError):
                is_root = root.samefile(self._within)
        return is_root and not any(each.is_symlink() for each in (file, directory, root))

    def create(self, transaction: TransactionId, label: str) -> FileHandle:
        """Create a file for an attempt; OSError if the disk refuses."""
        directory = self.directory_of(transaction)
        path = directory / f"{label}-{uuid4().hex[:12]}.log"
        for last in (False, False, True):
            try:
                if self._filesystem.stat(directory) is None:
                    make_directories(self._filesystem, directory)
                for each in (self.root, directory):
                    ensure_no_link(self._filesystem, each)
                return self._filesystem.create_new(path)
            except FileNotFoundError:
                # Another process has removed the empty directory.
                if last:
                    raise
        raise AssertionError("unreachable")

    def sync_directory_names(self, transaction: TransactionId) -> None:
        """Sync the directories of the files of an attempt."""
        self._filesystem.sync_directory(self.directory_of(transaction))

    def discard(self, transaction: TransactionId) -> None:
        """Remove all staged files of a transaction, also those of other attempts."""
        with storage_errors(self.root, doing="removing staged files"):
            remove_tree(self._filesystem, self.directory_of(transaction))
        self._remove_if_empty()

    def discard_files(self, paths: Iterable[str]) -> None:
        """Remove files that are committed, or will not be, wherever they were staged."""
        parents = set()
        for path in map(Path, paths):
            if not self.owns(path):
                logger.warning("%s is not in %s, and stays", path, self.root)
                continue
            parents.add(path.parent)
            with storage_errors(path, doing="removing"), contextlib.suppress(FileNotFoundError):
                self._filesystem.unlink(path)
        for directory in parents:
            # Another attempt may have a file in it, or have created it again.
            with contextlib.suppress(OSError):
                self._filesystem.remove_directory(directory)
        self._remove_if_empty()

    def sweep(
        self, now_ms: int, orphan_age_ms: int, keep: Iterable[TransactionId] = ()
    ) -> list[str]:
        """
        Remove the transactions without a write for a time; return their names.

        A failure leaves the rest for the next sweep.
        """
        kept = {transaction.directory_name for transaction in keep}
        swept = []
        try:
            names = self._filesystem.list(self.root)
        except OSError:
            return []
        for name in names:
            if name in kept:
                continue
            try:
                if now_ms - self._last_written_ms(self.root / name) > orphan_age_ms:
                    remove_tree(self._filesystem, self.root / name)
                    swept.append(name)
            except OSError as error:
                logger.warning("%s stays for another time: %s", self.root / name, error)
        if swept:
            logger.info("%s: removed uncommitted transactions: %s", self.root, swept)
        self._remove_if_empty()
        return swept

    def _last_written_ms(self, directory: Path) -> int:
        facts = [self._filesystem.stat(directory)]
        facts += [
            self._filesystem.stat(directory / name) for name in self._filesystem.list(directory)
        ]
        return max((each.modified_ms for each in facts if each is not None), default=0)

    def _remove_if_empty(self) -> None:
        with contextlib.suppress(OSError):
            self._filesystem.remove_directory(self.root)
