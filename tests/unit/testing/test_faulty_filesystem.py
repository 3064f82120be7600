"""File system on a disk with faults: power cuts of random changes, and calls after a kill."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog import FileSystem
from kafkalog.files.posix import PosixFileSystem
from kafkalog.testing.faulty_disk import FaultyDisk
from kafkalog.testing.faulty_filesystem import FaultyFileSystem

SIZES = st.integers(0, 40)
CHANGES = st.one_of(
    st.tuples(st.just("write"), SIZES, st.binary(min_size=1, max_size=12)),
    st.tuples(st.just("truncate"), SIZES, st.just(b"")),
    st.tuples(st.just("sync"), st.just(0), st.just(b"")),
)


def faulty(disk: FaultyDisk) -> FileSystem:
    """Return a file system on the disk."""
    return cast("FileSystem", FaultyFileSystem(disk, PosixFileSystem()))


@given(changes=st.lists(CHANGES, max_size=20))
def test_cut_power_restores_the_last_sync(
    changes: list[tuple[str, int, bytes]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """After any writes and truncations, above and below the end, also with a renamed file."""
    root = tmp_path_factory.mktemp("disk")
    disk = FaultyDisk()
    filesystem = faulty(disk)
    handle = filesystem.create_new(root / "a")
    synced = b""
    for call, position, data in changes:
        if call == "write":
            handle.pwritev([data[:3], data[3:]], position)
        elif call == "truncate":
            handle.truncate(position)
        else:
            handle.sync()
            synced = handle.pread(100, 0)
    filesystem.rename(root / "a", root / "b")
    disk.cut_power(root)
    assert [root / "b"] == list(root.iterdir())
    assert synced == (root / "b").read_bytes()
    handle.close()


def test_cut_power_of_a_replaced_file_leaves_its_successor(tmp_path: Path) -> None:
    """Unsynced changes belong to a file and not to its name."""
    disk = FaultyDisk()
    filesystem = faulty(disk)
    for text in (b"first", b"second"):
        handle = filesystem.create_new(tmp_path / "new")
        handle.pwrite(text, 0)
        if text == b"second":
            handle.sync()
        handle.close()
        filesystem.rename(tmp_path / "new", tmp_path / "name")
    disk.cut_power(tmp_path)
    assert b"second" == (tmp_path / "name").read_bytes()


def test_cut_power_begins_another_session_of_the_page_cache(tmp_path: Path) -> None:
    """The engine must not believe bytes that a file system's cache had before."""
    disk = FaultyDisk()
    filesystem = faulty(disk)
    before = filesystem.cache_id(tmp_path)
    disk.cut_power(tmp_path)
    after = filesystem.cache_id(tmp_path)
    assert before != after or not before


def test_calls_after_turn_off_have_no_effect(tmp_path: Path) -> None:
    """Reads and the release of descriptors still work."""
    filesystem = FaultyFileSystem(FaultyDisk(), PosixFileSystem())
    (tmp_path / "folder").mkdir()
    handle = filesystem.create_new(tmp_path / "a")
    handle.pwrite(b"kept", 0)
    filesystem.turn_off()
    refused: list[Callable[[], object]] = [
        lambda: handle.pwrite(b"lost", 0),
        lambda: handle.pwritev([b"lost"], 0),
        lambda: handle.truncate(0),
        handle.sync,
        lambda: filesystem.create_new(tmp_path / "a"),
        lambda: filesystem.open(tmp_path / "b", create=True),
        lambda: filesystem.rename(tmp_path / "a", tmp_path / "b"),
        lambda: filesystem.unlink(tmp_path / "a"),
        lambda: filesystem.make_directory(tmp_path / "b"),
        lambda: filesystem.remove_directory(tmp_path / "folder"),
        lambda: filesystem.sync_directory(tmp_path),
        lambda: filesystem.set_modified_ms(tmp_path / "a", 0),
    ]
    for call in refused:
        with pytest.raises(OSError, match="killed") as failure:
            call()
        assert errno.EIO == failure.value.errno
    assert b"kept" == filesystem.open(tmp_path / "a").pread(10, 0)
    handle.close()
    assert ["a", "folder"] == sorted(each.name for each in tmp_path.iterdir())
