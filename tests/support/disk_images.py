"""The content of a simulated disk: files and directories, durable parts, states after a crash.

Each node keeps its present (volatile) state, the durable one, and the operations in between. A
write carries the whole sectors that it made dirty, as the disk will get them: what the cache held
around it arrives with it. The rules by which a crash chooses are in
`tests.support.simulated_disk`.

Thread-safety: none; the disk's lock is held around every call.
"""

from __future__ import annotations

import errno
import itertools
import math
import mmap
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from random import Random
from typing import Any, Final

from kafkalog._core.mapping import FileMapping
from kafkalog.errors import LogStorageError

SECTOR_BYTES: Final = 512
# A file system allots, and calls written, this much at a time.
BLOCK_BYTES: Final = 4096
SECTORS_OF_BLOCK: Final = BLOCK_BYTES // SECTOR_BYTES


@dataclass(slots=True)
class DataOperation:
    """
    A write (`data`) or a truncation (`data` None) that no sync has covered.

    `position` and `size` are what the caller asked for; `data` goes from sector border to sector
    border, or to the end of the file. `forgotten` is set by a failed sync.
    """

    sequence: int
    position: int
    size: int
    data: bytes | None
    old_size: int
    new_size: int
    forgotten: bool = False

    def apply(self, image: bytearray) -> None:
        if self.data is not None:
            start = self.position - self.position % SECTOR_BYTES
            if len(image) < start:
                _resize(image, start)
            image[start : start + len(self.data)] = self.data
        if self.new_size != self.old_size:
            _resize(image, self.new_size)

    def sectors(self) -> range:
        """Return the sectors whose bytes this operation may change."""
        if self.data is not None:
            start, end = self.position, self.position + self.size
        else:
            start, end = self.new_size, self.old_size
        return range(start // SECTOR_BYTES, -(-max(start, end) // SECTOR_BYTES))

    def blocks(self) -> range:
        """Return the blocks whose bytes this operation may change."""
        sectors = self.sectors()
        return range(sectors.start // SECTORS_OF_BLOCK, -(-sectors.stop // SECTORS_OF_BLOCK))


def _resize(image: bytearray, size: int) -> None:
    if size < len(image):
        del image[size:]
    else:
        image += bytes(size - len(image))


class MappedBytes(bytearray):
    """Memory of one mapping; a separate class because plain bytearrays take no weak reference."""

    __slots__ = ("__weakref__",)


class MappedPages:
    """
    Memory of one mapping that the system has made, of which pages can be lost.

    It is the mapping's origin (`kafkalog.files.mappings`), and lives as long as that.

    Args:
        file: the file.
        path: its name.
        size: how many bytes are mapped.
    """

    def __init__(self, file: SimulatedFile, path: Path, size: int) -> None:
        self.size = size
        self._keeper: weakref.ref[Any] | None = None
        self._file = file
        self._path = path
        self._descriptor = os.memfd_create("simulated")
        weakref.finalize(self, os.close, self._descriptor)
        self.renew()

    def view(self) -> memoryview:
        """Map the memory."""
        return memoryview(FileMapping(self._descriptor, self.size, self))

    def renew(self) -> None:
        """Show what the file has now, without what it lacks or cannot be read."""
        file = self._file
        end = min(self.size, len(file.data))
        for sector in file.unreadable:
            # Other sectors of its page, and those after it, are lost too.
            end = min(end, sector * SECTOR_BYTES // mmap.PAGESIZE * mmap.PAGESIZE)
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, file.data[:end], 0)

    def set_keeper(self, keeper: weakref.ref[Any]) -> None:
        """Set the object that gives the mapping to readers."""
        self._keeper = keeper

    def drop(self, mapping: FileMapping) -> None:
        """See that no later reader is given the mapping."""
        keeper = None if self._keeper is None else self._keeper()
        if keeper is not None:
            keeper.drop_mapping(mapping)

    def to_error(self, mapping: FileMapping, start: int) -> LogStorageError:
        """Return what is raised for bytes from `start` on, of which some were lost."""
        first, end = mapping.lost or (start, start)
        position, path = max(start, first), self._path
        if len(self._file.data) < end:
            return LogStorageError(f"{path}: the file was cut", path=path, position=position)
        return LogStorageError(
            f"{path}: a page cannot be read", errno=errno.EIO, path=path, position=position
        )


# As of inodes, but that none is used again.
_FILE_IDS = itertools.count(1)


class SimulatedFile:
    """Bytes under an inode: present and durable content, pending operations, live mappings."""

    def __init__(
        self, content: bytes = b"", modified_ms: int = 0, *, keeps_unwritten: bool = True
    ) -> None:
        self.data = bytearray(content)
        self.modified_ms = modified_ms
        self.file_id = next(_FILE_IDS)
        self.pending: list[DataOperation] = []
        # Sectors allocated on the disk; holes have none.
        self.sectors = set(range(-(-len(content) // SECTOR_BYTES)))
        # A write-back failed, and no sync has raised the error yet.
        self.has_unseen_error = False
        # Sectors that the disk fails to read.
        self.unreadable: set[int] = set()
        self.keeps_unwritten = keeps_unwritten
        self._durable = bytearray(content)
        # Blocks that a sync or a write-back brought to the disk, and those that none ever can.
        self._written = set(range(-(-len(content) // BLOCK_BYTES)))
        self._unwritten: set[int] = set()
        self._mappings: list[weakref.ref[MappedBytes]] = []
        self._pages: weakref.WeakSet[MappedPages] = weakref.WeakSet()

    # The calls of a file system.

    def write(self, sequence: int, position: int, data: bytes) -> None:
        old_size = len(self.data)
        end = position + len(data)
        if old_size < position:
            _resize(self.data, position)
        self.data[position:end] = data
        first = position - position % SECTOR_BYTES
        dirty = bytes(self.data[first : -(-end // SECTOR_BYTES) * SECTOR_BYTES])
        operation = DataOperation(
            sequence, position, len(data), dirty, old_size, max(old_size, end)
        )
        self.pending.append(operation)
        self.sectors.update(operation.sectors())
        for mapping in self._live_mappings():
            mapped = mapping[position:end]
            if mapped:
                mapping[position : position + len(mapped)] = data[: len(mapped)]
        self.renew_pages()

    def truncate(self, sequence: int, size: int) -> None:
        old_size = len(self.data)
        if size == old_size:
            return
        if any(len(mapping) > size for mapping in self._live_mappings()):
            raise AssertionError(
                f"a file that is mapped is cut to {size} bytes: its readers would die of SIGBUS"
            )
        self.pending.append(DataOperation(sequence, size, 0, None, old_size, size))
        _resize(self.data, size)
        self.renew_pages()
        end = -(-size // SECTOR_BYTES)
        self.sectors = {sector for sector in self.sectors if sector < end}
        blocks = -(-size // BLOCK_BYTES)
        self._unwritten = {block for block in self._unwritten if block < blocks}
        self._written = {block for block in self._written if block < blocks}

    def next_data(self, position: int) -> int | None:
        """Return the first allocated position from there on, None if there is none."""
        for sector in range(position // SECTOR_BYTES, -(-len(self.data) // SECTOR_BYTES)):
            if sector in self.sectors:
                return max(position, sector * SECTOR_BYTES)
        return None

    def has_hole(self) -> bool:
        """Return whether it takes less space on the disk than its length."""
        return len(self.sectors) * SECTOR_BYTES < len(self.data)

    def sync(self) -> None:
        """Make durable what was done since the last sync, failed ones too; the rest is lost."""
        for operation in self.pending:
            if not operation.forgotten:
                self._store(operation, self._durable)
                if operation.data is not None:
                    self._written.update(set(operation.blocks()) - self._unwritten)
        self.pending.clear()

    def _store(self, operation: DataOperation, image: bytearray) -> None:
        """Apply an operation as a disk does on which some blocks stay unwritten."""
        hidden = [
            (start, bytes(image[start : start + BLOCK_BYTES]))
            for start in (block * BLOCK_BYTES for block in self._unwritten_of(operation))
        ]
        operation.apply(image)
        for start, before in hidden:
            after = len(image[start : start + BLOCK_BYTES])
            image[start : start + after] = before[:after].ljust(after, b"\0")

    def _unwritten_of(self, operation: DataOperation) -> set[int]:
        if not self._unwritten or operation.data is None:
            return set()
        return self._unwritten.intersection(operation.blocks())

    def fail_sync(self) -> None:
        """Call clean what is dirty: in the cache it stays, and no later sync will write it."""
        for operation in self.pending:
            if operation.data is not None and not operation.forgotten:
                operation.forgotten = True
                if self.keeps_unwritten:
                    self._unwritten.update(set(operation.blocks()) - self._written)

    def fail_write_back(self) -> None:
        """Fail to write in the background what is dirty; the next sync will report it."""
        self.fail_sync()
        self.has_unseen_error = True

    def evict(self, sequence: int) -> None:
        """Read clean bytes from the disk again; an unreported error is lost with them."""
        size = len(self.data)
        self.pending = [operation for operation in self.pending if not operation.forgotten]
        self.has_unseen_error = False
        # The record that a block is allocated is lost with its page.
        dirty = {block for operation in self.pending for block in operation.blocks()}
        self._unwritten &= dirty
        image = bytearray(self.image_whole())
        if len(image) != size:
            # The length is the inode's, which the failed write did not touch.
            self.pending.append(DataOperation(sequence, size, 0, None, len(image), size))
            _resize(image, size)
        self.data[:] = image
        for mapping in self._live_mappings():
            mapping[:] = image[: len(mapping)]
        self.renew_pages()

    def renew_pages(self) -> None:
        """Let mappings that the system has made show what can be read now."""
        for pages in list(self._pages):
            pages.renew()

    def is_readable(self, position: int, size: int) -> bool:
        """Return whether the disk can read all sectors of a range."""
        end = -(-(position + size) // SECTOR_BYTES)
        return not any(position // SECTOR_BYTES <= sector < end for sector in self.unreadable)

    def is_stored(self, position: int) -> bool:
        """Return whether the disk agrees with reads, from a position on."""
        return self.data[position:] == self._durable[position:]

    def map(self, size: int) -> memoryview:
        for mapping in self._live_mappings():
            if len(mapping) == size:
                return memoryview(mapping).toreadonly()
        mapping = MappedBytes(self.data[:size])
        self._mappings.append(weakref.ref(mapping))
        return memoryview(mapping).toreadonly()

    def map_pages(self, size: int, path: Path) -> memoryview:
        """Return a mapping of which pages are lost where the file is cut, or cannot be read."""
        pages = MappedPages(self, path, size)
        self._pages.add(pages)
        return pages.view()

    def _live_mappings(self) -> list[MappedBytes]:
        if not self._mappings:
            return []
        alive = [mapping for reference in self._mappings if (mapping := reference()) is not None]
        if len(alive) < len(self._mappings):
            self._mappings = [weakref.ref(mapping) for mapping in alive]
        return alive

    # Contents after a crash.

    def image_until(self, sequence: float) -> bytes:
        """Return the content after all pending operations up to a sequence number, in order."""
        image = bytearray(self._durable)
        for operation in self.pending:
            if operation.sequence > sequence:
                break
            self._store(operation, image)
        return bytes(image)

    def image_whole(self) -> bytes:
        """Return the content after all pending operations: the present one, unless a sync failed
        and what it forgot was never written again."""
        return self.image_until(math.inf)

    def image_zero_filled(self) -> bytes:
        """Return the durable content with the length to come: what grew is zeros."""
        image = bytearray(self._durable)
        _resize(image, len(self.image_whole()))
        return bytes(image)

    def image_scattered(self, random: Random) -> bytes:
        """Return the content with each sector, and the length, from a separate moment."""
        versions: dict[int, list[int]] = {}
        for number, operation in enumerate(self.pending):
            for sector in operation.sectors():
                versions.setdefault(sector, [-1]).append(number)
        survivors: dict[int, list[int]] = {}
        for sector, numbers in versions.items():
            survivors.setdefault(random.choice(numbers), []).append(sector)
        working = bytearray(self.image_until(-1))
        result = bytearray(working)
        for number, operation in enumerate(self.pending):
            self._store(operation, working)
            _copy_sectors(working, result, survivors.get(number, ()))
        _resize(result, _some_size(random, len(self._durable), self.pending))
        return bytes(result)

    def image_without(self, operation: DataOperation) -> bytes:
        """Return all operations' content, but what `operation` touched is as it was before it."""
        result = bytearray(self.image_whole())
        whole_size = len(result)
        before = bytearray(self.image_until(operation.sequence - 1))
        _copy_sectors(before, result, operation.sectors())
        # After it others may have moved the end, and a length may be ahead of its data.
        is_last = operation is self.pending[-1]
        _resize(result, operation.old_size if is_last else whole_size)
        return bytes(result)

    def image_only(self, operation: DataOperation) -> bytes:
        """Return the durable content, but what `operation` touched is as it was after it."""
        result = bytearray(self.image_until(-1))
        after = bytearray(self.image_until(operation.sequence))
        _copy_sectors(after, result, operation.sectors())
        _resize(result, operation.new_size)
        return bytes(result)

    def image_torn(self, operation: DataOperation, random: Random) -> bytes:
        """Return the content after the operations before `operation` and a part of that one."""
        result = bytearray(self.image_until(operation.sequence - 1))
        size_before = len(result)
        working = bytearray(result)
        self._store(operation, working)
        sectors = operation.sectors()
        if random.random() < 0.5:
            chosen = list(sectors[: random.randint(0, len(sectors))])
        else:
            chosen = [sector for sector in sectors if random.random() < 0.5]
        _copy_sectors(working, result, chosen)
        _resize(result, _some_size(random, size_before, [operation]))
        return bytes(result)


def _some_size(random: Random, size_before: int, operations: Sequence[DataOperation]) -> int:
    """Return a length that the disk may have: before, after, or at a sector in between."""
    sizes = [size_before, *(operation.new_size for operation in operations)]
    if random.random() < 0.25:
        lower, upper = min(sizes), max(sizes)
        between = range(lower // SECTOR_BYTES + 1, -(-upper // SECTOR_BYTES))
        if between:
            return random.choice(between) * SECTOR_BYTES
    return random.choice(sizes)


def _copy_sectors(source: bytearray, target: bytearray, sectors: Iterable[int]) -> None:
    for sector in sectors:
        start = sector * SECTOR_BYTES
        piece = source[start : start + SECTOR_BYTES]
        piece += bytes(SECTOR_BYTES - len(piece))
        if len(target) < start:
            _resize(target, start)
        target[start : start + SECTOR_BYTES] = piece


@dataclass(eq=False, slots=True)
class SimulatedDirectory:
    """Names under an inode: the present ones, and those that a crash cannot take."""

    entries: dict[str, SimulatedFile | SimulatedDirectory] = field(default_factory=dict)
    durable: dict[str, SimulatedFile | SimulatedDirectory] = field(default_factory=dict)
    modified_ms: int = 0


Node = SimulatedFile | SimulatedDirectory


@dataclass(frozen=True, slots=True)
class NameOperation:
    """A creation, removal or rename that no directory sync has covered: all of it or nothing."""

    sequence: int
    changes: tuple[tuple[SimulatedDirectory, str, Node | None], ...]
    description: str

    def keys(self) -> set[tuple[int, str]]:
        return {(id(directory), name) for directory, name, _ in self.changes}

    def names(self, node: Node) -> bool:
        """Return whether this gives `node` a name."""
        return any(named is node for _, _, named in self.changes)

    def touches(self, directory: SimulatedDirectory) -> bool:
        return any(changed is directory for changed, _, _ in self.changes)

    def apply(self, entries_of: Callable[[SimulatedDirectory], dict[str, Node]]) -> None:
        for directory, name, node in self.changes:
            if node is None:
                entries_of(directory).pop(name, None)
            else:
                entries_of(directory)[name] = node


def without_orphans(
    operations: Iterable[NameOperation], keep: Callable[[NameOperation], bool]
) -> Iterator[NameOperation]:
    """Yield what is kept, leaving out all that builds on a name change which is not kept."""
    lost: set[tuple[int, str]] = set()
    for operation in operations:
        keys = operation.keys()
        if keys & lost or not keep(operation):
            lost |= keys
        else:
            yield operation


def with_foundations(
    operations: list[NameOperation], condition: Callable[[NameOperation], bool]
) -> list[NameOperation]:
    """Return what meets a condition, with earlier changes of the same names that it builds on."""
    needed: set[tuple[int, str]] = set()
    chosen = []
    for operation in reversed(operations):
        keys = operation.keys()
        if condition(operation) or keys & needed:
            needed |= keys
            chosen.append(operation)
    return chosen[::-1]


def copy_tree(
    directory: SimulatedDirectory,
    entries_of: Callable[[SimulatedDirectory], dict[str, Node]],
    content_of: Callable[[SimulatedFile], bytes],
) -> SimulatedDirectory:
    """Return a new, wholly durable tree of the chosen names and contents."""
    copy = SimulatedDirectory(modified_ms=directory.modified_ms)
    for name, node in entries_of(directory).items():
        if isinstance(node, SimulatedDirectory):
            copy.entries[name] = copy_tree(node, entries_of, content_of)
        else:
            copy.entries[name] = SimulatedFile(
                content_of(node), node.modified_ms, keeps_unwritten=node.keeps_unwritten
            )
    copy.durable = dict(copy.entries)
    return copy


def walk(directory: SimulatedDirectory, prefix: str = "") -> Iterator[tuple[str, Node]]:
    """Yield every path under a directory with its node, sorted."""
    for name in sorted(directory.entries):
        node = directory.entries[name]
        yield f"{prefix}/{name}", node
        if isinstance(node, SimulatedDirectory):
            yield from walk(node, f"{prefix}/{name}")


def parts_of(path: Path | str) -> tuple[str, ...]:
    """Return the names that a path has below the root."""
    # A path has been taken apart once already, and this is asked with every call to the disk.
    parts = path.parts if isinstance(path, Path) else PurePosixPath(path).parts
    if ".." in parts:
        raise ValueError(f"{path}: a simulated disk takes no '..'")
    return parts[1:] if parts[:1] == ("/",) else parts
