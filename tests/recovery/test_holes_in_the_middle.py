"""Segments with holes of gigabytes and data after them: no read walks through the holes.

To read a hole fills memory page by page, which the faults of the process show: 8 GiB take more than
a hundred thousand even if the system loads sixteen pages at once.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafkalog import Log, Record
from kafkalog._core.builder import BatchBuilder
from tests.support.damage import forget_shutdown, log_file
from tests.support.logs import manual_log
from tests.support.scanning import rows_of_scan

HOLE_BYTES = 8 << 30
FAULTS_MAX = 60_000
COUNT = 6


@contextmanager
def few_faults() -> Iterator[None]:
    """Assert that the block has fewer page faults than a walk through the hole."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < FAULTS_MAX


def batches() -> list[bytes]:
    """Return encoded batches of one record each."""
    found = []
    for number in range(COUNT):
        record = Record(value=b"value %d" % number * 9, timestamp_ms=1_700_000_000_000 + number)
        found.append(record)
    return [_encoded(number, record) for number, record in enumerate(found)]


def _encoded(offset: int, record: Record) -> bytes:
    builder = BatchBuilder()
    builder.append(record.key, record.value, record.timestamp_ms)
    return bytes(builder.finish(base_offset=offset))


def write(path: Path, before: bytes, behind: bytes, *, odd: int = 0) -> None:
    """Write a file with a hole between two parts; `odd` moves the second off a block's start."""
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as file:
        file.write(before)
        file.seek(len(before) + HOLE_BYTES + odd)
        file.write(behind)
    assert path.stat().st_blocks * 512 < 1 << 20, "the file system makes no holes"


def served(log: Log) -> list[int]:
    """Return the offsets served around damage, which are the same by every read API."""
    offsets = [record.offset for record in log.records(on_corrupt="skip")]
    rows, error = rows_of_scan(log.scan(columns=["offset"], on_corrupt="skip"))
    assert (offsets, None) == ([offset for (offset,) in rows], error)
    found = [log.get(offset) for offset in offsets]
    assert [None if each is None else each.offset for each in found] == offsets
    log.offset_for_timestamp(1_700_000_000_000 + COUNT)
    return offsets


def openings(directory: Path) -> Iterator[Log]:
    """Open read-only, for writing, and again after a kill."""
    for read_only in (True, False):
        with manual_log(directory, read_only=read_only) as log:
            yield log
    forget_shutdown(directory)
    with manual_log(directory) as log:
        yield log


@pytest.mark.parametrize("odd", [0, 4093])
def test_hole_between_batches_is_skipped_and_reported(tmp_path: Path, odd: int) -> None:
    """The batches after it are served, at a block's start or not."""
    encoded = batches()
    directory = tmp_path / "t-0"
    write(log_file(directory, 0), b"".join(encoded[:3]), b"".join(encoded[3:]), odd=odd)
    with few_faults():
        for log in openings(directory):
            assert list(range(COUNT)) == served(log)
            assert log.log_end_offset == COUNT
    with manual_log(directory) as log:
        assert COUNT == log.append([Record(value=b"new")]).first_offset


def test_hole_between_batches_of_a_sealed_segment_is_skipped(
    tmp_path: Path,
) -> None:
    """The batches after the hole are served, as in the last segment."""
    encoded = batches()
    directory = tmp_path / "t-0"
    write(log_file(directory, 0), b"".join(encoded[:2]), b"".join(encoded[2:4]))
    log_file(directory, 4).write_bytes(b"".join(encoded[4:]))
    with few_faults():
        for log in openings(directory):
            assert list(range(COUNT)) == served(log)


def test_hole_after_a_damaged_length_costs_one_batch(tmp_path: Path) -> None:
    """The length leads into the hole, which is not read."""
    encoded = batches()
    damaged = bytearray(encoded[2])
    damaged[8:12] = (1 << 24).to_bytes(4)
    directory = tmp_path / "t-0"
    before = b"".join([*encoded[:2], bytes(damaged)])
    write(log_file(directory, 0), before, b"".join(encoded[3:]))
    with few_faults():
        for log in openings(directory):
            assert [0, 1, 3, 4, 5] == served(log)


def test_hole_before_junk_is_truncated_and_kept_as_a_hole(tmp_path: Path) -> None:
    """A torn tail of gigabytes: its copy has the hole too."""
    encoded = batches()
    directory = tmp_path / "t-0"
    write(log_file(directory, 0), b"".join(encoded), b"junk" * 10)
    with few_faults(), manual_log(directory) as log:
        assert list(range(COUNT)) == served(log)
        (cut,) = log.recovery_report.cut
        assert cut.kept_in is not None
        facts = cut.kept_in.stat()
    assert facts.st_size == HOLE_BYTES + 40
    assert facts.st_blocks * 512 < 1 << 20
    with cut.kept_in.open("rb") as file:
        file.seek(HOLE_BYTES)
        assert file.read() == b"junk" * 10
