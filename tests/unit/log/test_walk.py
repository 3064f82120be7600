"""Walks over batches whose base offset, which no CRC covers, was changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog import LogConfig, Record, open_log
from kafkalog._core.batch import BatchColumns
from kafkalog._core.builder import BatchBuilder
from kafkalog._core.status import STATUS_CODES
from kafkalog.log.walk import walk_batches

COUNTS = (3, 1, 4, 2, 5)
LIMIT = 2**31 - 1


def batch(base_offset: int, count: int) -> bytes:
    builder = BatchBuilder()
    for number in range(count):
        builder.append(None, b"%d" % (base_offset + number), 1000)
    return bytes(builder.finish(base_offset=base_offset))


def batches(bases: list[int]) -> bytes:
    return b"".join(batch(base, count) for base, count in zip(bases, COUNTS, strict=True))


def true_bases() -> list[int]:
    return [sum(COUNTS[:number]) for number in range(len(COUNTS))]


def with_base(data: bytes, number: int, base_offset: int) -> bytes:
    """Return the batches with another base offset in one of them; its CRC stays right."""
    start = len(b"".join(batch(*pair) for pair in zip(true_bases()[:number], COUNTS, strict=False)))
    return data[:start] + base_offset.to_bytes(8, "big") + data[start + 8 :]


@pytest.mark.parametrize("number", range(len(COUNTS)))
@pytest.mark.parametrize("bit", range(63))
def test_log_with_one_flipped_base_offset_loses_that_batch_only(
    tmp_path: Path, number: int, bit: int
) -> None:
    """All other batches are served under their own offsets, read-only and for writing."""
    bases = true_bases()
    flipped = bases[number] ^ (1 << bit)
    path = tmp_path / "t-0"
    path.mkdir()
    log_file = path / f"{0:020}.log"
    log_file.write_bytes(with_base(batches(bases), number, flipped))
    others = {
        base + each
        for other, (base, count) in enumerate(zip(bases, COUNTS, strict=True))
        if other != number
        for each in range(count)
    }
    # After the last batch there is no neighbour that could contradict an offset that is too high.
    unprovable = number == len(COUNTS) - 1 and bases[number] < flipped <= LIMIT - COUNTS[number]

    for read_only in (True, False):
        with open_log(path, read_only=read_only, config=LogConfig(segment_bytes=LIMIT)) as log:
            served = {record.offset: record.value for record in log.records(on_corrupt="skip")}
            has_report = bool(log.corrupt_ranges() or log.recovery_report.cut)
        assert others <= served.keys()
        assert {offset: b"%d" % offset for offset in others} == {
            offset: served[offset] for offset in others
        }
        assert unprovable or others == served.keys()
        assert unprovable or has_report


def test_log_after_a_wrong_offset_appends_at_its_true_end(tmp_path: Path) -> None:
    """The log end comes from the accepted batches."""
    path = tmp_path / "t-0"
    path.mkdir()
    data = with_base(batches(true_bases()), 2, 1 << 20)
    (path / f"{0:020}.log").write_bytes(data)

    with open_log(path) as log:
        assert sum(COUNTS) == log.append([Record(value=b"new")]).first_offset
        assert (4, 8) == (log.corrupt_ranges()[0].first_offset, log.corrupt_ranges()[0].next_offset)


def test_walk_either_of_two_offsets_wrong_rejects_both() -> None:
    """In a log with holes the offsets around do not decide."""
    bases = [0, 10, 12, 30, 40]
    data = batches([0, 10, 12, 30, 40])
    start = len(batch(0, 3)) + len(batch(10, 1))
    lowered = data[:start] + (5).to_bytes(8, "big") + data[start + 8 :]

    walk = walk_batches(memoryview(lowered), 0, BatchColumns(8), next_offset=0, offset_max=LIMIT)

    assert (1, STATUS_CODES["OFFSET_ORDER"], 3) == (walk.count, walk.status, walk.next_offset)
    assert start + len(batch(bases[2], COUNTS[2])) == walk.resume_min


def test_walk_full_columns_still_checks_the_next_batch() -> None:
    """The last batch of a chunk is accepted only once the next one agrees."""
    data = with_base(batches(true_bases()), 1, 50)

    walk = walk_batches(memoryview(data), 0, BatchColumns(2), next_offset=0, offset_max=LIMIT)

    assert (1, STATUS_CODES["OFFSET_ORDER"]) == (walk.count, walk.status)
    assert len(batch(0, 3)) == walk.position
