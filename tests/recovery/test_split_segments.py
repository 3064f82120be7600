"""Segments whose offsets are too far from their base: split by a writer, served by readers (PAR-1).

Brokers before 1.1 left such segments (KAFKA-5413, KAFKA-6264).
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kafkalog import Log, Record
from kafkalog.cleaner.compaction import compact_log
from kafkalog.cli.app import app
from kafkalog.files.names import FileState, SegmentFiles
from kafkalog.files.posix import PosixFileSystem
from kafkalog.log import segment_writer, splitting
from kafkalog.log.ranges.reader import RangeOptions, RangeReader
from kafkalog.log.scan.conditions import Integers
from tests.support.crash_rig import ALONE, LogSetup, Rig, Scenario, crashes
from tests.support.damage import flip, forget_shutdown, log_file
from tests.support.encoded_batches import NOW_MS, BatchSpec, batch
from tests.support.logs import manual_log
from tests.support.producer_batches import Produced, encoded
from tests.support.producing import committed_offsets
from tests.support.simulated_disk import SimulatedDisk

FAR = 2**31 + 5
BATCHES = (0, 3, FAR, FAR + 3, 2 * FAR, 2 * FAR + 3)
OFFSETS = [base + delta for base in BATCHES for delta in range(3)]
COMPACT: dict[str, Any] = {"cleanup_policy": ("compact",)}
NEW = Record(key=b"new", value=b"new", timestamp_ms=NOW_MS + 1000)


def timed(base_offset: int, number: int) -> bytes:
    """Return a batch of three records with timestamps from its number."""
    times = tuple(NOW_MS + 10 * number + each for each in range(3))
    keys = tuple(b"%d" % (base_offset + each) for each in range(3))
    return batch(BatchSpec(timestamps=times, keys=keys), base_offset=base_offset)


def segment(bases: Sequence[int] = BATCHES) -> bytes:
    """Return the bytes of a segment with these batches."""
    return b"".join(timed(base, number) for number, base in enumerate(bases))


def offsets_of(log: Log) -> list[int]:
    """Return the offsets of a full read, and check that look-ups agree with it."""
    found = []
    for record in log.records(on_corrupt="skip"):
        assert record == log.get(record.offset)
        assert record.offset == next(log.records(record.offset)).offset
        found.append(record.offset)
    return found


def bases_of(log: Log) -> list[int]:
    """Return the base offsets of the segments."""
    return [each.base_offset for each in log.segments()]


def unfinished(directory: Path) -> list[str]:
    """Return the names of files of unfinished work."""
    states = (FileState.SWAP, FileState.CLEANED, FileState.DELETED, FileState.COVERED)
    return [path.name for path in directory.iterdir() if path.name.endswith(states)]


@pytest.fixture
def overflowing(directory: Path) -> Path:
    """A directory of one segment that is to become three."""
    directory.mkdir()
    log_file(directory).write_bytes(segment())
    return directory


@pytest.mark.parametrize("is_sealed", [True, False], ids=["sealed", "last"])
def test_overflowing_segment_is_split_at_batches_that_do_not_fit(
    overflowing: Path, is_sealed: bool
) -> None:
    """PAR-1: these batches name the new segments, as in a broker; no damage is reported."""
    end = 2 * FAR + 6
    if is_sealed:
        log_file(overflowing, end).write_bytes(timed(end, 6))
    expected = [*OFFSETS, *(range(end, end + 3) if is_sealed else ())]
    with manual_log(overflowing, **COMPACT) as log:
        assert [0, FAR, 2 * FAR, *([end] if is_sealed else [])] == bases_of(log)
        assert expected == offsets_of(log)
        assert () == log.corrupt_ranges()
        assert not log.recovery_report.found_damage
        assert expected[-1] + 1 == log.append([NEW]).first_offset
        for number, base in enumerate(BATCHES):
            found = log.offset_for_timestamp(NOW_MS + 10 * number + 1)
            assert found is not None
            assert base + 1 == found.offset
    assert [] == unfinished(overflowing)
    for _again in range(2):
        with manual_log(overflowing, **COMPACT) as log:
            assert [*expected, expected[-1] + 1] == offsets_of(log)
            assert () == log.corrupt_ranges()
            assert not log.recovery_report.completed_swaps
        forget_shutdown(overflowing)


def test_overflowing_segment_after_a_clean_stop_is_split(directory: Path) -> None:
    """PAR-1: the segment is found without a scan."""
    with manual_log(directory, **COMPACT) as log:
        log.truncate_fully_and_start_at(2 * FAR + 6)
        log.append([Record(key=b"k", value=b"last")])
    log_file(directory).write_bytes(segment())
    with manual_log(directory, **COMPACT) as log:
        assert log.recovery_report.clean
        assert [0, FAR, 2 * FAR, 2 * FAR + 6] == bases_of(log)
        assert [*OFFSETS, 2 * FAR + 6] == offsets_of(log)


def test_overflowing_segment_without_a_fitting_offset_is_renamed(directory: Path) -> None:
    """PAR-1: as in a broker, one new segment with the base offset of its first batch."""
    directory.mkdir()
    log_file(directory).write_bytes(segment((FAR, FAR + 3)))
    for _again in range(2):
        with manual_log(directory) as log:
            assert [FAR] == bases_of(log)
            assert [FAR + delta for delta in range(6)] == offsets_of(log)
            assert FAR == log.log_start_offset
            assert () == log.corrupt_ranges()
        forget_shutdown(directory)
    assert not log_file(directory).exists()


def test_overflowing_segment_batch_across_the_limit_begins_a_segment(directory: Path) -> None:
    """PAR-1: its first offset would fit, its last does not."""
    directory.mkdir()
    across = 2**31 - 2
    log_file(directory).write_bytes(segment((0, across)))
    with manual_log(directory) as log:
        assert [0, across] == bases_of(log)
        assert [0, 1, 2, across, across + 1, across + 2] == offsets_of(log)


def test_segment_with_the_largest_fitting_offset_is_not_split(directory: Path) -> None:
    """PAR-1: the limit itself belongs to the segment."""
    directory.mkdir()
    log_file(directory).write_bytes(segment((0, 2**31 - 3)))
    with manual_log(directory) as log:
        assert [0] == bases_of(log)[:1]
        assert [0, 1, 2, 2**31 - 3, 2**31 - 2, 2**31 - 1] == offsets_of(log)
        assert not log.recovery_report.completed_swaps


def test_segments_far_apart_are_not_split(directory: Path) -> None:
    """PAR-1: only the offsets within a segment count."""
    directory.mkdir()
    log_file(directory).write_bytes(segment((0, 3)))
    log_file(directory, FAR).write_bytes(timed(FAR, 2))
    with manual_log(directory, **COMPACT) as log:
        assert [0, FAR] == bases_of(log)
        assert not log.recovery_report.completed_swaps


def test_read_only_overflowing_segment_is_served_unsplit(overflowing: Path) -> None:
    """PAR-1: a reader changes no file; a reader opened before the split continues after it."""
    before = {path.name: path.read_bytes() for path in overflowing.iterdir()}
    with manual_log(overflowing, read_only=True, **COMPACT) as reader:
        assert [0] == bases_of(reader)
        assert OFFSETS == offsets_of(reader)
        assert [FAR, FAR + 1, FAR + 2] == list(reader.scan(FAR, FAR + 3).to_numpy()["offset"])
        assert before == {path.name: path.read_bytes() for path in overflowing.iterdir()}
        with manual_log(overflowing, **COMPACT) as log:
            log.append([NEW])
            assert [*OFFSETS, 2 * FAR + 6] == [each.offset for each in reader.records()]
            assert [*OFFSETS, 2 * FAR + 6] == offsets_of(reader)


@pytest.mark.parametrize("start", [0, 3, FAR, FAR + 4, 2 * FAR, 2 * FAR + 5])
def test_range_reader_serves_an_overflowing_segment(overflowing: Path, start: int) -> None:
    """PAR-1: tasks of Spark read the files without opening the log."""

    def fail(what: object) -> Any:
        raise AssertionError(what)

    reader = RangeReader(
        PosixFileSystem(),
        overflowing,
        start,
        2 * FAR + 6,
        RangeOptions(
            timestamps=Integers(),
            check_crcs=True,
            max_batch_bytes=2**31 - 1,
            retries=0,
        ),
        on_damage=fail,
        on_missing=fail,
    )
    found: list[int] = []
    for each in reader.batch_slices():
        if each.is_wanted:
            found += each.batches.base_offset[each.first : each.stop].tolist()
    assert [base for base in BATCHES if base + 2 >= start] == found


def test_dump_overflowing_segment_shows_all_batches(overflowing: Path) -> None:
    """PAR-1: every batch is a line, and no line is damage."""
    result = CliRunner().invoke(app, ["dump", "--json", str(log_file(overflowing))])
    assert 0 == result.exit_code
    assert len(BATCHES) == result.stdout.count('"kind":"batch"')
    assert '"damage"' not in result.stdout


def test_overflowing_segment_with_damage_is_served_unsplit(overflowing: Path) -> None:
    """PAR-1: whole batches are served, and damaged bytes stay in place."""
    size = len(timed(0, 0))
    flip(log_file(overflowing), size + 70)
    content = log_file(overflowing).read_bytes()
    with manual_log(overflowing, **COMPACT) as log:
        assert [*OFFSETS[:3], *OFFSETS[6:]] == offsets_of(log)
        assert [(3, FAR)] == [
            (each.first_offset, each.next_offset) for each in log.corrupt_ranges()
        ]
        assert 2 * FAR + 6 == log.append([NEW]).first_offset
    assert content == log_file(overflowing).read_bytes()[: len(content)]


def test_overflowing_segment_with_a_torn_tail_is_truncated_and_split(overflowing: Path) -> None:
    """PAR-1: the report of the opening has the results of both of its loads."""
    whole = log_file(overflowing).read_bytes()
    log_file(overflowing).write_bytes(whole + timed(2 * FAR + 6, 6)[:-5])
    with manual_log(overflowing, **COMPACT) as log:
        assert [len(timed(2 * FAR + 6, 6)) - 5] == [
            cut.size_bytes for cut in log.recovery_report.cut
        ]
        assert [0, FAR, 2 * FAR] == bases_of(log)
        assert OFFSETS == offsets_of(log)


def test_overflowing_segment_aborted_transactions_stay_aborted(directory: Path) -> None:
    """PAR-1: the transaction index is divided, too."""
    directory.mkdir()
    parts: list[bytes] = []
    offsets: list[int] = []
    for base in (0, FAR):
        for offset, ends in ((base, "abort"), (base + 10, "commit")):
            sent = Produced(1, sequence=3 * len(parts) // 2, count=3, transactional=True)
            parts += [encoded([sent], offset), encoded([Produced(1, ends=ends)], offset + 3)]
        offsets += [base + 10, base + 11, base + 12]
    log_file(directory).write_bytes(b"".join(parts))
    with manual_log(directory, read_only=True) as log:
        assert offsets == committed_offsets(log)
    for _again in range(2):
        with manual_log(directory) as log:
            assert [0, FAR] == bases_of(log)
            assert offsets == committed_offsets(log)
        forget_shutdown(directory)
    for base in (0, FAR):
        assert 34 == SegmentFiles(directory, base).transaction_index.stat().st_size


def test_cleaning_does_not_merge_split_segments_beyond_the_limit(overflowing: Path) -> None:
    """PAR-1: old brokers merged such segments again."""
    with manual_log(overflowing, **COMPACT) as log:
        log.append([Record(key=b"end", value=b"v", timestamp_ms=NOW_MS + 100)])
        compact_log(log, include_active=True)
        for each in log.segments():
            held = [offset for offset in offsets_of(log) if offset >= each.base_offset]
            assert not held or held[0] - each.base_offset < 2**31
        assert [*OFFSETS, 2 * FAR + 6] == offsets_of(log)
        bases = bases_of(log)
        assert {0, FAR, 2 * FAR} <= set(bases)


def test_overflowing_segment_disk_full_is_served_unsplit(overflowing: Path) -> None:
    """PAR-1: a log opens without space for the copy; the next opening splits the segment."""
    disk = SimulatedDisk()
    place = ALONE.directory
    disk.make_durable(place)
    put(disk, segment())
    disk.fail_at(1, errno.ENOSPC, only=frozenset({"pwrite"}), suffix=".log.cleaned")
    with manual_log(place, filesystem=disk, **COMPACT) as log:
        assert OFFSETS == offsets_of(log)
        assert [0] == bases_of(log)
    with manual_log(place, filesystem=disk, **COMPACT) as log:
        assert OFFSETS == offsets_of(log)
        assert [0, FAR, 2 * FAR] == bases_of(log)


@pytest.mark.parametrize("is_clean", [True, False])
def test_segment_beyond_the_largest_position_is_split(
    directory: Path, monkeypatch: pytest.MonkeyPatch, is_clean: bool
) -> None:
    """PAR-13: the limit of 2^31 - 1 is lowered; readers serve the file, a writer divides it."""
    for module in (segment_writer, splitting):
        monkeypatch.setattr(module, "SEGMENT_BYTES_MAX", 300)
    with manual_log(directory) as log:
        for number in range(6):
            log.append([Record(value=b"%90d" % number)])
    if not is_clean:
        forget_shutdown(directory)
    with manual_log(directory, read_only=True) as log:
        assert [0] == bases_of(log)
        assert list(range(6)) == offsets_of(log)
    for _again in range(2):
        with manual_log(directory) as log:
            assert [0, 1, 2, 3, 4, 5] == offsets_of(log)
            assert 1 < len(log.segments())
            assert all(each.size_bytes <= 300 for each in log.segments())
            assert () == log.corrupt_ranges()
        forget_shutdown(directory)
    assert [] == unfinished(directory)


def put(disk: SimulatedDisk, data: bytes) -> None:
    """Make the log file of the first segment."""
    handle = disk.open(SegmentFiles(ALONE.directory, 0).log, create=True)
    handle.pwrite(data, 0)
    handle.close()
    disk.make_durable(ALONE.directory)


class Opening(Scenario):
    """
    Opens a log whose one segment overflows.

    Args:
        bases: of its batches.
    """

    def __init__(self, bases: Sequence[int]) -> None:
        self.bases = bases

    def prepare(self, rig: Rig) -> None:
        rig.disk.make_directory(ALONE.directory)
        put(rig.disk, segment(self.bases))

    def run(self, rig: Rig) -> None:
        rig.open()


@pytest.mark.parametrize("bases", [BATCHES, (FAR, FAR + 3)], ids=["three", "another name"])
def test_split_at_opening_power_cut_at_any_call_loses_nothing(bases: tuple[int, ...]) -> None:
    """PAR-1: read-only or for writing, the next opening has every record once."""
    place = LogSetup("alone", ALONE.directory, ALONE.config.replace(cleanup_policy=("compact",)))
    expected = [base + delta for base in bases for delta in range(3)]
    segment_bases = sorted({base for base in bases if base % FAR == 0})
    states = 0
    for crash in crashes(Opening(bases), place, limit=3):
        states += 1
        with crash.failure_context(), Rig(place, crash.disk).open(read_only=True) as reader:
            assert expected == offsets_of(reader)
        with crash.reopened() as rig:
            assert expected == offsets_of(rig.log)
            assert segment_bases == bases_of(rig.log)
            assert not rig.log.recovery_report.found_damage
            names = rig.disk.list(ALONE.directory)
            assert not [name for name in names if name.endswith((".swap", ".cleaned", ".covered"))]
            assert expected[-1] + 1 == rig.log.append([NEW]).first_offset
    assert 50 < states
