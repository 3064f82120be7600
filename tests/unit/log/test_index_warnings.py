"""What is told of an index that is made anew: a warning only where a disk should be looked at."""

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
    """Return a log of several segments that was closed in order."""
    with manual_log(directory, segment_bytes=2000, index_interval_bytes=100) as log:
        for first in range(0, 100, 5):
            log.append(numbered(first, 5))
        assert len(log.segments()) > 1
    return directory


def messages(closed: Path, caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Open the log, ask its first segment's indexes, and return level and text of what is told."""
    caplog.set_level(logging.INFO, logger="kafkalog.indexes")
    with manual_log(closed, segment_bytes=2000, index_interval_bytes=100) as log:
        segment = log.segments()[0]
        assert len(segment.offset_index.view) > 0
        assert len(segment.time_index.view) > 0
    return [(record.levelname, record.getMessage()) for record in caplog.records]


@pytest.mark.parametrize("suffix", INDEXES)
def test_missing_index_is_told_as_news(
    closed: Path, caplog: pytest.LogCaptureFixture, suffix: str
) -> None:
    """Nothing is lost, and nothing is wrong."""
    path = SegmentFiles(closed, 0).log.with_suffix(suffix)
    path.unlink()
    ((level, text),) = messages(closed, caplog)
    assert "INFO" == level
    assert f"{path} is missing: rebuilt from its log" in text


@pytest.mark.parametrize("suffix", INDEXES)
def test_index_that_was_not_trimmed_is_told_as_news(
    closed: Path, caplog: pytest.LogCaptureFixture, suffix: str
) -> None:
    """A crash before the trim leaves it so."""
    path = SegmentFiles(closed, 0).log.with_suffix(suffix)
    path.write_bytes(path.read_bytes() + bytes(240))
    ((level, text),) = messages(closed, caplog)
    assert "INFO" == level
    assert f"{path} ends in zeros" in text


@pytest.mark.parametrize("suffix", INDEXES)
def test_damaged_index_is_a_warning(
    closed: Path, caplog: pytest.LogCaptureFixture, suffix: str
) -> None:
    """Nobody wrote that: a disk, or a hand, has changed it."""
    path = SegmentFiles(closed, 0).log.with_suffix(suffix)
    path.write_bytes(random.Random(3).randbytes(path.stat().st_size))
    ((level, text),) = messages(closed, caplog)
    assert "WARNING" == level
    assert f"{path} is damaged" in text


def test_index_that_leads_a_look_up_astray_is_a_warning(
    closed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In order and in range, but not of this log."""
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
