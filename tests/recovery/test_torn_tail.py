"""Bytes after the last whole batch: kept in a side file and truncated, without a whole batch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafkalog import Log, Record
from kafkalog.log.report import RecoveryReport, TruncatedTail
from tests.support.damage import batch_positions, forget_shutdown, log_file, splice, truncate
from tests.support.golden import snapshot, unchanged
from tests.support.logs import manual_log, numbered

BATCHES = 3


def make_log(directory: Path) -> list[int]:
    """Make a log of three batches of one record, not closed; return their positions."""
    with manual_log(directory) as log:
        for number in range(BATCHES):
            log.append(numbered(number, 1))
    forget_shutdown(directory)
    return batch_positions(log_file(directory))


def values(log: Log) -> list[bytes | None]:
    """Return the values of all records, with the default of raising at damage."""
    return [record.value for record in log.records()]


def expected_values(count: int) -> list[bytes]:
    """Return the values that `make_log` appended first."""
    return [b"v%d" % number for number in range(count)]


def broken(directory: Path, position: int, base_offset: int = 0) -> Path:
    """Return the side file of a cut."""
    return directory / f"{base_offset:020d}.log.{position}.broken"


def report(count: int, size: int, cut: tuple[TruncatedTail, ...]) -> RecoveryReport:
    """Return the report of recovering the first `count` batches of a file of `size` bytes."""
    return RecoveryReport(
        clean=False,
        scanned_segments=1,
        scanned_bytes=size,
        scanned_batches=count,
        scanned_records=count,
        rewritten_bytes=size,
        cut=cut,
        rebuilt=(),
        corrupt_ranges=(),
        removed=(),
        completed_swaps=(),
        log_start_offset=0,
        log_end_offset=count,
        recovery_point=count,
        duration_ms=0,
    )


def without_rebuilt(found: RecoveryReport) -> RecoveryReport:
    """Return a report without the index files, which depend on the position of the cut."""
    return replace(found, rebuilt=())


def test_torn_tail_at_every_byte_costs_one_batch(tmp_path: Path) -> None:
    """Each length of the torn write: reported, kept in a side file, truncated, appended to."""
    original = tmp_path / "original-0"
    positions = make_log(original)
    data = log_file(original).read_bytes()
    start, end = positions[-2:]
    for size in range(start, end):
        directory = tmp_path / f"cut{size}-0"
        directory.mkdir()
        path = log_file(directory)
        path.write_bytes(data[:size])
        # The first bytes of a batch with a small offset are zeros: nothing to keep.
        kept = broken(directory, start) if any(data[start:size]) else None
        cut = TruncatedTail(path, start, size - start, "TRUNCATED", kept)
        expected = report(2, size, (cut,) if size > start else ())

        with unchanged(directory), manual_log(directory, read_only=True) as log:
            seen = without_rebuilt(log.recovery_report)
            assert replace(expected, rewritten_bytes=0, recovery_point=0) == seen
            assert expected_values(2) == values(log)
            assert 2 == log.log_end_offset
        with manual_log(directory) as log:
            assert expected == without_rebuilt(log.recovery_report)
            assert expected_values(2) == values(log)
            assert start == path.stat().st_size
            assert 2 == log.append([Record(value=b"new")]).first_offset
        if kept is not None:
            assert data[start:size] == kept.read_bytes()
        forget_shutdown(directory)
        with manual_log(directory) as log:
            assert () == log.recovery_report.cut
            assert [*expected_values(2), b"new"] == values(log)
        assert kept is None or data[start:size] == kept.read_bytes()


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        (b"x", "TRUNCATED"),
        (b"garbage of any kind, long enough for a whole header of sixty-one bytes", "MAGIC"),
        (bytes(1), None),
        (bytes(61), None),
        (bytes(100_000), None),
        (bytes(70) + b"\1", "BATCH_LENGTH"),
    ],
    ids=["byte", "text", "zero", "header of zeros", "zeros", "zeros and a byte"],
)
def test_torn_tail_is_kept_unless_all_zero(
    directory: Path, tail: bytes, reason: str | None
) -> None:
    """Zeros are truncated without a copy; other bytes are kept byte for byte."""
    end = make_log(directory)[-1]
    path = log_file(directory)
    splice(path, end, tail)
    before = snapshot(directory)
    with manual_log(directory, read_only=True) as log:
        assert expected_values(BATCHES) == values(log)
        assert 1 == len(log.recovery_report.cut)
    assert before == snapshot(directory)

    with manual_log(directory) as log:
        [cut] = log.recovery_report.cut
        assert (path, end, len(tail)) == (cut.path, cut.position, cut.size_bytes)
        assert (None if reason is None else broken(directory, end)) == cut.kept_in
        assert reason is None or reason == cut.reason
        assert end == path.stat().st_size
        assert expected_values(BATCHES) == values(log)
        log.append([Record(value=b"v3")])

    assert ([] if reason is None else [broken(directory, end)]) == list(directory.glob("*.broken"))
    assert reason is None or tail == broken(directory, end).read_bytes()
    with manual_log(directory) as log:
        assert log.recovery_report.clean
        assert expected_values(4) == values(log)


def test_torn_tail_side_files_survive_later_recoveries(directory: Path) -> None:
    """A second torn tail gets another file, and a start without a torn tail removes neither."""
    first = make_log(directory)[-1]
    splice(log_file(directory), first, b"first")
    with manual_log(directory) as log:
        log.append(numbered(3, 1))
    forget_shutdown(directory)
    second = log_file(directory).stat().st_size
    splice(log_file(directory), second, b"second")
    for _time in range(2):
        with manual_log(directory) as log:
            assert expected_values(4) == values(log)
        forget_shutdown(directory)

    assert b"first" == broken(directory, first).read_bytes()
    assert b"second" == broken(directory, second).read_bytes()


def test_torn_tail_at_the_same_position_keeps_the_first_bytes(directory: Path) -> None:
    """Torn twice after the same batch: the bytes kept first are not replaced."""
    end = make_log(directory)[-1]
    for tail in (b"first", b"second"):
        splice(log_file(directory), end, tail)
        with manual_log(directory) as log:
            assert end == log.recovery_report.cut[0].position
        forget_shutdown(directory)

    kept = b"".join(path.read_bytes() for path in directory.glob("*.broken"))
    assert b"first" in kept
    assert b"second" in kept


def test_garbage_segment_set_aside_twice_keeps_all_bytes(directory: Path) -> None:
    """HOST-7: a segment of garbage after a torn tail, and later another with its name."""
    last = make_log(directory)[-2]
    path = log_file(directory, BATCHES)
    for garbage in (b"\1" * 90, b"\2" * 40, b"\2" * 40):
        truncate(log_file(directory), last)
        splice(log_file(directory), last, b"\3" * 70)
        path.write_bytes(garbage)
        forget_shutdown(directory)
        with manual_log(directory) as log:
            assert log.log_end_offset == BATCHES - 1
        assert not path.exists()
    assert b"\1" * 90 + b"\2" * 40 == broken(directory, 0, BATCHES).read_bytes()


def test_torn_tail_with_a_hole_is_added_to_an_existing_side_file(directory: Path) -> None:
    """HOST-7: the hole has 8 GiB, so the bytes are not joined in memory."""
    make_log(directory)
    path = log_file(directory)
    data = path.read_bytes()
    size = len(data) + (8 << 30)
    with path.open("r+b") as file:
        file.truncate(size)
        file.seek(size)
        file.write(b"end")
    side_file = broken(directory, len(data))
    side_file.write_bytes(b"kept before")
    with manual_log(directory) as log:
        assert expected_values(BATCHES) == values(log)
        assert [side_file] == [cut.kept_in for cut in log.recovery_report.cut]
    assert side_file.stat().st_size == 11 + (8 << 30) + 3
    assert side_file.stat().st_blocks * 512 < 1 << 20


def test_empty_last_segment_ends_the_log_at_its_base_offset(directory: Path) -> None:
    """Made by a roll whose records were lost: no truncation, no side file, appends go there."""
    make_log(directory)
    with manual_log(directory) as log:
        log.roll()
        log.append(numbered(BATCHES, 1))
    forget_shutdown(directory)
    truncate(log_file(directory, BATCHES), 0)

    before = snapshot(directory)
    with manual_log(directory, read_only=True) as log:
        assert BATCHES == log.log_end_offset
        assert expected_values(BATCHES) == values(log)
    assert before == snapshot(directory)
    with manual_log(directory) as log:
        assert () == log.recovery_report.cut
        assert 2 == log.recovery_report.scanned_segments
        log.append(numbered(BATCHES, 1))
        assert BATCHES == log.segments()[-1].base_offset
    with manual_log(directory) as log:
        assert expected_values(4) == values(log)


def test_garbage_first_segment_is_truncated_to_an_empty_log(directory: Path) -> None:
    """The first write of the log was torn; its bytes are kept."""
    directory.mkdir()
    log_file(directory).write_bytes(b"torn")
    with manual_log(directory) as log:
        assert (0, 0) == (log.log_start_offset, log.log_end_offset)
        assert [] == values(log)
        log.append(numbered(0, 1))
    assert b"torn" == broken(directory, 0).read_bytes()
    with manual_log(directory) as log:
        assert expected_values(1) == values(log)


def test_torn_tail_not_truncated_yet_is_handled_again(directory: Path) -> None:
    """A crash between side file and truncation: the next start repeats both."""
    end = make_log(directory)[-1]
    splice(log_file(directory), end, b"torn")
    broken(directory, end).write_bytes(b"torn")
    with manual_log(directory) as log:
        assert (end, 4) == (
            log.recovery_report.cut[0].position,
            log.recovery_report.cut[0].size_bytes,
        )
    assert b"torn" == broken(directory, end).read_bytes()
    assert 1 == len(list(directory.glob("*.broken")))
