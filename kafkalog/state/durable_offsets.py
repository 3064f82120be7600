"""Durable offsets for other processes: a file that a writer keeps up to date after each sync.

A process that follows a log (`kafkalog.followers`) sees the appended bytes, but not whether the
disk has them: only the writer knows that. So the writer keeps the file `.kafkalog_live` in the
directory of its lock, with a slot for each partition, and writes a slot after a sync of the log,
and before a truncation. A commit of many logs writes their slots together. The file is written by
`pwrite`, and not through a mapping, so that a full or failing disk is an error and no signal; the
write also wakes followers that watch the directory. Readers map nothing either.

The file is advice for readers of this boot, and nothing else. No recovery reads it, it is never
synced, and a broker ignores it. A reader believes it only while all of this is true:

  * the header names the cache of the system and the inode of the file: not after a power cut, a
    boot or a mount, and not in a copy;
  * the process with the lock of the directory has the start time of the header: not after the
    writer has ended, also if another process, or a broker, has the directory then;
  * the name is still that of the file that is open.

`.kafkalog_live`, big-endian, a header of 64 bytes and slots of 64 bytes:

    magic    8  "kafkalog"               partition  16  digest of name and inode of its directory
    version  1  1                        offset      8  everything below it is on the disk
    zero     7                           generation  8  other after each truncation and deletion
    cache    8  digest of cache, inode   zero       28
    started  8  ticks from boot to the   crc         4  CRC-32C of the 60 bytes before
                start of the writer
    zero    28
    crc      4  CRC-32C of the 60 bytes before

A slot of zeros is free. A slot that is read during its write fails its checksum: it has no offset,
and the end of that write wakes the reader again.

A generation shows a reader that an offset that it has read before no longer describes the same
records. The order of a truncation is: a lower offset with another generation, then the removal of
the first record. So a reader that finds the same slot before and after it has read records, below
the offset, has read records that are on the disk.

The file is removed when its writer closes the directory, and before a writer opens the directory,
also after a crash. Crash points: at any time the file stays, and is not believed. The writer gives
the file up if it cannot be written; readers then use the recovery point, which is lower.

Thread-safety: `DurableOffsets` from any thread, under its own lock; `DurableOffsetsReader` from one
thread at a time.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import struct
import threading
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final, NamedTuple

from kafkalog._core.crc32c import value as crc32c
from kafkalog._engine.durable_slots import DurableSlot, SlotImage
from kafkalog.files.filesystem import FileFacts, FileHandle, FileSystem
from kafkalog.files.mounts import file_in_cache
from kafkalog.files.names import DURABLE_OFFSETS, LOCK_FILE
from kafkalog.files.processes import own_start_ticks, start_ticks

__all__ = [
    "DurableOffset",
    "DurableOffsets",
    "DurableOffsetsReader",
    "partition_digest",
    "remove_durable_offsets",
]

logger = logging.getLogger(__name__)

_MAGIC: Final = b"kafkalog"
_VERSION: Final = 1
_HEADER: Final = struct.Struct(">8sB7s8sQ28s")
_SLOT: Final = struct.Struct(">16sqq28s")
_SUM: Final = struct.Struct(">I")
_SIZE: Final = _SLOT.size + _SUM.size
_FREE: Final = bytes(_SIZE)
# Compared at once; few slots change between two looks.
_COMPARED_BYTES: Final = 64 * _SIZE
# Slots between two that are written together: 1 KiB takes less than another call.
_GAP_MAX: Final = 16
# Slots of a file that are read; a larger file is not one of ours.
_SLOTS_MAX: Final = 1 << 20


class DurableOffset(NamedTuple):
    """
    Content of a slot.

    Attributes:
        offset: everything below it is on the disk.
        generation: a number that changes with each truncation, and with each incarnation.
    """

    offset: int
    generation: int


def partition_digest(directory: Path, facts: FileFacts) -> bytes:
    """Return the key of a partition directory: another directory of its name has another key."""
    named = facts.file_id.to_bytes(16, "big") + directory.name.encode()
    return hashlib.blake2b(named, digest_size=16).digest()


def remove_durable_offsets(filesystem: FileSystem, directory: Path) -> None:
    """Remove the file of an earlier writer, which is not believed; an error is logged only."""
    path = directory / DURABLE_OFFSETS
    try:
        if filesystem.stat(path) is not None:
            filesystem.unlink(path)
    except OSError as error:
        logger.info("%s stays, without an effect: %s", path, error)


def _with_sum(content: bytes) -> bytes:
    return content + _SUM.pack(crc32c(content))


def _slot_bytes(digest: bytes, published: DurableOffset) -> bytes:
    return _with_sum(_SLOT.pack(digest, published.offset, published.generation, b""))


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield ranges, as first and end, that have the ascending numbers and few others."""
    if not numbers:
        return
    first = end = numbers[0]
    for number in numbers:
        if number - end > _GAP_MAX:
            yield first, end
            first = number
        end = number + 1
    yield first, end


