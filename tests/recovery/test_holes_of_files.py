"""Files with holes of gigabytes, and non-regular files: opened in bounded time, or refused."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import kafkalog
from kafkalog.log.log import partition_of

FIRST, LAST = f"{0:020d}.log", f"{10:020d}.log"
GIGABYTE = 1 << 30
NOTES = (".kafka_cleanshutdown", "recovery-point-offset-checkpoint", ".kafkalog_syncs")


def _partition(directory: Path) -> None:
    """Write two segments of ten batches."""
    with kafkalog.open_log(directory) as log:
        for number in range(20):
            if number == 10:
                log.roll()
            log.append([kafkalog.Record(value=b"%d" % number)])


def _forget_the_stop(directory: Path) -> None:
    for name in NOTES:
        (directory / name).unlink(missing_ok=True)


def _disk_bytes(path: Path) -> int:
    return path.stat().st_blocks * 512


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("name", [FIRST, LAST])
@pytest.mark.parametrize("size", [GIGABYTE, 8 * GIGABYTE])
def test_hole_at_the_end_of_a_segment_is_skipped(
    tmp_path: Path, size: int, name: str, clean: bool
) -> None:
    """PAR-13, HOST-10: no opening and no read walks through it, and no opening fills it."""
    directory = tmp_path / "t-0"
    _partition(directory)
    os.truncate(directory / name, size)
    if not clean:
        _forget_the_stop(directory)
    for read_only in (True, False, False):
        with kafkalog.open_log(directory, read_only=read_only) as log:
            served = [record.offset for record in log.records(on_corrupt="skip")]
            assert served == list(range(20))
            sizes = [
                segment.size_bytes for segment in partition_of(log).local.snapshot.segments.segments
            ]
            assert max(sizes) < 4 << 20
        assert _disk_bytes(directory / name) < 4 << 20
    with kafkalog.open_log(directory) as log:
        assert log.append([kafkalog.Record(value=b"new")]).first_offset == 20
    with kafkalog.open_log(directory) as log:
        assert len(list(log.records(on_corrupt="skip"))) == 21


def _link_to_file(path: Path) -> None:
    target = path.parent.parent / "target"
    path.rename(target)
    path.symlink_to(target)


def _link_to_directory(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.parent)


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("put", [_link_to_file, _link_to_directory, _directory, _fifo])
@pytest.mark.parametrize("name", [FIRST, LAST])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("read_only", [True, False])
def test_open_log_segment_that_is_not_a_regular_file_raises(
    tmp_path: Path, put: Callable[[Path], None], name: str, clean: bool, read_only: bool
) -> None:
    """HOST-6, HOST-14: the opening raises, not a later read."""
    directory = tmp_path / "t-0"
    _partition(directory)
    put(directory / name)
    if not clean:
        _forget_the_stop(directory)
    with pytest.raises(kafkalog.LogStorageError, match=name):
        kafkalog.open_log(directory, read_only=read_only)


@pytest.mark.parametrize("grown", [FIRST, f"{FIRST}.swap"])
def test_hole_with_a_swap_file_is_skipped(tmp_path: Path, grown: str) -> None:
    """HOST-10: a hole of the old segment, or of the swap file, which is refused as incomplete."""
    directory = tmp_path / "t-0"
    _partition(directory)
    shutil.copy(directory / FIRST, directory / f"{FIRST}.swap")
    os.truncate(directory / grown, 8 * GIGABYTE)
    _forget_the_stop(directory)
    for read_only in (True, False):
        with kafkalog.open_log(directory, read_only=read_only) as log:
            assert [record.offset for record in log.records()] == list(range(20))
            refused = [each.path.name for each in log.recovery_report.refused_swaps]
    assert refused == ([] if grown == FIRST else [f"{FIRST}.swap"])
