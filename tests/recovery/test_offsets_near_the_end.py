"""Offsets near 2^63, as arguments and as names of files: typed errors, and a working log."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog import OffsetOverflowError, Record, examine_directories
from kafkalog.files.names import MAX_BASE_OFFSET
from tests.support.damage import log_file
from tests.support.logs import manual_log, numbered


@pytest.mark.parametrize("offset", [MAX_BASE_OFFSET + 1, 2**63 - 10, 2**63 - 1])
def test_truncate_fully_beyond_the_largest_base_offset_raises(directory: Path, offset: int) -> None:
    """HOST-8: it raises before any file is removed."""
    with manual_log(directory) as log:
        log.append(numbered(0, 3))
        with pytest.raises(OffsetOverflowError, match="at most"):
            log.truncate_fully_and_start_at(offset)
        assert 3 == log.append(numbered(3, 1)).first_offset
    with manual_log(directory) as log:
        assert 4 == len(list(log.records()))


def test_log_at_the_largest_base_offset_reopens(directory: Path) -> None:
    """HOST-8: such a log can be closed, opened and read."""
    with manual_log(directory) as log:
        log.truncate_fully_and_start_at(MAX_BASE_OFFSET)
        log.append([Record(value=b"last")])
    for read_only in (True, False):
        with manual_log(directory, read_only=read_only) as log:
            assert [MAX_BASE_OFFSET] == [record.offset for record in log.records()]


@pytest.mark.parametrize("suffix", ["", ".swap"])
def test_file_with_an_invalid_base_offset_is_ignored(directory: Path, suffix: str) -> None:
    """HOST-8: reads and writes work; the file stays, and report and doctor name it."""
    with manual_log(directory) as log:
        log.append(numbered(0, 3))
    odd = log_file(directory).with_name(f"09223372036854775807.log{suffix}")
    odd.write_bytes(b"")
    for read_only in (True, False):
        with manual_log(directory, read_only=read_only) as log:
            assert 3 == len(list(log.records()))
            assert (odd,) == log.recovery_report.ignored
            assert f"{odd.name} is not a segment" in log.recovery_report.summary()
    found = [e for e in examine_directories([directory]).findings if e.check == "files.misnamed"]
    assert [(odd,)] == [each.paths for each in found]
    assert odd.exists()