class _Slot(NamedTuple):
    """Slot of a partition, and its key."""

    live: DurableSlot
    digest: bytes


class DurableOffsets:
    """
    The file of durable offsets of one directory; its writer owns it.

    It is created by the first `publish`. Errors of the disk are logged, and end the publication: no
    sync fails because of it.

    Args:
        filesystem: the disk.
        directory: the directory whose lock this process has.

    Thread-safety: every method from any thread.
    """

    def __init__(self, filesystem: FileSystem, directory: Path) -> None:
        self.path = directory / DURABLE_OFFSETS
        self._filesystem = filesystem
        self._directory = directory
        self._process = os.getpid()
        self._guard = threading.Lock()
        self._image = SlotImage(self._guard)
        self._handle: FileHandle | None = None
        self._is_ended = False
        self._generation = 0
        # By name of the partition directory.
        self._slots: dict[str, _Slot] = {}
        self._free: list[int] = []

    def __repr__(self) -> str:
        state = "ended" if self._is_ended else f"{len(self._slots)} partitions"
        return f"<DurableOffsets {state}: {self.path}>"

    def publish(
        self, directory: Path, offset: int, *, is_lowered: bool = False
    ) -> DurableSlot | None:
        """
        Publish the durable offset of a partition, before a caller of its sync continues.

        Args:
            directory: the partition directory.
            offset: everything below it is on the disk.
            is_lowered: whether records above the offset are going to be removed.

        Returns:
            the slot, which takes offsets of commits of many logs; None if the partition has none.
        """
        if self._is_inherited:
            return None
        with self._guard:
            if self._is_ended:
                return None
            slot = self._slots.get(directory.name)
            if slot is None and is_lowered:
                # Readers use the recovery point, which the truncation lowers as well.
                return None
            try:
                if slot is None:
                    return self._add(directory, offset)
                number = slot.live.number
                if is_lowered:
                    published = DurableOffset(offset, self._next_generation())
                    self._image.set(number, _slot_bytes(slot.digest, published))
                else:
                    self._image.set_offset(number, offset)
                if is_lowered or not self._image.collect(number):
                    self._write(number, number + 1)
            except OSError as error:
                self._give_up(error)
                return None
            return slot.live

    @contextlib.contextmanager
    def published_together(self) -> Iterator[None]:
        """
        Publish at the end of the context what this thread publishes in it, by few writes.

        A thread that waits for one of the logs may continue before that: a follower then sees the
        records later. A lowered offset is still published at once, and so is what other threads
        publish.
        """
        if self._is_inherited:
            yield
            return
        with self._guard:
            is_collector = self._image.begin_collection()
        try:
            yield
        finally:
            if is_collector:
                with self._guard:
                    self._end_collection()

    def remove(self, name: str) -> None:
        """Remove a partition, before its directory is renamed; `name` is that of the directory."""
        if self._is_inherited:
            return
        with self._guard:
            found = self._slots.pop(name, None)
            if found is None or self._handle is None:
                return
            number = found.live.number
            found.live.retire()
            self._free.append(number)
            self._image.set(number, _FREE)
            try:
                self._write(number, number + 1)
            except OSError as error:
                self._give_up(error)

    def close(self) -> None:
        """Remove the file: the directory is closed. Idempotent; does nothing in a forked child."""
        if self._is_inherited:
            return
        with self._guard:
            if not self._is_ended:
                self._end()

    @property
    def _is_inherited(self) -> bool:
        """True in a forked child: a thread of the parent may have had the guard at the fork."""
        return self._process != os.getpid()

    def _next_generation(self) -> int:
        self._generation += 1
        return self._generation

    def _add(self, directory: Path, offset: int) -> DurableSlot | None:
        """Add a partition; its slot is new, or that of a partition that was removed."""
        facts = self._filesystem.stat(directory)
        if facts is None or (self._handle is None and not self._create()):
            return None
        number = self._free.pop() if self._free else self._image.slot_count
        published = DurableOffset(offset, self._next_generation())
        digest = partition_digest(directory, facts)
        self._image.set(number, _slot_bytes(digest, published))
        made = DurableSlot(self._image, number)
        self._slots[directory.name] = _Slot(made, digest)
        self._write(number, number + 1)
        return made

    def _write(self, first: int, end: int) -> None:
        """Write slots."""
        assert self._handle is not None
        with memoryview(self._image.content) as image:
            self._handle.pwrite(image[_SIZE * first : _SIZE * end], _SIZE * (1 + first))

    def _end_collection(self) -> None:
        waiting = self._image.end_collection()
        if self._handle is None or self._is_inherited:
            return
        try:
            for first, end in _runs(waiting):
                self._write(first, end)
        except OSError as error:
            self._give_up(error)

    def _create(self) -> bool:
        """Create the file; return False, and end, where no reader could believe it."""
        filesystem = self._filesystem
        cache_id, started = filesystem.cache_id(self._directory), own_start_ticks()
        holder = filesystem.lock_holder(self._directory / LOCK_FILE)
        if not cache_id or started is None or holder != self._process:
            self._is_ended = True
            return False
        self._handle = filesystem.create_new(self.path)
        cache = file_in_cache(cache_id, filesystem.stat(self.path))
        header = _HEADER.pack(_MAGIC, _VERSION, b"", cache, started, b"")
        self._handle.pwrite(_with_sum(header), 0)
        return True

    def _give_up(self, error: OSError) -> None:
        """End the publication: no reader may believe an offset that could not be lowered."""
        logger.warning("%s is given up, followers see durable records later: %s", self.path, error)
        self._end()

    def _end(self) -> None:
        handle, self._handle = self._handle, None
        self._is_ended = True
        self._slots.clear()
        self._image.clear()
        if handle is None:
            return
        # The first of them that succeeds is enough.
        with contextlib.suppress(OSError):
            self._filesystem.unlink(self.path)
        with contextlib.suppress(OSError):
            handle.truncate(0)
        handle.close()


