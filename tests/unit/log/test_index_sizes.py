"""Index files that are larger than their segment permits."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog import Record, open_log
from kafkalog.files.names import SegmentFiles
from kafkalog.files.posix import PosixFileHandle
from tests.support.logs import expected_indexes, index_files

HUGE_BYTES = 4 << 30


@pytest.mark.parametrize("fill", [b"", b"\1" * 1_000_000], ids=["a hole", "a megabyte"])
@pytest.mark.parametrize("read_only", [True, False], ids=["read-only", "writable"])
def test_index_larger_than_its_segment_permits_is_not_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_only: bool, fill: bytes
) -> None:
    """HOST-11: its size alone proves it wrong; look-ups succeed, and a writer rebuilds it."""
    directory = tmp_path / "orders-0"
    with open_log(directory) as log:
        for number in range(60):
            log.append([Record(value=b"%d" % number * 60)])
        log.roll()
        log.append([Record(value=b"z")])
        interval = log.config.index_interval_bytes
    files = SegmentFiles(directory, 0)
    for path in (files.offset_index, files.time_index):
        with path.open("r+b") as file:
            file.seek(0, 2)
            file.write(fill)
            file.truncate(HUGE_BYTES)
    mapped: list[int] = []
    whole = PosixFileHandle.map

    def noted(handle: PosixFileHandle, size: int) -> memoryview:
        mapped.append(size)
        return whole(handle, size)

    monkeypatch.setattr(PosixFileHandle, "map", noted)
    with open_log(directory, read_only=read_only) as log:
        record = log.get(50)
        assert record is not None
        assert b"50" * 60 == record.value
        found = log.offset_for_timestamp(record.timestamp_ms)
        assert found is not None
        assert found.offset <= 50
    assert HUGE_BYTES not in mapped
    if not read_only:
        assert expected_indexes(directory, 0, interval) == index_files(directory, 0)
