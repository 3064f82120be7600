"""Recovery of records that the commit journal has and a log lacks.

A records entry of the journal has offsets, and no position: its records got these offsets and were
called durable before the log had them, in batches of another form. After a crash the log may have
all of them, a part, or none. They are compared, and appended from the log end on, to a log that is
open and recovered, and that has no other user yet.

Below the log end, a record of the log must equal the one of the journal: key, value and timestamp.
An offset that is missing there was removed by a compaction, and one below the log start by a
deletion: both count as applied.

A power cut may take a batch and leave a later one (a corrupt range). Its records cannot be written
into their place, so the log is cut there before it is opened, and gets them again. What else was
above the cut is not in the journal, so it was not durable; its bytes are kept as `.broken`. Nothing
is cut below the recovery point, or below what data entries have: damage there has other causes.

Nothing of another program is changed. An entry is left alone, and reported, if the log has another
record at one of its offsets, or ends below its first offset. Then the later entries of the
partition are left alone as well.

Crash points:
  1. while the bytes of a cut are kept, and between the renames of later segments and the cut: the
     log has its corrupt range, or ends at it; the next start continues.
  2. after the cut, and after any append: the log ends within the records of the journal, which
     still has all of them; the next start continues at the log end.
  3. within an append: the torn batch is cut by the recovery of the log; then as 2.
  4. after the sync of the log, before the journal is removed: the next start finds them equal.

Thread-safety: the caller is the only user of the log, or of its directory.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from kafkalog._core.record import Record
from kafkalog.errors import NotALogError
from kafkalog.files.atomic_files import replace_file
from kafkalog.files.filesystem import FileHandle, FileSystem
from kafkalog.files.names import FileKind, SegmentFiles, live_base_offset, temporary_path
from kafkalog.log.checkpoint_store import FileCheckpointStore
from kafkalog.log.corrupt_ranges import CorruptRange
from kafkalog.log.delayed_batch import batch_of
from kafkalog.log.log import Log, partition_of
from kafkalog.log.opening import open_log
from kafkalog.log.partition_paths import find_partition_paths
from kafkalog.state.commit_journal import RecordsEntry, read_entry
from kafkalog.state.journal_records import JournalRecord, decode_records

__all__ = ["append_records", "cut_damage"]

logger = logging.getLogger(__name__)

# Entries of consecutive offsets are compared and appended together, up to so many bytes.
_TOGETHER_BYTES: Final = 1 << 20
_COPY_BYTES: Final = 1 << 20


class _RefusedError(Exception):
    """An entry is left alone."""

    def __init__(self, entry: RecordsEntry, reason: str) -> None:
        super().__init__(
            f"offsets {entry.first_offset} to {entry.end_offset - 1} are in {entry.path.name}"
            f" alone, at position {entry.file_position}: {reason}"
        )


class _Chunk:
    """Entries of consecutive offsets, with their records."""

    def __init__(self) -> None:
        self.entries: list[RecordsEntry] = []
        self.records: list[JournalRecord] = []
        self._size_bytes = 0

    @property
    def first_offset(self) -> int:
        return self.entries[0].first_offset

    @property
    def end_offset(self) -> int:
        return self.entries[-1].end_offset

    def accepts(self, entry: RecordsEntry) -> bool:
        """Return whether an entry can be added."""
        if not self.entries:
            return True
        size = self._size_bytes + entry.size
        return entry.first_offset == self.end_offset and size <= _TOGETHER_BYTES

    def add(self, entry: RecordsEntry, records: list[JournalRecord]) -> None:
        """Add an entry, and its records."""
        self.entries.append(entry)
        self.records += records
        self._size_bytes += entry.size

    def entry_at(self, offset: int) -> RecordsEntry:
        return next(each for each in self.entries if offset < each.end_offset)

    def has(self, record: Record) -> bool:
        """Return whether this has the record, at its offset."""
        present = JournalRecord(record.timestamp_ms, record.key, record.value)
        return not record.headers and self.records[record.offset - self.first_offset] == present


def append_records(
    filesystem: FileSystem, log: Log, entries: Sequence[RecordsEntry], *, refusal: str = ""
) -> str:
    """
    Append what a log lacks of records entries, and put it on the disk; see the module.

    Args:
        filesystem: the disk of the journal.
        log: open for writing, with no other user; read-only with `refusal`.
        entries: those that count, in order.
        refusal: why nothing is written, but lacking records are reported; empty to append them.

    Returns:
        why some were left alone, with file, position and offsets; empty if none was.

    Raises:
        OSError: the journal cannot be read.
        KafkaLogError: the log cannot be read or written; the next call repeats all of it.
    """
    recovery = _Recovery(log, refusal)
    reason = ""
    try:
        for chunk in _chunks(filesystem, entries):
            recovery.apply(chunk)
    except _RefusedError as error:
        reason = f"{log.directory}: {error}"
    if recovery.record_count:
        log.flush()
        logger.warning(
            "%s: %d records were appended from the commit journal, up to offset %d",
            log.directory,
            recovery.record_count,
            log.log_end_offset,
        )
    return reason


def cut_damage(
    filesystem: FileSystem,
    directory: Path,
    entries: Sequence[RecordsEntry],
    *,
    data_end_offset: int = 0,
) -> None:
    """
    Cut a log where a power cut has taken records that the journal has; see the module.

    Args:
        filesystem: the disk.
        directory: the partition directory; its log is not open.
        entries: those that count, in order.
        data_end_offset: one above the last offset of data entries.

    Raises:
        OSError, KafkaLogError: the disk refused; the next call repeats it.
    """
    store = FileCheckpointStore(find_partition_paths(filesystem, directory))
    try:
        log = open_log(directory, read_only=True, filesystem=filesystem)
    except NotALogError:
        # The names of its files were not on the disk; they are created.
        return
    with log:
        lost = _find_lost(filesystem, log, entries)
        has_gap = lost is not None and _has_gap(entries, lost.first_offset)
    if lost is None or has_gap:
        return
    if lost.first_offset >= max(store.read_recovery_point(), data_end_offset):
        _cut(filesystem, directory, lost)


def _find_lost(
    filesystem: FileSystem, log: Log, entries: Sequence[RecordsEntry]
) -> CorruptRange | None:
    """Return the first corrupt range with lost records; None without, or before a refusal."""
    try:
        for chunk in _chunks(filesystem, entries):
            lost = _compare(log, chunk)
            if lost is not None:
                return lost
    except _RefusedError:
        # Reported when the log is open.
        return None
    return None


def _has_gap(entries: Sequence[RecordsEntry], offset: int) -> bool:
    """Return whether entries lack an offset from this one up to their end."""
    for each in entries:
        if each.end_offset > offset:
            if each.first_offset > offset:
                return True
            offset = each.end_offset
    return False


def _cut(filesystem: FileSystem, directory: Path, lost: CorruptRange) -> None:
    """Let a log end before a corrupt range; what is above it is kept in other files."""
    logger.warning(
        "%s: cut at offset %d, from which on it lacks records that the commit journal has",
        directory,
        lost.first_offset,
    )
    suffix = FileKind.LOG.value
    bases = [live_base_offset(name, suffix) for name in filesystem.list(directory)]
    holder = live_base_offset(lost.path.name, suffix) or 0
    for base in sorted(
        (base for base in bases if base is not None and base > holder), reverse=True
    ):
        files = SegmentFiles(directory, base)
        filesystem.rename(files.log, files.broken(FileKind.LOG, 0))
    handle = filesystem.open(lost.path)
    try:
        torn = handle.pread(handle.size() - lost.position, lost.position)
        if torn.strip(b"\0"):
            side_file = SegmentFiles(directory, holder).broken(FileKind.LOG, lost.position)
            _keep(filesystem, side_file, torn)
        if torn:
            # A copy: readers of this process may have mapped the file, and continue with it.
            _copy(filesystem, handle, lost.position, temporary_path(lost.path))
            filesystem.rename(temporary_path(lost.path), lost.path)
    finally:
        handle.close()
    filesystem.sync_directory(directory)


def _copy(filesystem: FileSystem, source: FileHandle, size: int, target: Path) -> None:
    """Copy the beginning of a file to another, which is on the disk when this returns."""
    with contextlib.suppress(FileNotFoundError):
        filesystem.unlink(target)
    handle = filesystem.create_new(target)
    try:
        for position in range(0, size, _COPY_BYTES):
            handle.pwrite(source.pread(min(_COPY_BYTES, size - position), position), position)
        handle.sync()
    finally:
        handle.close()


def _keep(filesystem: FileSystem, side_file: Path, torn: bytes) -> None:
    """Write bytes to their side file, after bytes that were cut at the same place before."""
    if filesystem.stat(side_file) is None:
        replace_file(filesystem, side_file, torn)
        return
    before = filesystem.open(side_file)
    try:
        start = before.size() - len(torn)
        if start < 0 or before.pread(len(torn), start) != torn:
            replace_file(filesystem, side_file, torn, before=before)
    finally:
        before.close()


class _Recovery:
    """Compares and appends entries; arguments as for `append_records`."""

    def __init__(self, log: Log, refusal: str) -> None:
        self._log = log
        self._refusal = refusal
        self.record_count = 0

    def apply(self, chunk: _Chunk) -> None:
        """Append what the log lacks of a chunk; _RefusedError if it is not appended."""
        log = self._log
        lost = _compare(log, chunk)
        if lost is not None:
            offset = max(lost.first_offset, chunk.first_offset)
            reason = f"the log is damaged from offset {lost.first_offset} on"
            raise _RefusedError(chunk.entry_at(offset), reason)
        end = log.log_end_offset
        if end >= chunk.end_offset:
            return
        if end < chunk.first_offset:
            raise _RefusedError(chunk.entries[0], f"the log ends at offset {end}")
        if self._refusal:
            raise _RefusedError(chunk.entry_at(end), self._refusal)
        self._append(chunk, end - chunk.first_offset)

    def _append(self, chunk: _Chunk, row: int) -> None:
        appender = partition_of(self._log).appender
        appender.lane.admit("written")
        size_limit = appender.lane.rules.limits.batch_bytes
        left = chunk.records[row:]
        keys, values = [each.key for each in left], [each.value for each in left]
        timestamps = [each.timestamp_ms for each in left]
        start = 0
        while start < len(left):
            run = batch_of(keys, values, timestamps, start, size_limit)
            appender.append(run, "written")
            start += run.record_count
        self.record_count += len(left)


def _compare(log: Log, chunk: _Chunk) -> CorruptRange | None:
    """
    Return the corrupt range, below the log end, that has taken the first lost record; None if none.

    Raises:
        _RefusedError: the log has other records.
    """
    start = max(chunk.first_offset, log.log_start_offset)
    end = min(chunk.end_offset, log.log_end_offset)
    if start >= end:
        return None
    count = 0
    for record in log.records(start, end, on_corrupt="skip"):
        if not chunk.has(record):
            reason = f"the log has another record at offset {record.offset}"
            raise _RefusedError(chunk.entry_at(record.offset), reason)
        count += 1
    if count == end - start:
        return None
    for batch in log.batches(start, end, on_corrupt="skip"):
        if batch.header.is_control:
            offset = max(batch.header.base_offset, start)
            reason = f"the log has a transaction marker at offset {offset}"
            raise _RefusedError(chunk.entry_at(offset), reason)
    # After a stop in order no opening has searched for them.
    log.find_holes()
    for each in log.corrupt_ranges():
        if each.first_offset < end and each.next_offset > start:
            return each
    # A compaction has removed them.
    return None


def _chunks(filesystem: FileSystem, entries: Sequence[RecordsEntry]) -> Iterator[_Chunk]:
    """Yield the records of entries; OSError if the journal cannot be read."""
    chunk = _Chunk()
    for entry in entries:
        try:
            records = _read(filesystem, entry)
        except ValueError:
            if chunk.entries:
                yield chunk
            reason = "the journal has no whole records of them any more"
            raise _RefusedError(entry, reason) from None
        if not chunk.accepts(entry):
            yield chunk
            chunk = _Chunk()
        chunk.add(entry, records)
    if chunk.entries:
        yield chunk


def _read(filesystem: FileSystem, entry: RecordsEntry) -> list[JournalRecord]:
    """Return the records of an entry; ValueError if they are not those that were written."""
    handle = filesystem.open(entry.path)
    try:
        data = read_entry(handle, entry)
    finally:
        handle.close()
    if data is None:
        raise ValueError(f"{entry.path} has other bytes than before")
    return decode_records(data, entry.end_offset - entry.first_offset)
