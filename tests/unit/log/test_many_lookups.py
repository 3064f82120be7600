"""`get_many` and `offsets_for_timestamps` of one log: order, limits, damage, caches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkalog import CorruptRecordError, Log, LogClosedError, OffsetOutOfRangeError, Record
from tests.support.damage import batch_positions, flip, log_file
from tests.support.logs import manual_log, numbered


@pytest.fixture(name="directory")
def fixture_directory(tmp_path: Path) -> Path:
    """A partition directory that does not exist yet."""
    return tmp_path / "orders-0"


def filled(directory: Path, **changes: Any) -> Log:
    """Return a log of 300 records in several segments."""
    log = manual_log(
        directory, segment_bytes=2000, batch_bytes=300, index_interval_bytes=100, **changes
    )
    for first in range(0, 300, 20):
        log.append(numbered(first, 20))
    return log


@pytest.mark.parametrize("compression", ["producer", "gzip"])
@pytest.mark.parametrize("read_only", [False, True])
def test_get_many_keeps_order_and_repetitions(
    compression: str, read_only: bool, directory: Path
) -> None:
    """Over all segments; the log end has no record."""
    filled(directory, compression_type=compression).close()
    with manual_log(directory, read_only=read_only) as log:
        records: list[Record | None] = [*log.records(), None]
        for offsets in ([], [5], [300], [299, 0, 150, 0, 299], list(range(300, -1, -1))):
            assert [records[offset] for offset in offsets] == log.get_many(offsets)
        assert records[:300] == log.get_many(np.arange(300, dtype=np.int32))


def test_get_many_has_the_limits_of_get(directory: Path) -> None:
    """Below the high watermark, from the log start on, while the log grows."""
    with filled(directory) as log:
        log.set_high_watermark(100)
        assert [True, False] == [each is not None for each in log.get_many([99, 100])]
        log.set_high_watermark(None)
        log.delete_records(50)
        for offsets in ([49, 60], [60, 301], [-1]):
            with pytest.raises(OffsetOutOfRangeError):
                log.get_many(offsets)
        assert [None] == log.get_many([300])
        log.append(numbered(300, 1))
        (found,) = log.get_many([300])
        assert found is not None
        with pytest.raises(TypeError, match="integers"):
            log.get_many([1.5])  # type: ignore[list-item]
        with pytest.raises(ValueError, match="one-dimensional"):
            log.get_many(np.zeros((2, 2), np.int64))
    with pytest.raises(LogClosedError):
        log.get_many([])
    with pytest.raises(LogClosedError):
        log.get_many([60])
    with pytest.raises(LogClosedError):
        log.offsets_for_timestamps([60])


def test_get_many_damage_raises_and_other_batches_are_found(directory: Path) -> None:
    """As `get` does, after any earlier look-up."""
    with manual_log(directory) as log:
        for first in range(0, 30, 10):
            log.append(numbered(first, 10))
        position = batch_positions(log_file(directory))[1]
    flip(log_file(directory), position + 70)
    with manual_log(directory, read_only=True) as log:
        expected = [*range(10), *range(20, 30)]
        assert expected == [each.offset for each in log.get_many(expected) if each is not None]
        with pytest.raises(CorruptRecordError):
            log.get_many([5, 15, 25])


def test_get_with_cached_batch_equals_first_read(directory: Path) -> None:
    """Cached positions lead to the same records, in every order."""
    with filled(directory) as log:
        records = list(log.records())
        for step in (1, 7, 113):
            offsets = [number * step % 300 for number in range(600)]
            assert [records[offset] for offset in offsets] == [log.get(each) for each in offsets]


@given(
    times=st.lists(st.integers(0, 60), min_size=1, max_size=30),
    targets=st.lists(st.integers(0, 70), max_size=12),
    compression=st.sampled_from(["producer", "gzip"]),
    hidden=st.integers(0, 5),
)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_offsets_for_timestamps_equal_single_look_ups(
    times: list[int], targets: list[int], compression: str, hidden: int, tmp_path: Path
) -> None:
    """Times in any order, equal ones, none above, some beyond the limit of readers."""
    directory = tmp_path / f"{len(list(tmp_path.iterdir()))}-0"
    with manual_log(
        directory, batch_bytes=150, segment_bytes=500, compression_type=compression
    ) as log:
        log.append([Record(value=b"v" * 20, timestamp_ms=time) for time in times])
        log.set_high_watermark(max(len(times) - hidden, 0))
        log.delete_records(min(hidden, log.high_watermark))
        found = log.offsets_for_timestamps(targets)
        single = [log.offset_for_timestamp(time) for time in targets]
        assert [-1 if each is None else each.offset for each in single] == found.tolist()
        assert found.dtype == np.int64


def test_offsets_for_timestamps_negative_time_is_refused(directory: Path) -> None:
    """Kafka's values for earliest and latest are for single look-ups."""
    with filled(directory) as log, pytest.raises(ValueError, match="must be >= 0, got -1"):
        log.offsets_for_timestamps([5, -1])
