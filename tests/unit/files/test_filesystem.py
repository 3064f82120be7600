"""Contract of the FileSystem interface, for the POSIX disk and the simulated disk."""

from __future__ import annotations

import array
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkalog.files.errors import ShortFileError
from kafkalog.files.filesystem import FileHandle
from tests.unit.files.conftest import Disk


@pytest.fixture
def handle(disk: Disk) -> FileHandle:
    """Return a new, empty file that is open for writing."""
    return disk.filesystem.open(disk.directory / "file", create=True)


def test_open_missing_file_without_create_raises(disk: Disk) -> None:
    """Neither reading nor writing makes a file; a missing directory is no different."""
    for path in (disk.directory / "file", disk.directory / "none" / "file"):
        with pytest.raises(FileNotFoundError):
            disk.filesystem.open(path)
        with pytest.raises(FileNotFoundError):
            disk.filesystem.open(path, write=True)
    with pytest.raises(FileNotFoundError):
        disk.filesystem.open(disk.directory / "none" / "file", create=True)
    assert [] == disk.filesystem.list(disk.directory)


def test_open_directory_raises_is_a_directory(disk: Disk) -> None:
    """A directory where a file should be is an error at open, not at the first read."""
    for create, write in ((False, False), (False, True), (True, False)):
        with pytest.raises(IsADirectoryError):
            disk.filesystem.open(disk.directory, create=create, write=write)


def test_open_create_of_existing_file_keeps_its_content(disk: Disk, handle: FileHandle) -> None:
    """Opening never truncates, and create means write."""
    handle.pwrite(b"abc", 0)
    again = disk.filesystem.open(handle.path, create=True)
    again.pwrite(b"d", 3)
    assert b"abcd" == handle.pread(10, 0)
    assert 4 == again.size()


def test_pwrite_on_handle_for_reading_raises(disk: Disk, handle: FileHandle) -> None:
    """A reader cannot change the file, whatever it calls."""
    reader = disk.filesystem.open(handle.path)
    changes: list[Callable[[], None]] = [
        lambda: reader.pwrite(b"x", 0),
        lambda: reader.pwritev([b"x"], 0),
        lambda: reader.truncate(5),
    ]
    for change in changes:
        with pytest.raises(OSError, match=r"Bad file descriptor|Invalid argument"):
            change()
    assert 0 == handle.size()


def test_pread_at_the_end_returns_fewer_bytes(handle: FileHandle) -> None:
    """Nothing after the end, a part across the end, everything before it."""
    handle.pwrite(b"0123456789", 0)
    assert b"234" == handle.pread(3, 2)
    assert b"89" == handle.pread(5, 8)
    assert b"" == handle.pread(5, 10)
    assert b"" == handle.pread(5, 1000)
    assert b"" == handle.pread(0, 0)


def test_pread_into_at_the_end_fills_a_part(handle: FileHandle) -> None:
    """Bytes of the target beyond the count stay as they were; item sizes do not matter."""
    handle.pwrite(b"01234567", 0)
    target = bytearray(b"....")
    assert 4 == handle.pread_into(target, 1)
    assert b"1234" == target
    assert 2 == handle.pread_into(target, 6)
    assert b"6734" == target
    assert 0 == handle.pread_into(target, 8)
    numbers = array.array("q", [0])
    assert 8 == handle.pread_into(numbers, 0)
    assert b"01234567" == numbers.tobytes()
    assert 0 == handle.pread_into(bytearray(), 0)
    with pytest.raises((TypeError, BufferError)):
        handle.pread_into(b"readonly", 0)


def test_pwrite_beyond_the_end_leaves_zeros(handle: FileHandle) -> None:
    """The hole reads as zeros; other buffer kinds are written as their bytes."""
    handle.pwrite(b"end", 5)
    assert b"\0\0\0\0\0end" == handle.pread(10, 0)
    handle.pwrite(array.array("i", [-1]), 0)
    handle.pwrite(memoryview(b"_xy_")[1:3], 6)
    assert b"\xff\xff\xff\xff\0exy" == handle.pread(10, 0)
    handle.pwrite(b"", 100)
    assert 8 == handle.size()


