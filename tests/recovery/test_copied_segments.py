"""A segment next to a copy of itself under a higher base offset."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kafkalog import CorruptRecordError, Record
from kafkalog.files.names import FileKind, SegmentFiles
from tests.support.damage import batch_positions, flip, forget_shutdown, log_file, truncate
from tests.support.logs import manual_log, numbered
from tests.support.old_logs import chapters_of, write_chapters

COUNT = 30


def fill(directory: Path, *, copied_as: int, cut: int) -> list[int]:
    """Write batches of three records; copy the segment, shorter by `cut` bytes."""
    with manual_log(directory) as log:
        for number in range(COUNT):
            log.append(numbered(number, 3))
    copy = log_file(directory, copied_as)
    shutil.copyfile(log_file(directory), copy)
    truncate(copy, copy.stat().st_size - cut)
    return list(range(3 * COUNT))


@pytest.mark.parametrize("is_killed", [True, False])
@pytest.mark.parametrize("cut", [0, 5, 700])
def test_copied_segment_costs_no_record(directory: Path, cut: int, is_killed: bool) -> None:
    """HOST-7: all records are served, read-only too, and no offset is assigned again."""
    offsets = fill(directory, copied_as=4, cut=cut)
    if is_killed:
        forget_shutdown(directory)
    for read_only in (True, False, False):
        with manual_log(directory, read_only=read_only) as log:
            assert offsets == [record.offset for record in log.records()]
            assert offsets[-1] + 1 == log.log_end_offset
    with manual_log(directory) as log:
        assert offsets[-1] + 1 == log.append([Record(value=b"new")]).first_offset
    assert not log_file(directory, 4).exists()
    side_file = SegmentFiles(directory, 4).broken(FileKind.LOG, 0)
    assert side_file.read_bytes() == log_file(directory).read_bytes()[: side_file.stat().st_size]


@pytest.mark.parametrize("is_killed", [True, False])
def test_copied_segment_of_a_damaged_one_costs_one_batch(directory: Path, is_killed: bool) -> None:
    """HOST-7: one batch is lost and reported; the copy still has it."""
    offsets = fill(directory, copied_as=4, cut=700)
    if is_killed:
        forget_shutdown(directory)
    flip(log_file(directory), batch_positions(log_file(directory))[9] + 70)
    lost = {27, 28, 29}
    for read_only in (True, False, False):
        with manual_log(directory, read_only=read_only) as log:
            served = [record.offset for record in log.records(on_corrupt="skip")]
            assert served == [offset for offset in offsets if offset not in lost]
            assert [(27, 30)] == [
                (each.first_offset, each.next_offset) for each in log.corrupt_ranges()
            ]
            assert offsets[-1] + 1 == log.log_end_offset


@pytest.mark.parametrize("is_killed", [True, False])
def test_copied_segment_of_an_older_one_costs_no_record(directory: Path, is_killed: bool) -> None:
    """HOST-7: another segment is between a segment and its copy."""
    with manual_log(directory) as log:
        for number in range(0, 30, 3):
            log.append(numbered(number, 3))
            if number == 12:
                log.roll()
    if is_killed:
        forget_shutdown(directory)
    shutil.copyfile(log_file(directory), log_file(directory, 20))
    for read_only in (True, False, False):
        with manual_log(directory, read_only=read_only) as log:
            assert list(range(30)) == [record.offset for record in log.records()]
    with manual_log(directory) as log:
        assert log.append([Record(value=b"new")]).first_offset == 30


@pytest.mark.parametrize("cut", [0, 700])
def test_copied_segment_of_a_compacted_one_costs_no_record(directory: Path, cut: int) -> None:
    """HOST-7: a compacted segment begins above its base, perhaps above the base of its copy."""
    offsets = fill(directory, copied_as=4, cut=0)
    base = log_file(directory)
    start = batch_positions(base)[5]
    base.write_bytes(base.read_bytes()[start:])
    shutil.copyfile(base, log_file(directory, 4))
    truncate(log_file(directory, 4), base.stat().st_size - cut)
    forget_shutdown(directory)
    for name in directory.glob("*.snapshot"):
        name.unlink()
    for read_only in (True, False, False):
        with manual_log(directory, read_only=read_only) as log:
            for _ in range(2):
                assert offsets[15:] == [record.offset for record in log.records()]
    with manual_log(directory) as log:
        assert offsets[-1] + 1 == log.append([Record(value=b"new")]).first_offset
    assert not log_file(directory, 4).exists()


def test_copied_segment_with_zeros_after_it_costs_no_record(directory: Path) -> None:
    """HOST-7: an opening truncates the zeros, and the next opening would see a copy."""
    offsets = fill(directory, copied_as=4, cut=0)
    forget_shutdown(directory)
    with log_file(directory, 4).open("ab") as file:
        file.write(bytes(100_000))
    for read_only in (True, False, False):
        with manual_log(directory, read_only=read_only) as log:
            for _ in range(2):
                assert offsets == [record.offset for record in log.records()]


def test_copied_segment_with_more_records_is_served(directory: Path) -> None:
    """HOST-7: records of the copy alone are served, except the batch that its base divides."""
    offsets = fill(directory, copied_as=4, cut=0)
    forget_shutdown(directory)
    truncate(log_file(directory), batch_positions(log_file(directory))[5])
    for read_only in (True, False, False):
        with manual_log(directory, read_only=read_only) as log:
            served = [record.offset for record in log.records(on_corrupt="skip")]
            assert set(offsets) - set(served) <= {3, 4, 5}
            assert {3, 4, 5} <= {
                offset
                for each in log.corrupt_ranges()
                for offset in range(each.first_offset, each.next_offset)
            } | set(served)


def test_copied_segment_wrapper_serves_no_record_below_its_base(directory: Path) -> None:
    """HOST-7: after damage; a record below the base of the copy raises."""
    wrappers = chapters_of([(1, 1, 1), (1, 1, 2), (1, 1, 1), (1, 1, 2)])
    data = bytearray(write_chapters(directory, wrappers).read_bytes())
    log_file(directory, 2).write_bytes(data)
    for position in (11, len(wrappers[0].data) + 40):
        flip(log_file(directory), position)
    for read_only in (True, False, False):
        with manual_log(directory, read_only=read_only) as log:
            assert [each.offset for each in log.records(on_corrupt="skip")] == [3, 4, 5]
            assert log.get(3) is not None
            with pytest.raises(CorruptRecordError):
                log.get(1)


@pytest.mark.parametrize("is_killed", [True, False])
def test_copied_segment_below_its_own_base_costs_no_record(
    directory: Path, is_killed: bool
) -> None:
    """HOST-7: of two copies that one is removed whose base is inside of another segment."""
    with manual_log(directory) as log:
        for number in range(COUNT):
            log.append(numbered(number, 3))
        base = log.roll().base_offset
        log.append(numbered(0, 3))
    shutil.copyfile(log_file(directory, base), log_file(directory, base - 2))
    if is_killed:
        forget_shutdown(directory)
    for read_only in (True, False, False):
        with manual_log(directory, read_only=read_only) as log:
            for _ in range(2):
                assert [*range(base + 3)] == [record.offset for record in log.records()]
            assert not log.corrupt_ranges()
    assert not log_file(directory, base - 2).exists()
