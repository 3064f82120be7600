"""Log level of a rebuilt index: a warning only if the disk should be checked."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest

from kafkalog.files.names import SegmentFiles
from tests.support.logs import manual_log, numbered

INDEXES = (".index", ".timeindex")


@pytest.fixture
def closed(directory: Path) -> Path:
    """Return a cleanly closed log of several segments."""
    with manual_log(directory, segment_bytes=2000, index_interval_bytes=100) as log:
        for first in range(0, 100, 5):
            log.append(numbered(first, 5))
        assert len(log.segments()) > 1
    return directory


def messages(closed: Path, caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Open the log, read its first segment's indexes, and return level and text of log messages."""
    caplog.set_level(logging.INFO, logger="kafkalog.indexes")
    with manual_log(closed, segment_bytes=2000, index_interval_bytes=100) as log:
        segment = log.segments()[0]
        assert len(segment.offset_index.view) > 0
        assert len(segment.time_index.view) > 0
    return [(record.levelname, record.getMessage()) for record in caplog.records]


@pytest.mark.parametrize("suffix", INDEXES)
def test_missing_index_is_logged_as_info(
    closed: Path, caplog: pytest.LogCaptureFixture, suffix: str
) -> None:
    """No data is lost: the index is rebuilt from its log."""
    path = SegmentFiles(closed, 0).log.with_suffix(suffix)
    path.unlink()
    ((level, text),) = messages(closed, caplog)
    assert "INFO" == level
    assert f"{path} is missing: rebuilt from its log" in text


@pytest.mark.parametrize("suffix", INDEXES)
def test_untrimmed_index_is_logged_as_info(
    closed: Path, caplog: pytest.LogCaptureFixture, suffix: str
) -> None:
    """A crash before the trim leaves zeros at the end."""
    path = SegmentFiles(closed, 0).log.with_suffix(suffix)
    path.write_bytes(path.read_bytes() + bytes(240))
    ((level, text),) = messages(closed, caplog)
    assert "INFO" == level
    assert f"{path} ends in zeros" in text


@pytest.mark.parametrize("suffix", INDEXES)
def test_damaged_index_is_logged_as_warning(
    closed: Path, caplog: pytest.LogCaptureFixture, suffix: str
) -> None:
    """kafkalog never wrote these bytes: a disk or another program changed them."""
    path = SegmentFiles(closed, 0).log.with_suffix(suffix)
    path.write_bytes(random.Random(3).randbytes(path.stat().st_size))
    ((level, text),) = messages(closed, caplog)
    assert "WARNING" == level
    assert f"{path} is damaged" in text


def test_wrong_index_entry_found_by_a_look_up_is_logged_as_warning(
    closed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The entries are in order and in range, but belong to another log."""
    path = SegmentFiles(closed, 0).time_index
    data = bytearray(path.read_bytes())
    data[7] += 1
    path.write_bytes(data)
    caplog.set_level(logging.INFO, logger="kafkalog.indexes")
    with manual_log(closed, segment_bytes=2000, index_interval_bytes=100) as log:
        entry = log.segments()[0].time_index.view.entry(0)
        log.offset_for_timestamp(entry[0] + 1)
    ((level, text),) = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert ("WARNING", True) == (level, f"{path} is wrong" in text)