def test_pwritev_many_parts_are_written_in_sequence(handle: FileHandle) -> None:
    """More parts than one system call takes, empty ones among them."""
    parts = [bytes([number % 251]) * (number % 5) for number in range(3000)]
    handle.pwritev(parts, 7)
    joined = b"".join(parts)
    assert bytes(7) + joined == handle.pread(len(joined) + 100, 0)
    handle.pwritev([], 0)
    handle.pwritev([b""], 100_000)
    assert 7 + len(joined) == handle.size()


def test_truncate_shortens_and_extends_with_zeros(handle: FileHandle) -> None:
    """Truncated bytes do not come back when the file grows again."""
    handle.pwrite(b"abcdef", 0)
    handle.truncate(2)
    assert b"ab" == handle.pread(10, 0)
    handle.truncate(5)
    assert b"ab\0\0\0" == handle.pread(10, 0)
    handle.truncate(5)
    assert 5 == handle.size()
    with pytest.raises(OSError, match="Invalid argument"):
        handle.truncate(-1)


def test_next_data_skips_holes(handle: FileHandle) -> None:
    """Holes are skipped if the system supports this; data is never skipped."""
    assert handle.next_data(0) is None
    handle.pwrite(b"first", 0)
    handle.pwrite(b"second", 1 << 20)
    handle.truncate(4 << 20)
    assert 3 == handle.next_data(3)
    found = handle.next_data(64 * 1024)
    assert found is not None
    assert 64 * 1024 < found <= 1 << 20
    assert handle.next_data(2 << 20) is None
    assert handle.next_data(8 << 20) is None


def test_map_has_the_file_and_is_read_only(handle: FileHandle) -> None:
    """A mapping has exactly the size asked for, sees later writes, and takes none."""
    handle.pwrite(b"0123456789", 0)
    view = handle.map(8)
    assert b"01234567" == bytes(view)
    assert view.readonly
    with pytest.raises(TypeError):
        view[0] = 1
    handle.pwrite(b"xy", 7)
    handle.pwrite(b"more", 10)
    assert b"0123456x" == bytes(view)


def test_map_after_close_and_unlink_stays_valid(disk: Disk, handle: FileHandle) -> None:
    """A slice keeps the mapping alive, whatever happens to handle and name."""
    handle.pwrite(b"0123456789", 0)
    part = handle.map(10)[3:6]
    handle.close()
    disk.filesystem.unlink(handle.path)
    assert b"345" == bytes(part)


@pytest.mark.parametrize("size", [0, -1])
def test_map_impossible_size_raises(handle: FileHandle, size: int) -> None:
    """Nothing and less than nothing are refused."""
    handle.pwrite(b"abc", 0)
    with pytest.raises(ValueError, match="map"):
        handle.map(size)


def test_map_more_than_the_file_raises_short_file(handle: FileHandle) -> None:
    """A file that has become shorter is an error of the file system, with its name; HOST-10."""
    handle.pwrite(b"abc", 0)
    with pytest.raises(ShortFileError, match="must have 4 bytes, got 3") as caught:
        handle.map(4)
    assert str(handle.path) == caught.value.path


def test_handle_closed_refuses_all_calls_but_close(disk: Disk, handle: FileHandle) -> None:
    """After close no call reaches a file, in particular not a file that got the same descriptor."""
    handle.pwrite(b"mine", 0)
    handle.close()
    other = disk.filesystem.open(disk.directory / "other", create=True)
    calls: list[Callable[[], object]] = [
        handle.size,
        handle.sync,
        lambda: handle.pread(4, 0),
        lambda: handle.pread_into(bytearray(4), 0),
        lambda: handle.next_data(0),
        lambda: handle.pwrite(b"x", 0),
        lambda: handle.pwritev([b"x"], 0),
        lambda: handle.truncate(0),
        lambda: handle.begin_write_back(0, 4),
        lambda: handle.drop_cache(0, 4),
        lambda: handle.map(1),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="closed"):
            call()
    handle.close()
    assert handle.closed
    assert not other.closed
    assert 0 == other.size()
    assert str(disk.directory / "file") in repr(handle.path)