class DurableOffsetsReader:
    """
    Reader of the durable offsets of one directory, in any process.

    Args:
        filesystem: the disk.
        directory: the directory with the lock of the writer.

    Thread-safety: one thread at a time.
    """

    def __init__(self, filesystem: FileSystem, directory: Path) -> None:
        self.path = directory / DURABLE_OFFSETS
        self._filesystem = filesystem
        self._directory = directory
        self._lock_path = directory / LOCK_FILE
        self._handle: FileHandle | None = None
        self._holder: int | None = None
        self._file_id = 0
        self._started = 0
        self._content = b""
        self._offsets: dict[bytes, tuple[int, DurableOffset]] = {}

    @property
    def is_published(self) -> bool:
        """True if a writer was publishing at the last `refresh`."""
        return self._handle is not None

    def refresh(self) -> AbstractSet[bytes] | None:
        """
        Read what has changed since the last call.

        Returns:
            the digests of partitions whose slot is another one; None if it may be any, because
            another writer publishes, or none.

        Raises:
            OSError: the disk refused.
        """
        if self._handle is None:
            self._open()
            return None if self._handle is not None else frozenset()
        changed = self._read()
        # After the read: what was read was published while the writer had the lock.
        if self._is_current():
            return changed
        self.close()
        self._open()
        return None

    def verify_writer(self) -> None:
        """
        Let the next `refresh` compare the start time of the writer again.

        Between two calls a process with its number counts as the writer.
        """
        self._holder = None

    def get(self, digest: bytes) -> DurableOffset | None:
        """Return what was published for a partition, None for one without a slot."""
        found = self._offsets.get(digest)
        return None if found is None else found[1]

    def is_unchanged(self, digest: bytes, published: DurableOffset) -> bool:
        """
        Return whether records below a published offset, read by now, were on the disk.

        Raises:
            OSError: the disk refused.
        """
        found = self._offsets.get(digest)
        if self._handle is None or found is None:
            return False
        slot = _parse_slot(self._handle.pread(_SIZE, _SIZE * (1 + found[0])))
        return (
            slot is not None
            and slot[0] == digest
            and slot[1].generation == published.generation
            and self._is_current()
        )

    def close(self) -> None:
        """Close the file."""
        handle, self._handle = self._handle, None
        self._content, self._holder = b"", None
        self._offsets.clear()
        if handle is not None:
            handle.close()

    def _open(self) -> None:
        filesystem = self._filesystem
        facts = filesystem.stat(self.path)
        if facts is None or facts.is_directory:
            return
        try:
            handle = filesystem.open(self.path)
        except FileNotFoundError:
            return
        self._handle, self._file_id = handle, facts.file_id
        header = handle.pread(_SIZE, 0)
        if len(header) == _SIZE and _SUM.unpack_from(header, _HEADER.size)[0] == crc32c(
            header[: _HEADER.size]
        ):
            magic, version, zero, cache, started, zeros = _HEADER.unpack_from(header)
            self._started = started
            expected = file_in_cache(filesystem.cache_id(self._directory), facts)
            has_format = (magic, version) == (_MAGIC, _VERSION) and not any(zero + zeros)
            if has_format and cache == expected and any(cache):
                self._read()
                if self._is_current():
                    return
        self.close()

    def _is_current(self) -> bool:
        """Return whether the writer of the open file publishes there still."""
        facts = self._filesystem.stat(self.path)
        if facts is None or facts.file_id != self._file_id:
            return False
        holder = self._filesystem.lock_holder(self._lock_path)
        if holder is None:
            return False
        if holder != self._holder:
            if start_ticks(holder) != self._started:
                return False
            self._holder = holder
        return True

    def _read(self) -> AbstractSet[bytes]:
        assert self._handle is not None
        size = min(self._handle.size(), _SIZE * (1 + _SLOTS_MAX)) - _SIZE
        content = self._handle.pread(max(size - size % _SIZE, 0), _SIZE)
        before, self._content = self._content, content
        changed: set[bytes] = set()
        for start in range(0, max(len(content), len(before)), _COMPARED_BYTES):
            end = start + _COMPARED_BYTES
            if content[start:end] != before[start:end]:
                for position in range(start, min(end, max(len(content), len(before))), _SIZE):
                    changed |= self._update(
                        position // _SIZE,
                        before[position : position + _SIZE],
                        content[position : position + _SIZE],
                    )
        return changed

    def _update(self, number: int, before: bytes, fresh: bytes) -> set[bytes]:
        """Apply the change of a slot; return the partitions that it concerns."""
        if before == fresh:
            return set()
        changed: set[bytes] = set()
        old = before[:16]
        found = self._offsets.get(old)
        if found is not None and found[0] == number:
            del self._offsets[old]
            changed.add(old)
        slot = _parse_slot(fresh)
        if slot is not None:
            digest, published = slot
            self._offsets[digest] = number, published
            changed.add(digest)
        return changed


def _parse_slot(content: bytes) -> tuple[bytes, DurableOffset] | None:
    """Return digest and content of a slot; None if it is free, or was read during a write."""
    if len(content) != _SIZE or content == _FREE:
        return None
    digest, offset, generation, zeros = _SLOT.unpack_from(content)
    (checksum,) = _SUM.unpack_from(content, _SLOT.size)
    if checksum != crc32c(content[: _SLOT.size]) or offset < 0 or any(zeros):
        return None
    return digest, DurableOffset(offset, generation)
