"""Every damaged and hostile input that a broker was given, next to a good batch in one segment.

The directory opens with any bytes, for writing and read-only; whole batches around them are served
and none is removed; truncated bytes are kept in a file next to the log.
"""

from __future__ import annotations

import struct
from typing import Any

import pytest

from kafkalog import Log
from kafkalog._core.assign_offsets import assign_offsets
from kafkalog.errors import CorruptRecordError, InvalidRecordError, KafkaLogError
from kafkalog.files.names import SegmentFiles
from kafkalog.log.scanner import scan_segment
from tests.support.crash_rig import ALONE, LogSetup, Rig
from tests.support.golden import vectors
from tests.support.model import RecordFact, record_fact
from tests.support.simulated_disk import SimulatedDisk

CASES: list[dict[str, Any]] = vectors("invalid")["cases"]

# Far above what any case holds, and still within the reach of a segment that begins at 0.
LATE_OFFSET = 2**31 - 1000
PLACE = LogSetup("bad", ALONE.directory, ALONE.config.replace(segment_bytes=1 << 20))
LOG_FILE = SegmentFiles(PLACE.directory, 0).log


def good_batch(base_offset: int) -> tuple[bytes, list[RecordFact]]:
    """Return a whole batch of three records at an offset, and the records."""
    rig = Rig(PLACE)
    rig.open()
    rig.append(3)
    data = bytearray(bytes(next(iter(rig.log.batches())).data))
    rig.release()
    assign_offsets(data, base_offset=base_offset)
    facts = [
        fact._replace(offset=offset)
        for offset, fact in enumerate(rig.model.served(), start=base_offset)
    ]
    return bytes(data), facts


EARLY, EARLY_RECORDS = good_batch(0)
LATE, LATE_RECORDS = good_batch(LATE_OFFSET)


def moved(data: bytes, base_offset: int) -> bytes:
    """Return a case whose first batch has another base offset; no CRC covers it."""
    return data if len(data) < 8 else struct.pack(">q", base_offset) + data[8:]


def disk_with(content: bytes) -> SimulatedDisk:
    """Return a disk that lost its power with `content` as the one segment of a log."""
    disk = PLACE.new_disk()
    disk.make_durable(PLACE.directory)
    handle = disk.open(LOG_FILE, create=True)
    handle.pwrite(content, 0)
    handle.close()
    disk.make_durable()
    return disk


def read_both_ways(log: Log) -> list[RecordFact]:
    """Read around damage; check that a read up to it gives the same, then a located error."""
    around = [record_fact(record) for record in log.records(on_corrupt="skip")]
    until: list[RecordFact] = []
    try:
        until.extend(record_fact(record) for record in log.records())
    except KafkaLogError as error:
        assert isinstance(error, (CorruptRecordError, InvalidRecordError))
        assert str(LOG_FILE) == error.path
        assert error.position is not None
        assert error.base_offset is not None
        assert str(LOG_FILE) in str(error)
        assert around[: len(until)] == until
    else:
        assert around == until
    return around


def kept_bytes(disk: SimulatedDisk) -> bytes:
    """Return the segment and the bytes truncated from it, in order, without truncated zeros."""
    files = disk.snapshot()
    broken = [data for path, data in sorted(files.items()) if path.endswith(".broken")]
    return (files[str(LOG_FILE)] or b"") + b"".join(data or b"" for data in broken)


@pytest.mark.parametrize("where", ["behind", "before"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_open_log_invalid_bytes_serves_whole_batches_around(
    case: dict[str, Any], where: str
) -> None:
    """The good batch before or after the bytes is served, and the bytes are kept."""
    raw = bytes.fromhex(case["hex"])
    before, behind = where == "behind", where == "before"
    middle = moved(raw, 3) if before else raw
    content = (EARLY if before else b"") + middle + (LATE if behind else b"")
    reached = scan_segment(memoryview(middle), LOG_FILE, base_offset=0, interval=4096).next_offset
    records = set(EARLY_RECORDS if before else ())
    if behind and reached <= LATE_OFFSET:
        records |= set(LATE_RECORDS)

    disk = disk_with(content)
    untouched = disk.fingerprint()
    reader = Rig(PLACE, disk)
    with reader.open(read_only=True) as log:
        seen = read_both_ways(log)
    assert records <= set(seen)
    assert untouched == disk.fingerprint()
    rig = Rig(PLACE, disk)
    log = rig.open()
    assert seen == read_both_ways(log)
    assert content.rstrip(b"\0") == kept_bytes(disk)[: len(content)].rstrip(b"\0")
    end = log.log_end_offset
    log.append(rig.records(2))
    log.close()
    with rig.open() as log:
        assert log.recovery_report.clean
        offsets = [record.offset for record in log.records(on_corrupt="skip")]
        assert [*(fact.offset for fact in seen), end, end + 1] == offsets
    rig.opened = None