def test_sync_of_file_and_directory_succeeds(disk: Disk, handle: FileHandle) -> None:
    """Both syncs work on what was just made; a directory that is missing is an error."""
    handle.pwrite(b"x", 0)
    handle.sync()
    disk.filesystem.sync_directory(disk.directory)
    with pytest.raises(FileNotFoundError):
        disk.filesystem.sync_directory(disk.directory / "none")


def test_drop_cache_bytes_are_read_as_before(handle: FileHandle) -> None:
    """They may have left memory; whole pages or not, written again or not, they are there."""
    content = bytes(range(256)) * 80
    handle.pwrite(content, 0)
    handle.begin_write_back(0, len(content))
    handle.drop_cache(4096, len(content) - 4096)
    assert content == handle.pread(len(content), 0)
    handle.pwrite(b"again", 8192)
    handle.drop_cache(0, len(content))
    assert content[:8192] + b"again" + content[8197:] == bytes(handle.map(len(content)))


def test_stat_returns_size_kind_and_time(disk: Disk, handle: FileHandle) -> None:
    """Returns None if the name does not exist, also below a file."""
    handle.pwrite(b"abc", 0)
    disk.filesystem.set_modified_ms(handle.path, 1_700_000_000_123)
    facts = disk.filesystem.stat(handle.path)
    assert facts is not None
    assert (3, 1_700_000_000_123, False) == (
        facts.size_bytes,
        facts.modified_ms,
        facts.is_directory,
    )
    directory = disk.filesystem.stat(disk.directory)
    assert directory is not None
    assert directory.is_directory
    assert disk.filesystem.stat(disk.directory / "none") is None
    assert disk.filesystem.stat(handle.path / "below") is None
    with pytest.raises(FileNotFoundError):
        disk.filesystem.set_modified_ms(disk.directory / "none", 0)


def test_list_is_sorted_and_raises_for_other_entries(disk: Disk) -> None:
    """Hidden files are listed too; a glob means nothing."""
    for name in ("b", "a", ".lock", "*"):
        disk.filesystem.open(disk.directory / name, create=True)
    assert ["*", ".lock", "a", "b"] == disk.filesystem.list(disk.directory)
    with pytest.raises(FileNotFoundError):
        disk.filesystem.list(disk.directory / "none")
    with pytest.raises(NotADirectoryError):
        disk.filesystem.list(disk.directory / "a")


def test_rename_replaces_target_and_open_handles_stay_valid(disk: Disk, handle: FileHandle) -> None:
    """The file keeps its identity under the new name; the target is replaced."""
    handle.pwrite(b"new", 0)
    target = disk.directory / "target"
    replaced = disk.filesystem.open(target, create=True)
    replaced.pwrite(b"old", 0)
    disk.filesystem.rename(handle.path, target)
    assert ["target"] == disk.filesystem.list(disk.directory)
    assert b"new" == disk.filesystem.open(target).pread(9, 0)
    assert b"old" == replaced.pread(9, 0)
    disk.filesystem.rename(target, target)
    with pytest.raises(FileNotFoundError):
        disk.filesystem.rename(handle.path, target)


def test_rename_directory_keeps_its_content(disk: Disk) -> None:
    """A directory may take the place of an empty one only."""
    filesystem, directory = disk
    for name in ("source", "empty", "full"):
        filesystem.make_directory(directory / name)
    filesystem.open(directory / "source" / "file", create=True).pwrite(b"1", 0)
    filesystem.open(directory / "full" / "file", create=True)
    plain = filesystem.open(directory / "plain", create=True).path
    with pytest.raises(OSError, match="not empty"):
        filesystem.rename(directory / "source", directory / "full")
    with pytest.raises(NotADirectoryError):
        filesystem.rename(directory / "source", plain)
    with pytest.raises(IsADirectoryError):
        filesystem.rename(plain, directory / "empty")
    with pytest.raises(OSError, match="Invalid argument"):
        filesystem.rename(directory / "source", directory / "source" / "inside")
    filesystem.rename(directory / "source", directory / "empty")
    assert ["empty", "full", "plain"] == filesystem.list(directory)
    assert b"1" == filesystem.open(directory / "empty" / "file").pread(9, 0)


