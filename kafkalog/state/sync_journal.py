"""Sync journal of a partition: the offset below which its log is on the disk, and a sync attempt.

The system reports a failed sync once. A process that got the error and died leaves a page cache
with bytes that the disk lacks, and no later sync reports them. So the journal records before a sync
that a sync is attempted, and removes the record only after a sync has succeeded. The next opening
finds one of these states:

  * not trying: no sync was attempted above the recorded offset. A write-back that failed there was
    not reported yet, and the first sync of the next opening reports it.
  * trying: bytes at or above the recorded offset may be lost, whatever a sync reports.
  * no journal, or that of another log: all bytes above the recovery point may be lost.

The journal also records whether producers may be missing from the producer snapshots. If a log has
no snapshot, no producer wrote below the recovery point, with two exceptions: a log of another
program, and a log whose opening has removed the last snapshot and not yet written the next. The
second exception is recorded on the disk before the removal, and stays over every crash until an
opening completes.

The journal also records whether the log still ends where it ended. A process that is killed loses
none of its writes; a power cut may remove whole batches, and the rest looks valid. So the journal
has the id of the cache with the written bytes (`FileSystem.cache_id`: a new one after each boot and
each mount) and of itself (its inode: a copy is not a proof), as long as no offset was taken back
under a leader epoch that the disk has. An opening that finds the same id continues with the epoch
of the file. The id is removed before a torn tail is truncated, before a truncation, and after a
failed sync; it is restored when the epoch that was bumped for it is in its file. None of these
changes is synced: if the page cache was lost, the id has changed.

`.kafkalog_syncs` in the partition directory, 40 bytes, big-endian:

    magic   8  "kafkalog"            traces  8  digest of files that other programs write
    version 1  2                     offset  8  everything below it is on the disk
    trying  1  0, 1, or 2 for trying cache   8  digest of cache and inode; zeros: the end may
               with producers missing           have been lower since
    zero    2                        crc     4  CRC-32C of the 36 bytes before

A disk that loses bytes of the journal must not make it claim more than is true, so every state of
the file since its last sync errs on the safe side: "trying" is synced before the log's sync begins;
the offset rises and "trying" is cleared without a sync, since the earlier states declare more bytes
uncertain, not less; the offset is lowered, for a truncation, with a sync. If the journal cannot be
synced it is removed, and the log continues without it. After a sync of a few bytes it stays at
"trying", so that many such syncs need one sync of the journal: after a kill, the bytes since the
last one are uncertain. A clean close removes the journal: the next writer may be another program,
which has no journal.

Thread-safety: all methods may be called from any thread, under the journal's own lock; the
directory's lock excludes other processes.
"""

from __future__ import annotations

import contextlib
import logging
import struct
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Final

from kafkalog._core.crc32c import value as crc32c
from kafkalog.files.atomic_files import read_file
from kafkalog.files.filesystem import FileHandle, FileSystem
from kafkalog.files.mounts import ID_BYTES, file_in_cache

__all__ = ["SyncJournal"]

logger = logging.getLogger(__name__)

_MAGIC: Final = b"kafkalog"
_VERSION: Final = 2
_NOT_TRYING: Final = 0
_TRYING_WITHOUT_PRODUCERS: Final = 2
_TRYING: Final = (_NOT_TRYING, 1, _TRYING_WITHOUT_PRODUCERS)
_FIELDS: Final = struct.Struct(">8sBBH8sq8s")
_SUM: Final = struct.Struct(">I")
_SIZE: Final = _FIELDS.size + _SUM.size
_NO_CACHE: Final = bytes(ID_BYTES)

# A sync of this size takes longer than a sync of the journal, which the next attempt then needs.
LARGE_SYNC_BYTES: Final = 4 * 1024 * 1024


