"""The sync journal of a partition: how far its log is on the disk, and whether a sync may have
failed.

A sync that fails is told once. Whoever was told, and died, leaves a page cache that shows bytes
which the disk lacks, and no later sync speaks of them. So it is noted before a sync begins that one
is being tried, and unsaid only after one has succeeded. What the next opening finds:

  * not trying: no sync was tried above the noted offset. A write-back that failed there was told to
    nobody, and the first sync of the next opening tells it.
  * trying: what lies at or above the noted offset may be lost, whatever a sync says.
  * no note, or one that is not of this log: all above the recovery point may be.

It tells too whether producers may be missing from the producer snapshots: where there is none, may
it be taken that no producer wrote below the recovery point? Not in a log of another program, nor
while an opening has taken the last snapshot away and not yet written the next. That is said, on the
disk, before, and holds over every crash until an opening has come to its end.

It tells as well whether the log still ends where it ended. A process that is killed loses nothing
of what it wrote; a power cut may take whole batches, and what is left looks as good as if they had
never been. So the note names the cache that holds what was written (`FileSystem.cache_id`: another
after each boot and each mount) and itself (its inode: a copy is no proof), as long as no offset was
taken back under a leader epoch that the disk knows. An opening that finds that name again goes on
with the epoch it finds. It is taken out before a torn end is cut, before a truncation, and with a
sync that failed; it comes back when the epoch that rose for it is in its file. None of that is
synced: where the page cache was lost, the name is another.

`.kafkalog_syncs` in the partition directory, 40 bytes, big-endian:

    magic   8  "kafkalog"            traces  8  digest of what other programs leave behind
    version 1  2                     offset  8  everything below it is on the disk
    trying  1  0, 1, or 2 for trying cache   8  digest of cache and inode; zeros: the end may
               with producers missing           have been lower since
    zero    2                        crc     4  CRC-32C of the 36 bytes before

A disk that loses the note's own bytes must not make it say more than is true, so every state that
the file had since it was last synced errs on the safe side: "trying" is synced before the sync it
speaks of begins; the offset rises and "trying" is taken back without a sync, since the states
before call more doubtful, not less; the offset is lowered, for a truncation, with one. Where the
note cannot be synced it is removed, and the log goes on without. After a sync of a few bytes it
stays at "trying", so that many of them need one sync of the note: what is doubtful after a kill is
then what came since the last. It is removed by an orderly close: who comes next may be another
program, which writes no note.

Thread-safety: all methods from any thread; the directory's lock keeps other processes away.
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

# A sync of so much takes longer than one of the note, which the next one will need again.
LARGE_SYNC_BYTES: Final = 4 * 1024 * 1024


class SyncJournal:
    """
    The note of one partition, in the hand of its writer.

    Args:
        filesystem: the disk.
        path: the note's file.
        fingerprint: 8 bytes that change when another program has written to the log.
        cache_id: names the cache that holds what is written; empty where that cannot be told.

    Attributes:
        lacks_producers: whether a log without producer snapshots may have producers all the same.
        keeps_end: whether the next append has an epoch under which no other record had its offset.
        on_error: called with each error that is not raised.
        on_given_up: called when the log goes on without a note; an OSError of it is raised.
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
        # What is written, and its part under the sum: kept, for it is written with every sync.
        self._content = bytearray(_SIZE)
        self._summed = memoryview(self._content)[: _FIELDS.size]

    def __repr__(self) -> str:
        state = "none" if self._is_gone else "trying" if self._is_trying else "not trying"
        return f"<SyncJournal {self._synced_offset}, {state}: {self.path}>"

    def check_end(self) -> bool | None:
        """
        Return whether the log ends where its last writer left it; None where there is no note.

        To be asked before `begin_recovery`. What it says holds until `mark_end_uncertain` is
        called.
        """
        facts = self._filesystem.stat(self.path)
        if facts is None:
            return None
        fields = self._fields()
        cache = _NO_CACHE if fields is None else fields[3]
        self.keeps_end = cache != _NO_CACHE and cache == file_in_cache(self._cache_id, facts)
        return self.keeps_end

    def mark_end_uncertain(self) -> None:
        """
        Note that offsets are about to be taken back, under an epoch that may be given out again.

        Raises:
            OSError: the note can neither be written nor removed; nothing may be taken back.
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
        """Note that the epoch of the log's next append is not that of anything that is gone."""
        with self._guard:
            if not self.keeps_end and not self._has_failed:
                self.keeps_end = True
                self._write_hint()

    def begin_recovery(self, recovery_point: int, *, errors_are_kept: bool) -> int | None:
        """
        Read what the writer before has noted, and note that syncs are tried from here on.

        Args:
            recovery_point: everything below it is on the disk for certain.
            errors_are_kept: whether a first sync tells of a write-back that failed before.

        Returns:
            The first offset that may be lost whatever the next sync says; None where none may.

        Raises:
            OSError: the note can neither be written nor removed.
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
        Note, on the disk, that the last producer snapshot goes before there is another.

        Raises:
            OSError: the note can neither be synced nor removed; it must stay.
        """
        with self._guard:
            if self.lacks_producers:
                return
            self.lacks_producers = True
            self._write_attempt()
            # Else an older note of this name, removed without a sync, might come back.
            self._filesystem.sync_directory(self.path.parent)

    def record_synced(self, synced_offset: int) -> None:
        """Note that the log as it was opened is on the disk up to its end, and no sync is tried."""
        with self._guard:
            self._synced_offset = synced_offset
            self._is_trying = False
            self._write_hint()

    def attempt_sync(
        self, synced_offset: int | None = None, size_bytes: int = 0
    ) -> AbstractContextManager[None]:
        """
        Return what holds the note at "trying" while a log file is synced.

        Args:
            synced_offset: everything below it is on the disk once this was left without an error;
                None where that is not known.
            size_bytes: about how much there is to sync.

        Raises:
            OSError: on entering; the note can neither be synced nor removed; nothing was tried.
        """
        return _Attempt(self, synced_offset, size_bytes)

    def _begin_attempt(self) -> int:
        """Say "trying" before a sync; return how often the offset was lowered so far."""
        with self._guard:
            if not self._is_trying:
                self._write_attempt()
            self._outstanding += 1
            return self._lowered

    def _end_attempt(self, lowered: int, synced_offset: int | None, size_bytes: int) -> None:
        """Take note that a sync succeeded."""
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
        """Take note that a sync failed."""
        with self._guard:
            self._outstanding -= 1
            self._has_failed = True
            self.keeps_end = False
            self._write_hint()

    def lower(self, offset: int) -> None:
        """
        Note, on the disk, that what lies above `offset` will be replaced.

        Raises:
            OSError: the note can neither be synced nor removed; nothing may be replaced.
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
        Take the traces that this program itself has left.

        Written without a sync: a note with the traces of before is not believed, and more doubtful.
        """
        with self._guard:
            self._fingerprint = fingerprint
            self._write_hint()

    def remove(self) -> None:
        """Take the note away: the log is closed in order."""
        self.close()
        # A directory of its name is no note, and stays.
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):
            self._filesystem.unlink(self.path)

    def release(self) -> None:
        """Hold no file open until the next change."""
        with self._guard:
            self._close_file()

    def close(self) -> None:
        """Leave the note as it is, for the next opening."""
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
        """Return trying, traces, offset and cache of a whole note; None of any other."""
        try:
            data = read_file(self._filesystem, self.path, max_bytes=_SIZE)
        except (OSError, ValueError) as error:
            logger.warning("%s is passed over: %s", self.path, error)
            self._report_error(error)
            return None
        if data is None or len(data) != _SIZE:
            return None
        magic, version, trying, zero, fingerprint, offset, cache = _FIELDS.unpack_from(data)
        (checksum,) = _SUM.unpack_from(data, _FIELDS.size)
        whole = checksum == crc32c(data[: _FIELDS.size])
        known = (magic, version, zero) == (_MAGIC, _VERSION, 0) and trying in _TRYING
        return (trying, fingerprint, offset, cache) if whole and known else None

    def _write_attempt(self) -> None:
        """Say "trying", on the disk; go on without a note where that cannot be done."""
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
        """Go on without a note; OSError where it cannot be removed."""
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
        """Write what may get lost: the state before calls more doubtful."""
        try:
            self._write(synced=False)
        except OSError as error:
            logger.info("%s stays as it is: %s", self.path, error)
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
    """A sync that is being tried; a class, since a generator takes three times as long."""

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
