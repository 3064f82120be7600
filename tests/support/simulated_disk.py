"""A disk in memory that loses power, fails and runs full, as a `kafkalog.files` FileSystem.

The fault model
---------------
The disk is a strict reading of POSIX; no help of a particular file system is assumed.

*Contents.* A file consists of sectors of 512 bytes and a length. Until `sync` of the file, a crash
leaves each sector as it was after any one of the operations that touched it since the last sync, or
as it was at that sync, independently of all other sectors; never a mixture of moments inside one
sector. The length is the one of any of those moments, or a sector border in between. So writes
arrive in any order, torn at sectors, with the length ahead of the data (zeros) or below it (cut),
and truncations may be lost. `sync` makes bytes and length durable; it does nothing for the name.

*Names.* Creation, removal and rename become durable with `sync_directory` of the directory; until
then each is lost or kept independently of the others and of the contents, so that a synced file may
have no name, and a name an empty file. A rename is atomic: all of it or nothing. A change of a name
survives only together with earlier unsynced changes of the same name, since what it found there
would otherwise have to be made up. A directory that has lost its name takes what is in it along.

*Failed syncs.* A `sync` that raised calls the dirty bytes of the file clean. Reads and mappings
show them still, a crash may keep any of them or none, and no later sync makes them durable, however
successful it is and in any thread: code that retries and believes the answer is found out, and
so is code that closes the file, opens it again and believes what it reads. Only sectors that are
written once more after the failure come under the next sync, and not even those in a block of 4 KiB
whose first write failed: it stays unwritten, as on ext4, and whatever is written to it and synced
later is zeros on the disk. It takes new blocks to end that: a truncation below it, another file, or
the eviction of its page. With `keeps_unwritten` set to False, as on XFS, sectors that are written
again are enough. `is_stored` compares reads with the disk itself; where `reads_past_cache` is False
it returns False. Lengths that were set by truncation, and names, are otherwise: a file system
with a journal loses no change of its structure, or stops for good. A failed `sync` or
`sync_directory` leaves them in danger until the next that succeeds.

*Syncs of all.* `open_filesystem_sync` gives an object whose `sync` makes durable, in one step, all
contents and names that came before it. Where it fails, the write-back of every dirty file has
failed. It raises each failed sync or write-back of any file since it was opened, once, whatever the
syncs of that file raise. With `syncs_all` set to False there is none.

*Failed write-backs.* `fail_write_back` does the same in the background: the error waits with the
file and is raised once, by the next `sync` through any handle, also one opened later. `evict` drops
clean bytes: reads show the disk again, and an unreported error is lost with the pages. If
`errors_are_kept` is False, such errors are never raised.

*Kills.* `killed` returns the disk as the next process of the same boot finds it: nothing that was
written is lost, locks are gone, and the old process can do nothing more. `fail_at(kills=True)`
kills it within the call that fails, before the error is handled.

*Reads* of a sector fail with EIO from `fail_reads` on until `heal_reads`. A mapping over such a
sector is refused with EIO when it is made: on a machine it is made, and touching the page fails.

*Mappings* show the present content, live. Truncating a file below a living mapping is an
AssertionError: nothing of ours does that.

*Pages.* Where `maps_pages` is set, mappings are made by the system, of memory. Then a file may
shrink below one, as by the hand of another process, and a sector that cannot be read is found when
its page is touched: the page, and later pages, are lost to the mapping. For one thread.

*Space.* With `capacity_bytes`, each sector that was written takes 512 bytes; holes take none. A
write that does not fit writes what fits and raises ENOSPC.

*Not modelled:* sectors that rot, half-written sectors, renames torn in two, loss of synced data.
Modification times survive crashes as they are. Everything is deterministic by seed.

How a test uses it
------------------
`crash_at(n)` lets the n-th changing call raise `PowerCut` before it has any effect, and every call
after it; then `crash_states()` yields new disks, each with one legal set of survivors, to reopen
on. What the call at n would have done in part is covered by the states at n + 1. `fail_at(n,
errno)` lets the n-th call fail, once. Counting starts at the moment of the request, at 1.

Thread-safety: one lock around every call, so readers and a writer in threads see one disk.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import threading
from builtins import list as List  # noqa: N812 - the disk has a method called list
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from typing_extensions import Buffer

from kafkalog.clock import Clock
from kafkalog.files.errors import ShortFileError
from kafkalog.files.filesystem import (
    FileExtent,
    FileFacts,
    FileHandle,
    FileLock,
    FilesystemSync,
)
from tests.support.disk_crashes import CrashChoice, crash_choices, survivors
from tests.support.disk_faults import (
    MUTATING,
    SYNCING,
    Fault,
    FaultyCalls,
    Killed,
    PowerCut,
    disk_error,
)
from tests.support.disk_images import (
    SECTOR_BYTES,
    NameOperation,
    Node,
    SimulatedDirectory,
    SimulatedFile,
    copy_tree,
    parts_of,
    walk,
    with_foundations,
)

__all__ = [
    "MUTATING",
    "SYNCING",
    "CrashChoice",
    "Killed",
    "PowerCut",
    "SimulatedDisk",
    "SimulatedFileHandle",
]


_CACHES = itertools.count(1)


class SimulatedDisk(FaultyCalls):
    """
    A FileSystem in memory; the root directory exists, all paths count from it.

    Args:
        capacity_bytes: space for contents; None if unlimited. May be set at any time.
        clock: source of modification times; without one each change is a millisecond after the
            one before.

    Attributes:
        errors_are_kept: whether the next sync raises the error of a failed write-back.
        keeps_unwritten: whether blocks whose first write failed stay unwritten; of files that are
            made from here on.
        reads_past_cache: whether `is_stored` can read the disk.
        syncs_all: whether `open_filesystem_sync` returns something.
        maps_pages: whether mappings lose pages, instead of being refused; see above.
        cache: the value of `cache_id`: the same after a kill, another after a crash; may be empty.
    """

    def __init__(self, *, capacity_bytes: int | None = None, clock: Clock | None = None) -> None:
        super().__init__()
        self.capacity_bytes = capacity_bytes
        self.errors_are_kept = True
        self.keeps_unwritten = True
        self.reads_past_cache = True
        self.maps_pages = False
        self.syncs_all = True
        # Number of failed write-backs.
        self.failed_writes = 0
        self.cache = next(_CACHES).to_bytes(8, "big")
        self._clock = clock
        self._guard = threading.RLock()
        self._root = SimulatedDirectory()
        self._sequence = 0
        self._name_operations: list[NameOperation] = []
        self._locked: set[SimulatedFile] = set()
        # Contents that have, or had, a name: those with unsynced operations are looked for here.
        self._files: set[SimulatedFile] = set()

    def __repr__(self) -> str:
        return f"<SimulatedDisk {sum(self.calls.values())} calls{' off' if self._is_off else ''}>"

    @property
    def used_bytes(self) -> int:
        """The space of all files."""
        with self._guard:
            return self._used_sectors() * SECTOR_BYTES

    # Crashes.

    def unsynced(self) -> List[tuple[int, str]]:
        """Return number and description of each operation that a crash may take, in order."""
        operations = [(change.sequence, change.description) for change in self._name_operations]
        names = {id(node): path for path, node in walk(self._root)}
        for file in self._pending_files():
            name = names.get(id(file), "(no name)")
            for change in file.pending:
                what = "truncate" if change.data is None else f"write {change.size} bytes"
                operations.append((change.sequence, f"{what} at {change.position} of {name}"))
        return sorted(operations)

    def crash(self, choice: CrashChoice | None = None) -> SimulatedDisk:
        """Return the disk as the next start finds it; this one stays as it is. Locks are gone."""
        choice = CrashChoice("nothing") if choice is None else choice
        with self._guard:
            pending = self._pending_files()
            return self._with_survivors(*survivors(choice, self._name_operations, pending))

    def crash_states(
        self, limit: int = 64, seed: int = 0, *, beyond: int = 0
    ) -> Iterator[tuple[CrashChoice, SimulatedDisk]]:
        """
        Yield up to `limit` different states after a crash, the telling ones first.

        Those that a limit of `beyond` gives count, but are left out.
        """
        others = self.crash_states(beyond, seed) if beyond else ()
        seen = {disk.fingerprint() for _, disk in others}
        repeats = 0
        count = len(seen)
        for choice in crash_choices(len(self.unsynced()), limit, seed):
            disk = self.crash(choice)
            fingerprint = disk.fingerprint()
            if fingerprint in seen:
                repeats += 1
                if choice.kind == "random" and repeats > limit:
                    return
                continue
            repeats = 0
            seen.add(fingerprint)
            yield choice, disk
            count += 1
            if count >= limit:
                return

    def killed(self) -> SimulatedDisk:
        """Return the disk for the next process of this boot; to the present one it is off."""
        with self._guard:
            self._is_off = True
            disk = SimulatedDisk(capacity_bytes=self.capacity_bytes, clock=self._clock)
            self._give_nature(disk)
            disk.cache = self.cache
            disk._root, disk._files = self._root, self._files
            disk._sequence, disk._name_operations = self._sequence, self._name_operations
            return disk

    def write_back(self, path: Path) -> None:
        """Let the background write-back of a file succeed, without a word to anybody."""
        with self._guard:
            self._file(path).sync()

    def fail_write_back(self, path: Path) -> None:
        """Let the background write-back of a file fail."""
        with self._guard:
            self._fail_write_back(self._file(path))

    def _fail_write_back(self, file: SimulatedFile) -> None:
        self.failed_writes += 1
        file.fail_write_back()
        file.has_unseen_error &= self.errors_are_kept

    def evict(self, path: Path) -> None:
        """Let the page cache forget what is clean of a file."""
        with self._guard:
            self._file(path).evict(self._next_sequence())

    def fail_reads(self, path: Path, position: int) -> None:
        """Let reads of the sector that holds a position fail."""
        with self._guard:
            file = self._file(path)
            file.unreadable.add(position // SECTOR_BYTES)
            file.renew_pages()

    def heal_reads(self, path: Path) -> None:
        """Let all sectors of a file be read again."""
        with self._guard:
            file = self._file(path)
            file.unreadable.clear()
            file.renew_pages()

    def _with_survivors(
        self, names: Sequence[NameOperation], content_of: Callable[[SimulatedFile], bytes]
    ) -> SimulatedDisk:
        entries: dict[int, dict[str, Node]] = {}

        def entries_of(directory: SimulatedDirectory) -> dict[str, Node]:
            return entries.setdefault(id(directory), dict(directory.durable))

        for operation in names:
            operation.apply(entries_of)
        disk = SimulatedDisk(capacity_bytes=self.capacity_bytes, clock=self._clock)
        self._give_nature(disk)
        disk._root = copy_tree(self._root, entries_of, content_of)
        disk._sequence = self._sequence
        disk._files = {node for _, node in walk(disk._root) if isinstance(node, SimulatedFile)}
        return disk

    def _give_nature(self, disk: SimulatedDisk) -> None:
        """Let another disk be of the same kind as this one."""
        disk.errors_are_kept = self.errors_are_kept
        disk.keeps_unwritten = self.keeps_unwritten
        disk.reads_past_cache = self.reads_past_cache
        disk.syncs_all = self.syncs_all

    def fingerprint(self) -> bytes:
        """Return a digest of all names and contents as they are now."""
        digest = hashlib.blake2b(digest_size=16)
        for path, content in self.snapshot().items():
            digest.update(f"{path}\0{-1 if content is None else len(content)}\0".encode())
            digest.update(content or b"")
        return digest.digest()

    def snapshot(self) -> dict[str, bytes | None]:
        """Return the present content of every file by path; None for a directory."""
        with self._guard:
            return {
                path: bytes(node.data) if isinstance(node, SimulatedFile) else None
                for path, node in walk(self._root)
            }

    # The file system.

    def open(self, path: Path, *, create: bool = False, write: bool = False) -> FileHandle:
        with self._guard:
            return SimulatedFileHandle(self, path, self._open_file(path, create), create or write)

    def _open_file(self, path: Path, create: bool) -> SimulatedFile:
        node = self._find(path)
        self.enter_call("create" if create and node is None else "open", path)
        if isinstance(node, SimulatedDirectory):
            raise disk_error(errno.EISDIR, path)
        if node is None:
            parent, name = self._parent(path)
            if not create:
                raise disk_error(errno.ENOENT, path)
            node = SimulatedFile(modified_ms=self._now_ms(), keeps_unwritten=self.keeps_unwritten)
            self._files.add(node)
            self._change_names(f"create {path}", (parent, name, node))
        return node

    def create_new(self, path: Path) -> FileHandle:
        with self._guard:
            if self._find(path) is not None:
                self.unlink(path)
            return SimulatedFileHandle(self, path, self._open_file(path, create=True), True)

    def stat(self, path: Path) -> FileFacts | None:
        with self._guard:
            self.enter_call("stat", path)
            node = self._find(path)
            if node is None:
                return None
            if isinstance(node, SimulatedDirectory):
                return FileFacts(0, node.modified_ms, is_directory=True)
            return FileFacts(len(node.data), node.modified_ms, False, node.file_id)

    def is_link(self, path: Path) -> bool:
        """Return False: this disk has no links."""
        return False

    def change_mark(self, path: Path) -> tuple[int, ...] | None:
        """Return None, as for an unknown change time: a test may stop the clock."""
        return None

    def list(self, directory: Path) -> List[str]:
        with self._guard:
            self.enter_call("list", directory)
            return sorted(self._directory(directory).entries)

    def extents(self, directory: Path, suffix: str) -> dict[str, FileExtent]:
        with self._guard:
            self.enter_call("list", directory)
            return {
                name: FileExtent(0, refusal="a directory")
                if isinstance(node, SimulatedDirectory)
                else FileExtent(len(node.data), has_hole=node.has_hole())
                for name, node in self._directory(directory).entries.items()
                if name.endswith(suffix)
            }

    def rename(self, source: Path, target: Path) -> None:
        with self._guard:
            self.enter_call("rename", source)
            source_parent, source_name = self._parent(source)
            target_parent, target_name = self._parent(target)
            node = source_parent.entries.get(source_name)
            replaced = target_parent.entries.get(target_name)
            if node is None:
                raise disk_error(errno.ENOENT, source)
            if node is replaced:
                return
            if isinstance(node, SimulatedDirectory):
                if PurePosixPath(source) in PurePosixPath(target).parents:
                    raise disk_error(errno.EINVAL, target)
                if isinstance(replaced, SimulatedFile):
                    raise disk_error(errno.ENOTDIR, target)
                if replaced is not None and replaced.entries:
                    raise disk_error(errno.ENOTEMPTY, target)
            elif isinstance(replaced, SimulatedDirectory):
                raise disk_error(errno.EISDIR, target)
            self._change_names(
                f"rename {source} to {target}",
                (source_parent, source_name, None),
                (target_parent, target_name, node),
            )

    def unlink(self, path: Path) -> None:
        with self._guard:
            self.enter_call("unlink", path)
            parent, name = self._parent(path)
            node = parent.entries.get(name)
            if node is None:
                raise disk_error(errno.ENOENT, path)
            if isinstance(node, SimulatedDirectory):
                raise disk_error(errno.EISDIR, path)
            self._change_names(f"unlink {path}", (parent, name, None))

    def make_directory(self, path: Path) -> None:
        with self._guard:
            self.enter_call("make_directory", path)
            parent, name = self._parent(path)
            if name in parent.entries:
                raise disk_error(errno.EEXIST, path)
            node = SimulatedDirectory(modified_ms=self._now_ms())
            self._change_names(f"make directory {path}", (parent, name, node))

    def remove_directory(self, path: Path) -> None:
        with self._guard:
            self.enter_call("remove_directory", path)
            directory = self._directory(path)
            if directory.entries:
                raise disk_error(errno.ENOTEMPTY, path)
            parent, name = self._parent(path)
            self._change_names(f"remove directory {path}", (parent, name, None))

    def sync_directory(self, directory: Path) -> None:
        with self._guard:
            node = self._directory(directory)
            if self.enter_call("sync_directory", directory):
                return
            durable = with_foundations(self._name_operations, lambda change: change.touches(node))
            for operation in durable:
                operation.apply(lambda changed: changed.durable)
            kept = set(map(id, durable))
            self._name_operations = [
                change for change in self._name_operations if id(change) not in kept
            ]

    def open_notifications(self) -> None:
        """Return None: there is no other process."""

    def open_filesystem_sync(self, directory: Path) -> FilesystemSync | None:
        with self._guard:
            self._directory(directory)
            is_offered = self.syncs_all and self.errors_are_kept
            return SimulatedFilesystemSync(self, directory) if is_offered else None

    def _sync_all(self, directory: Path) -> None:
        """Make everything durable that came so far; a failure is one of every dirty file."""
        try:
            if self.enter_call("sync_filesystem", directory):
                return
        except (OSError, Killed):
            for file in self._pending_files():
                self._fail_write_back(file)
            raise
        for file in self._pending_files():
            file.sync()
        for operation in self._name_operations:
            operation.apply(lambda changed: changed.durable)
        self._name_operations = []

    def keeps_errors(self, directory: Path) -> bool:
        return self.errors_are_kept

    def cache_id(self, directory: Path) -> bytes:
        return self.cache

    def is_stored(self, path: Path, position: int) -> bool:
        with self._guard:
            self.enter_call("is_stored", path)
            return self.reads_past_cache and self._file(path).is_stored(position)

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        with self._guard:
            self.enter_call("set_modified_ms", path)
            node = self._find(path)
            if node is None:
                raise disk_error(errno.ENOENT, path)
            node.modified_ms = modified_ms

    def lock(self, path: Path) -> FileLock | None:
        with self._guard:
            file = self._open_file(path, create=True)
            if file in self._locked:
                return None
            self._locked.add(file)
            return _SimulatedLock(self, file)

    def lock_holder(self, path: Path) -> int | None:
        return None

    def make_durable(self, *directories: Path | str) -> None:
        """Create directories, with those above them, and sync all names and contents: a start."""
        for directory in map(Path, directories):
            for path in reversed((directory, *directory.parents)):
                if self._find(path) is None:
                    self.make_directory(path)
        self.sync_directory(Path("/"))
        for name, node in walk(self._root):
            if isinstance(node, SimulatedFile):
                node.sync()
            else:
                self.sync_directory(Path(name))
        self.calls.clear()

    # Inside.

    def _now_ms(self) -> int:
        return self._sequence if self._clock is None else self._clock.now_ms()

    def _pending_files(self) -> List[SimulatedFile]:
        """Return the files with unsynced operations, in the order of their first one."""
        pending = [file for file in self._files if file.pending]
        return sorted(pending, key=lambda file: file.pending[0].sequence)

    def _next_sequence(self) -> int:
        self._sequence += 1
        return self._sequence

    def _change_names(
        self, description: str, *changes: tuple[SimulatedDirectory, str, Node | None]
    ) -> None:
        operation = NameOperation(self._next_sequence(), changes, description)
        operation.apply(lambda directory: directory.entries)
        for directory, _, _ in changes:
            directory.modified_ms = self._now_ms()
        self._name_operations.append(operation)

    def _find(self, path: Path | str) -> Node | None:
        return self._find_parts(parts_of(path))

    def _find_parts(self, parts: Sequence[str]) -> Node | None:
        node: Node | None = self._root
        for part in parts:
            if not isinstance(node, SimulatedDirectory):
                return None
            node = node.entries.get(part)
        return node

    def _file(self, path: Path) -> SimulatedFile:
        node = self._find(path)
        if not isinstance(node, SimulatedFile):
            raise disk_error(errno.ENOENT, path)
        return node

    def _directory(self, path: Path) -> SimulatedDirectory:
        return self._directory_at(parts_of(path))

    def _directory_at(self, parts: Sequence[str]) -> SimulatedDirectory:
        node = self._find_parts(parts)
        if isinstance(node, SimulatedDirectory):
            return node
        raise disk_error(errno.ENOENT if node is None else errno.ENOTDIR, Path("/", *parts))

    def _parent(self, path: Path) -> tuple[SimulatedDirectory, str]:
        parts = parts_of(path)
        if not parts:
            raise disk_error(errno.EBUSY, path)
        if len(parts[-1].encode()) > 255:
            raise disk_error(errno.ENAMETOOLONG, path)
        return self._directory_at(parts[:-1]), parts[-1]

    def _used_sectors(self, *unnamed: SimulatedFile) -> int:
        named = {node for _, node in walk(self._root) if isinstance(node, SimulatedFile)}
        return sum(len(node.sectors) for node in named.union(unnamed))

    def _room(self, file: SimulatedFile, position: int, size: int) -> int:
        """Return how many of `size` bytes at `position` fit on the disk."""
        if self.capacity_bytes is None:
            return size
        free = self.capacity_bytes // SECTOR_BYTES - self._used_sectors(file)
        for sector in range(position // SECTOR_BYTES, -(-(position + size) // SECTOR_BYTES)):
            if sector not in file.sectors:
                if free <= 0:
                    return max(0, sector * SECTOR_BYTES - position)
                free -= 1
        return size


class SimulatedFilesystemSync:
    """Syncs of a whole simulated disk, which know the failures that they have raised."""

    def __init__(self, disk: SimulatedDisk, directory: Path) -> None:
        self._disk = disk
        self._directory = directory
        self._seen = disk.failed_writes
        self.is_closed = False

    def covers(self, directory: Path) -> bool:
        """Return True: the disk has one file system."""
        return True

    def sync(self) -> None:
        if self.is_closed:
            raise ValueError(f"{self._directory}: its file system must be open for a sync")
        with self._disk._guard:
            try:
                self._disk._sync_all(self._directory)
                if self._seen != self._disk.failed_writes:
                    raise disk_error(errno.EIO, self._directory)
            finally:
                self._seen = self._disk.failed_writes

    def close(self) -> None:
        self.is_closed = True


class SimulatedFileHandle:
    """One open file of a simulated disk."""

    def __init__(
        self, disk: SimulatedDisk, path: Path, file: SimulatedFile, is_writable: bool
    ) -> None:
        self._disk = disk
        self._path = path
        self._file = file
        self._is_writable = is_writable
        self._closed = False

    @property
    def path(self) -> Path:
        return self._path

    @property
    def closed(self) -> bool:
        return self._closed

    def _enter(self, name: str, *, writing: bool = False) -> Fault | None:
        if self._closed:
            raise ValueError(f"{self._path}: the file is closed")
        if writing and not self._is_writable:
            raise disk_error(errno.EINVAL if name == "truncate" else errno.EBADF, self._path)
        return self._disk.enter_call(name, self._path)

    def fileno(self) -> int:
        raise OSError(errno.EBADF, "a simulated file has no descriptor", str(self._path))

    def size(self) -> int:
        with self._disk._guard:
            self._enter("size")
            return len(self._file.data)

    def pread(self, size: int, position: int) -> bytes:
        with self._disk._guard:
            self._enter("pread")
            if size < 0 or position < 0:
                raise disk_error(errno.EINVAL, self._path)
            self._ensure_readable(position, size)
            return bytes(self._file.data[position : position + size])

    def pread_into(self, target: Buffer, position: int) -> int:
        view = memoryview(target)
        if view.readonly:
            raise TypeError("the target of a read must be writable")
        with self._disk._guard:
            self._enter("pread_into")
            if position < 0:
                raise disk_error(errno.EINVAL, self._path)
            self._ensure_readable(position, view.nbytes)
            data = self._file.data[position : position + view.nbytes]
            if data:
                view.cast("B")[: len(data)] = data
            return len(data)

    def _ensure_readable(self, position: int, size: int) -> None:
        if self._file.unreadable and not self._file.is_readable(position, size):
            raise disk_error(errno.EIO, self._path)

    def next_data(self, position: int) -> int | None:
        with self._disk._guard:
            self._enter("next_data")
            return self._file.next_data(position)

    def pwrite(self, data: Buffer, position: int) -> None:
        self._write("pwrite", memoryview(data).tobytes(), position)

    def pwritev(self, parts: Sequence[Buffer], position: int) -> None:
        self._write("pwritev", b"".join(memoryview(part).tobytes() for part in parts), position)

    def _write(self, name: str, data: bytes, position: int) -> None:
        with self._disk._guard:
            fault = self._enter(name, writing=True)
            if position < 0:
                raise disk_error(errno.EINVAL, self._path)
            error_number = 0
            fitting = self._disk._room(self._file, position, len(data))
            if fitting < len(data):
                data, error_number = data[:fitting], errno.ENOSPC
            if fault is not None:
                data, error_number = data[: fault.short_write_bytes], fault.error_number
            if data:
                self._file.write(self._disk._next_sequence(), position, data)
                self._file.modified_ms = self._disk._now_ms()
            if error_number:
                raise disk_error(error_number, self._path)

    def truncate(self, size: int) -> None:
        with self._disk._guard:
            self._enter("truncate", writing=True)
            if size < 0:
                raise disk_error(errno.EINVAL, self._path)
            self._file.truncate(self._disk._next_sequence(), size)
            self._file.modified_ms = self._disk._now_ms()

    def sync(self) -> None:
        with self._disk._guard:
            if self._is_written("sync"):
                self._file.sync()

    def begin_write_back(self, position: int, size: int) -> None:
        with self._disk._guard:
            self._enter("begin_write_back")

    def drop_cache(self, position: int, size: int) -> None:
        with self._disk._guard:
            self._is_written("drop_cache")

    def _is_written(self, name: str) -> bool:
        """Report, once, an error of the disk, and of a write-back before; False: fake a sync."""
        try:
            if self._enter(name):
                return False
            if self._file.has_unseen_error:
                raise disk_error(errno.EIO, self._path)
        except (OSError, Killed):
            self._file.has_unseen_error = False
            self._file.fail_sync()
            self._disk.failed_writes += 1
            raise
        return True

    def map(self, size: int) -> memoryview:
        with self._disk._guard:
            self._enter("map")
            if size <= 0:
                raise ValueError(f"{self._path}: cannot map {size} bytes")
            if size > len(self._file.data):
                raise ShortFileError(self._path, len(self._file.data), size)
            if self._disk.maps_pages:
                return self._file.map_pages(size, self._path)
            self._ensure_readable(0, size)
            return self._file.map(size)

    def close(self) -> None:
        self._closed = True


class _SimulatedLock:
    """A lock that is gone with the disk's crash."""

    def __init__(self, disk: SimulatedDisk, file: SimulatedFile) -> None:
        self._disk = disk
        self._file: SimulatedFile | None = file

    def release(self) -> None:
        with self._disk._guard:
            if self._file is not None:
                self._disk._locked.discard(self._file)
                self._file = None
