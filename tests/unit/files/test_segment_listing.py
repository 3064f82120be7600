"""Files of segments in a directory: found by their names, whatever else lies there."""

from __future__ import annotations

from pathlib import Path

from kafkalog.files.names import FileKind, FileState, SegmentFileName
from kafkalog.files.posix import PosixFileSystem
from kafkalog.files.segment_listing import live_offsets, segment_files

NAMES = (
    "00000000000000000007.log",
    "00000000000000000000.log",
    "00000000000000000003.log.deleted",
    "00000000000000000007.snapshot",
    "00000000000000000007.log.9.broken",
    "leader-epoch-checkpoint",
    "7.log",
)


def test_segment_files_are_told_in_every_state_and_nothing_else_is(tmp_path: Path) -> None:
    """Names that no segment has are passed over."""
    for name in NAMES:
        (tmp_path / name).touch()
    assert {
        SegmentFileName(7, FileKind.LOG),
        SegmentFileName(0, FileKind.LOG),
        SegmentFileName(3, FileKind.LOG, FileState.DELETED),
        SegmentFileName(7, FileKind.SNAPSHOT),
        SegmentFileName(7, FileKind.LOG, FileState.BROKEN, 9),
    } == set(segment_files(PosixFileSystem(), tmp_path))


def test_live_offsets_of_one_kind_rise(tmp_path: Path) -> None:
    """Whatever order the disk has them in, and without those that are on their way out."""
    for name in NAMES:
        (tmp_path / name).touch()
    disk = PosixFileSystem()
    assert [0, 7] == live_offsets(disk, tmp_path, FileKind.LOG)
    assert [7] == live_offsets(disk, tmp_path, FileKind.SNAPSHOT)
    assert [] == live_offsets(disk, tmp_path, FileKind.TIME_INDEX)
