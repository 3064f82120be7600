"""The safety poll: which directories it finds changed, and how many it looks at."""

from __future__ import annotations

from pathlib import Path

from kafkalog.files.posix import PosixFileSystem
from kafkalog.followers.sweep import Sweep, SweepMark, mark_of
from tests.support.manual_time import ManualClock

SEGMENT, LATER = f"{0:020d}.log", f"{9:020d}.log"


def test_change_of_names_or_of_the_last_segment_is_found(tmp_path: Path) -> None:
    """Once each; another file is of no interest."""
    clock = ManualClock()
    disk = PosixFileSystem(clock)
    # A change a long time ago, as the clock shows.
    clock.advance(2**50)
    sweep = Sweep(disk, None)
    sweep.add(tmp_path)
    (tmp_path / SEGMENT).write_bytes(b"1")
    assert [tmp_path] == sweep.changed()
    assert [] == sweep.changed()
    with (tmp_path / SEGMENT).open("ab") as file:
        file.write(b"2")
    assert [tmp_path] == sweep.changed()
    assert [] == sweep.changed()
    (tmp_path / LATER).write_bytes(b"")
    assert [tmp_path] == sweep.changed()
    with (tmp_path / LATER).open("ab") as file:
        file.write(b"3")
    assert [tmp_path] == sweep.changed()
    assert [] == sweep.changed()
    sweep.remove(tmp_path)
    sweep.remove(tmp_path)
    (tmp_path / "x").touch()
    assert [] == sweep.changed()


def test_recent_change_is_listed_again(tmp_path: Path) -> None:
    """The next change may have the same time; a new last segment is found."""
    disk = PosixFileSystem()
    first = mark_of(disk, tmp_path, SweepMark())
    assert SweepMark() == first
    (tmp_path / SEGMENT).touch()
    second = mark_of(disk, tmp_path, first)
    assert second is not None
    assert tmp_path / SEGMENT == second.last_log
    assert second.names is None
    assert mark_of(disk, tmp_path / "none", SweepMark()) is None


def test_rounds_look_at_a_part_in_turn(tmp_path: Path) -> None:
    """Each directory is looked at as often as the others."""
    sweep = Sweep(PosixFileSystem(), 3)
    directories = [tmp_path / str(number) for number in range(8)]
    for directory in directories:
        directory.mkdir()
        (directory / SEGMENT).touch()
        sweep.add(directory)
        sweep.add(directory)
    found = [sweep.changed() for _round in range(3)]
    assert [3, 3, 2] == [len(each) for each in found]
    assert directories == sorted(path for each in found for path in each)
    sweep.look_at_all()
    for directory in directories:
        (directory / SEGMENT).write_bytes(b"1")
    assert set(directories) == set(sweep.changed())