class SyncJournal:
    """
    The sync journal of one partition; its writer owns it.

    Args:
        filesystem: the disk.
        path: the journal's file.
        fingerprint: 8 bytes that change when another program has written to the log.
        cache_id: id of the cache that has the written bytes; empty if unknown.

    Attributes:
        lacks_producers: True if a log without producer snapshots may still have producers.
        keeps_end: True if the next append has an epoch under which no other record had its offset.
        on_error: called with each error that is not raised.
        on_given_up: called when the log continues without a journal; an OSError of it is raised.
    """

    def __init__(
        self, filesystem: FileSystem, path: Path, fingerprint: bytes, cache_id: bytes = b""
    ) -> None:
        self.path = path
        self.lacks_producers = False
        self.keeps_end = False
        self.on_error: Callable[[BaseException], object] | None = None
        self.on_given_up: Callable[[], object] | None = None
        self._filesystem = filesystem
        self._fingerprint = fingerprint
        self._cache_id = cache_id
        self._own_cache = _NO_CACHE
        self._handle: FileHandle | None = None
        self._guard = threading.Lock()
        self._synced_offset = 0
        self._is_trying = False
        self._is_gone = False
        self._has_failed = False
        self._outstanding = 0
        self._lowered = 0
        # The content, and its part under the checksum: kept, because every sync writes it.
        self._content = bytearray(_SIZE)
        self._summed = memoryview(self._content)[: _FIELDS.size]

    def __repr__(self) -> str:
        state = "none" if self._is_gone else "trying" if self._is_trying else "not trying"
        return f"<SyncJournal {self._synced_offset}, {state}: {self.path}>"

    def check_end(self) -> bool | None:
        """
        Return whether the log ends where its last writer left it; None if there is no journal.

        Call it before `begin_recovery`. The result is valid until `mark_end_uncertain` is called.
        """
        facts = self._filesystem.stat(self.path)
        if facts is None:
            return None
        fields = self._fields()
        cache = _NO_CACHE if fields is None else fields[3]
        self.keeps_end = cache != _NO_CACHE and cache == file_in_cache(self._cache_id, facts)
        return self.keeps_end

    def set_keeps_end(self, keeps_end: bool) -> None:
        """Set `keeps_end`, which the next write of the journal records."""
        self.keeps_end = keeps_end

    def set_on_error(self, on_error: Callable[[BaseException], object]) -> None:
        """Set the function that is called with each error that is not raised."""
        self.on_error = on_error

    def mark_end_uncertain(self) -> None:
        """
        Record that offsets will be taken back, under an epoch that may be assigned again.

        Raises:
            OSError: the journal can neither be written nor removed; the caller must not take back
                any offset.
        """
        with self._guard:
            if not self.keeps_end:
                return
            self.keeps_end = False
            try:
                self._write(synced=False)
            except OSError as error:
                self._give_up(error)

    def mark_end_certain(self) -> None:
        """Record that the epoch of the log's next append is not that of a lost record."""
        with self._guard:
            if not self.keeps_end and not self._has_failed:
                self.keeps_end = True
                self._write_hint()

    def begin_recovery(self, recovery_point: int, *, errors_are_kept: bool) -> int | None:
        """
        Read the journal of the previous writer, and record that syncs are attempted from now on.

        Args:
            recovery_point: every offset below it is certainly on the disk.
            errors_are_kept: True if a first sync reports an earlier write-back that failed.

        Returns:
            The first offset that may be lost whatever the next sync reports; None if there is none.

        Raises:
            OSError: the journal can neither be written nor removed.
        """
        noted = self._read()
        synced_offset, was_trying, lacks_producers = noted or (recovery_point, True, True)
        with self._guard:
            self.lacks_producers = lacks_producers
            self._synced_offset = max(synced_offset, recovery_point)
            self._write_attempt()
            return self._synced_offset if was_trying or not errors_are_kept else None

    def mark_producers_uncertain(self) -> None:
        """
        Record, on the disk, that the last producer snapshot is removed before the next is written.

        Raises:
            OSError: the journal can neither be synced nor removed; the snapshot must stay.
        """
        with self._guard:
            if self.lacks_producers:
                return
            self.lacks_producers = True
            self._write_attempt()
            # Otherwise an older journal of this name, removed without a sync, might come back.
            self._filesystem.sync_directory(self.path.parent)

    def mark_producers_certain(self) -> None:
        """Record, with the next write, that the log has a producer snapshot or no producer."""
        with self._guard:
            self.lacks_producers = False

    def record_synced(self, synced_offset: int) -> None:
        """Record that the opened log is on the disk up to its end, and no sync is attempted."""
        with self._guard:
            self._synced_offset = synced_offset
            self._is_trying = False
            self._write_hint()

    def attempt_sync(
        self, synced_offset: int | None = None, size_bytes: int = 0
    ) -> AbstractContextManager[None]:
        """
        Return a context that keeps the journal at "trying" while a log file is synced.

        Args:
            synced_offset: every offset below it is on the disk after the context ends without an
                error; None if unknown.
            size_bytes: approximate number of bytes to sync.

        Raises:
            OSError: on entering; the journal can neither be synced nor removed; no sync was
                attempted.
        """
        return _Attempt(self, synced_offset, size_bytes)

    def _begin_attempt(self) -> int:
        """Record "trying" before a sync; return how often the offset was lowered so far."""
        with self._guard:
            if not self._is_trying:
                self._write_attempt()
            self._outstanding += 1
            return self._lowered

    def _end_attempt(self, lowered: int, synced_offset: int | None, size_bytes: int) -> None:
        """Record that a sync succeeded."""
        with self._guard:
            self._outstanding -= 1
            if self._has_failed:
                return
            if (
                synced_offset is not None
                and synced_offset > self._synced_offset
                and lowered == self._lowered
            ):
                self._synced_offset = synced_offset
            if size_bytes >= LARGE_SYNC_BYTES and not self._outstanding:
                self._is_trying = False
            self._write_hint()

    def _fail_attempt(self) -> None:
        """Record that a sync failed."""
        with self._guard:
            self._outstanding -= 1
            self._has_failed = True
            self.keeps_end = False
            self._write_hint()

    def lower(self, offset: int) -> None:
        """
        Record, on the disk, that the records above `offset` will be replaced.

        Raises:
            OSError: the journal can neither be synced nor removed; the caller must not replace any
                record.
        """
        with self._guard:
            self._lowered += 1
            before = self._synced_offset
            if offset >= before:
                return
            self._synced_offset = offset
            try:
                self._write_attempt()
            except OSError:
                self._synced_offset = before
                raise

    def update_fingerprint(self, fingerprint: bytes) -> None:
        """
        Set the fingerprint after this program has changed the files that it covers.

        Written without a sync: a journal with the earlier fingerprint is not valid, which declares
        more bytes uncertain.
        """
        with self._guard:
            self._fingerprint = fingerprint
            self._write_hint()

    def remove(self) -> None:
        """Remove the journal: the log was closed cleanly."""
        self.close()
        # A directory of its name is not a journal, and stays.
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):
            self._filesystem.unlink(self.path)

    def release(self) -> None:
        """Close the file until the next change."""
        with self._guard:
            self._close_file()

    def close(self) -> None:
        """Close the journal and leave it unchanged for the next opening."""
        with self._guard:
            self._is_gone = True
            self._close_file()

    def _read(self) -> tuple[int, bool, bool] | None:
        fields = self._fields()
        if fields is None or fields[1] != self._fingerprint:
            return None
        trying, _fingerprint, offset, _cache = fields
        return offset, trying != _NOT_TRYING, trying == _TRYING_WITHOUT_PRODUCERS

    def _fields(self) -> tuple[int, bytes, int, bytes] | None:
        """Return trying, fingerprint, offset and cache of a valid journal; None for any other."""
        try:
            data = read_file(self._filesystem, self.path, max_bytes=_SIZE)
        except (OSError, ValueError) as error:
            logger.warning("%s is ignored: %s", self.path, error)
            self._report_error(error)
            return None
        if data is None or len(data) != _SIZE:
            return None
        magic, version, trying, zero, fingerprint, offset, cache = _FIELDS.unpack_from(data)
        (checksum,) = _SUM.unpack_from(data, _FIELDS.size)
        whole = checksum == crc32c(data[: _FIELDS.size])
        has_format = (magic, version, zero) == (_MAGIC, _VERSION, 0) and trying in _TRYING
        return (trying, fingerprint, offset, cache) if whole and has_format else None

    def _write_attempt(self) -> None:
        """Record "trying", on the disk; continue without a journal if this fails."""
        was_trying, self._is_trying = self._is_trying, True
        try:
            self._write(synced=True)
        except OSError as error:
            try:
                self._give_up(error)
            except OSError:
                self._is_trying = was_trying
                raise

    def _give_up(self, error: OSError) -> None:
        """Continue without a journal; OSError if it cannot be removed."""
        logger.warning("%s is given up, a recovery will take longer: %s", self.path, error)
        self._report_error(error)
        self._close_file()
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):
            self._filesystem.unlink(self.path)
        self._filesystem.sync_directory(self.path.parent)
        if self.on_given_up is not None:
            self.on_given_up()
        self._is_gone = True

    def _write_hint(self) -> None:
        """Write a state that may get lost: the state before declares more bytes uncertain."""
        try:
            self._write(synced=False)
        except OSError as error:
            logger.info("%s is unchanged: %s", self.path, error)
            self._report_error(error)

    def _report_error(self, error: BaseException) -> None:
        """Report an error that is not raised."""
        if self.on_error is not None:
            self.on_error(error)

    def _write(self, *, synced: bool) -> None:
        if self._is_gone:
            return
        trying = _TRYING_WITHOUT_PRODUCERS if self.lacks_producers else int(self._is_trying)
        content = self._content
        if self._handle is None:
            self._handle = self._filesystem.open(self.path, create=True, write=True)
            self._own_cache = file_in_cache(self._cache_id, self._filesystem.stat(self.path))
        cache = self._own_cache if self.keeps_end else _NO_CACHE
        _FIELDS.pack_into(
            content, 0, _MAGIC, _VERSION, trying, 0, self._fingerprint, self._synced_offset, cache
        )
        _SUM.pack_into(content, _FIELDS.size, crc32c(self._summed))
        self._handle.pwrite(content, 0)
        if synced:
            self._handle.sync()

    def _close_file(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.close()


class _Attempt(AbstractContextManager[None]):
    """A sync attempt; a class, because a generator takes three times as long."""

    __slots__ = ("_journal", "_lowered", "_size_bytes", "_synced_offset")

    def __init__(self, journal: SyncJournal, synced_offset: int | None, size_bytes: int) -> None:
        self._journal = journal
        self._synced_offset = synced_offset
        self._size_bytes = size_bytes
        self._lowered = 0

    def __enter__(self) -> None:
        self._lowered = self._journal._begin_attempt()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self._journal._end_attempt(self._lowered, self._synced_offset, self._size_bytes)
        else:
            self._journal._fail_attempt()