def test_unlink_removes_only_the_name(disk: Disk, handle: FileHandle) -> None:
    """Readers read on; a second unlink and one of a directory are errors."""
    handle.pwrite(b"abc", 0)
    disk.filesystem.unlink(handle.path)
    assert b"abc" == handle.pread(3, 0)
    assert disk.filesystem.stat(handle.path) is None
    with pytest.raises(FileNotFoundError):
        disk.filesystem.unlink(handle.path)
    disk.filesystem.make_directory(disk.directory / "d")
    with pytest.raises((IsADirectoryError, PermissionError)):
        disk.filesystem.unlink(disk.directory / "d")


def test_make_directory_creates_and_removes_one_directory(disk: Disk, handle: FileHandle) -> None:
    """No parents are made, nothing is replaced, only what is empty is removed."""
    filesystem, directory = disk
    with pytest.raises(FileNotFoundError):
        filesystem.make_directory(directory / "a" / "b")
    filesystem.make_directory(directory / "a")
    for taken in (directory / "a", handle.path):
        with pytest.raises(FileExistsError):
            filesystem.make_directory(taken)
    filesystem.open(directory / "a" / "file", create=True)
    with pytest.raises(OSError, match="not empty"):
        filesystem.remove_directory(directory / "a")
    filesystem.unlink(directory / "a" / "file")
    filesystem.remove_directory(directory / "a")
    with pytest.raises(FileNotFoundError):
        filesystem.remove_directory(directory / "a")
    with pytest.raises(NotADirectoryError):
        filesystem.remove_directory(handle.path)


def test_lock_is_exclusive_until_released(disk: Disk) -> None:
    """A second request is refused and takes nothing away; the file stays after release."""
    path = disk.directory / ".lock"
    lock = disk.filesystem.lock(path)
    assert lock is not None
    for _ in range(2):
        assert disk.filesystem.lock(path) is None
    lock.release()
    again = disk.filesystem.lock(path)
    assert again is not None
    lock.release()
    assert disk.filesystem.lock(path) is None
    again.release()
    assert [".lock"] == disk.filesystem.list(disk.directory)


def test_open_overlong_name_raises_os_error(disk: Disk) -> None:
    """256 characters are one too many."""
    with pytest.raises(OSError, match="too long"):
        disk.filesystem.open(disk.directory / ("x" * 256), create=True)
    disk.filesystem.open(disk.directory / ("x" * 255), create=True)


EDITS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 5000), st.binary(max_size=2000)),
        st.tuples(st.just("truncate"), st.integers(0, 5000), st.just(b"")),
    ),
    max_size=15,
)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=EDITS, position=st.integers(0, 6000), size=st.integers(0, 6000))
def test_handle_random_edits_equal_those_of_an_array(
    disk: Disk, edits: list[tuple[str, int, bytes]], position: int, size: int
) -> None:
    """Any writes and truncations leave what they leave in a plain array of bytes."""
    handle = disk.filesystem.open(disk.directory / "file", create=True)
    handle.truncate(0)
    model = bytearray()
    for name, where, data in edits:
        if name == "write" and data:
            model += bytes(max(0, where - len(model)))
            model[where : where + len(data)] = data
            half = len(data) // 2
            handle.pwritev([data[:half], data[half:]], where)
        elif name == "truncate":
            model += bytes(max(0, where - len(model)))
            del model[where:]
            handle.truncate(where)
    assert len(model) == handle.size()
    assert bytes(model[position : position + size]) == handle.pread(size, position)
    if model:
        assert bytes(model) == bytes(handle.map(len(model)))
    target = bytearray(size)
    count = handle.pread_into(target, position)
    assert bytes(model[position : position + size]) == bytes(target[:count])


def test_handle_path_is_that_of_the_open(handle: FileHandle) -> None:
    """The path is the one the file was opened under."""
    assert Path("file") == Path(handle.path.name)
    assert not handle.closed
