"""Truncation and deletion of records: removed and kept records, files and checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog import Log, LogConfig, OffsetOutOfRangeError, Record, open_log
from kafkalog.files.names import LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from kafkalog.files.posix import PosixFileSystem
from kafkalog.model import TopicPartition
from kafkalog.state.checkpoints import OffsetCheckpoint
from tests.support.logs import expected_indexes, index_files, manual_log, numbered
from tests.support.manual_time import START_MS, ManualScheduler

ORDERS = TopicPartition("orders", 0)


def filled(directory: Path, scheduler: ManualScheduler | None = None) -> Log:
    """Return a log of 200 numbered records in batches of ten, several segments."""
    log = manual_log(directory, scheduler=scheduler, segment_bytes=600, index_interval_bytes=100)
    for first in range(0, 200, 10):
        log.append(numbered(first, 10))
    return log


def offsets(log: Log) -> list[int]:
    """Return the offsets of all records."""
    return [record.offset for record in log.records()]


def checkpoint(directory: Path, name: str) -> int | None:
    """Return the value in a checkpoint of a standalone partition."""
    return OffsetCheckpoint(PosixFileSystem(), directory / name).read().get(ORDERS)


def names(directory: Path) -> list[str]:
    """Return the names in a directory."""
    return sorted(path.name for path in directory.iterdir())


# -- truncate_to -------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [0, 1, 9, 10, 11, 95, 100, 190, 195, 199, 200])
def test_truncate_removes_every_batch_that_reaches_the_offset(directory: Path, target: int) -> None:
    """A batch that straddles the target is removed as a whole; the next offset is the target."""
    kept = list(range(target // 10 * 10))
    with filled(directory) as log:
        assert target == log.truncate_to(target)
        assert target == log.log_end_offset
        assert kept == offsets(log)
        assert target == log.append([Record(value=b"next")]).first_offset
        assert [*kept, target] == offsets(log)
    with manual_log(directory) as log:
        assert [*kept, target] == offsets(log)


@pytest.mark.parametrize("target", [0, 5, 95, 100, 195])
def test_truncate_survives_reopening_before_the_next_append(directory: Path, target: int) -> None:
    """No offset below the target is assigned twice."""
    with filled(directory) as log:
        log.truncate_to(target)
    with manual_log(directory) as log:
        assert target == log.log_end_offset
        assert list(range(target // 10 * 10)) == offsets(log)


@pytest.mark.parametrize("target", [200, 201, 10_000])
def test_truncate_at_or_above_the_end_changes_nothing(directory: Path, target: int) -> None:
    """There is nothing to remove, and no gap is created."""
    with filled(directory) as log:
        before = log.segments()
        assert 200 == log.truncate_to(target)
        assert before == log.segments()


def test_truncate_below_the_log_start_removes_all(directory: Path) -> None:
    """The log starts and ends at the target."""
    with filled(directory) as log:
        log.delete_records(150)
        assert 20 == log.truncate_to(20)
        assert (20, 20, []) == (log.log_start_offset, log.log_end_offset, offsets(log))
        log.append(numbered(20, 2))
    with manual_log(directory) as log:
        assert [20, 21] == offsets(log)


def test_truncate_rebuilds_the_indexes_of_kept_batches(directory: Path) -> None:
    """No entry is above the cut; after more appends the files equal those without a cut."""
    with filled(directory) as log:
        log.truncate_to(130)
        for first in range(130, 180, 10):
            log.append(numbered(first, 10))
        bases = [segment.base_offset for segment in log.segments()]
    for base in bases:
        assert expected_indexes(directory, base, 100) == index_files(directory, base)


def test_truncate_removes_timestamps_of_cut_records(directory: Path) -> None:
    """The largest timestamp, look-ups and rolls by time use the kept records only."""
    with manual_log(directory, segment_ms=1000, index_interval_bytes=0) as log:
        log.append([Record(value=b"a", timestamp_ms=START_MS)])
        log.append([Record(value=b"b", timestamp_ms=START_MS + 900)])
        log.truncate_to(1)
        assert START_MS == log.segments()[0].max_timestamp
        assert log.offset_for_timestamp(START_MS + 1) is None
        log.truncate_to(0)
        assert -1 == log.segments()[0].max_timestamp
        log.append([Record(value=b"c", timestamp_ms=START_MS + 5000)])
        log.append([Record(value=b"d", timestamp_ms=START_MS + 6000)])
        assert 1 == len(log.segments())


def test_truncate_lowers_the_durable_offset_and_its_checkpoint(directory: Path) -> None:
    """The records that replace the cut ones are not synced."""
    with filled(directory) as log:
        assert 200 == log.flush()
        log.truncate_to(100)
        assert (100, 100) == (log.durable_offset, log.durable_offset)
        assert 100 == checkpoint(directory, RECOVERY_POINT_CHECKPOINT)
        log.append(numbered(100, 10))
        assert 100 == log.durable_offset
        assert 110 == log.flush()


def test_truncate_unlinks_files_after_the_delay(directory: Path) -> None:
    """Removed segments are renamed at once and unlinked after `file.delete.delay.ms`."""
    scheduler = ManualScheduler()
    with filled(directory, scheduler) as log:
        log.truncate_to(50)
        deleted = [name for name in names(directory) if name.endswith(".deleted")]
        assert len(deleted) > 6
        scheduler.advance(59_999)
        assert deleted == [name for name in names(directory) if name.endswith(".deleted")]
        scheduler.advance(1)
        assert [] == [name for name in names(directory) if name.endswith(".deleted")]
        assert [] == scheduler.errors
        assert list(range(50)) == offsets(log)


def test_close_unlinks_deleted_files(directory: Path) -> None:
    """The log has no readers any more, and the next opening need not remove the files."""
    with filled(directory, ManualScheduler()) as log:
        log.truncate_to(50)
        log.delete_records(30)
    assert [] == [name for name in names(directory) if name.endswith(".deleted")]


def test_truncate_removes_entries_of_cut_aborted_transactions(directory: Path) -> None:
    """Other entries stay. `test_producers` has the tests of producer snapshots."""
    with filled(directory) as log:
        base = log.segments()[1].base_offset
        entry = bytes(18) + (base + 2).to_bytes(8, "big") + bytes(8)
        later = bytes(18) + (base + 12).to_bytes(8, "big") + bytes(8)
        index = directory / f"{base:020}.txnindex"
        index.write_bytes(entry + later)
        log.truncate_to(base + 10)
        assert entry == index.read_bytes()


@pytest.mark.parametrize("offset", [-1, -(2**63)])
def test_truncate_to_a_negative_offset_is_refused(directory: Path, offset: int) -> None:
    """Offsets begin at 0."""
    with filled(directory) as log:
        for call in (log.truncate_to, log.truncate_fully_and_start_at):
            with pytest.raises(ValueError, match="offset must be >= 0"):
                call(offset)
        assert 200 == log.log_end_offset


@pytest.mark.parametrize("offset", [0, 100, 200, 5000, 2**40])
def test_truncate_fully_begins_at_the_offset(directory: Path, offset: int) -> None:
    """Below, within, at and above the old range; also after a reopening."""
    with filled(directory) as log:
        log.truncate_fully_and_start_at(offset)
        assert (offset, offset, []) == (log.log_start_offset, log.log_end_offset, offsets(log))
    with manual_log(directory) as log:
        assert (offset, offset) == (log.log_start_offset, log.log_end_offset)
        log.append(numbered(0, 2))
        assert [offset, offset + 1] == offsets(log)


@settings(max_examples=40)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(1, 12)),
            st.tuples(st.just("truncate"), st.integers(0, 60)),
            st.tuples(st.just("delete"), st.integers(0, 60)),
            st.tuples(st.just("reopen"), st.just(0)),
        ),
        max_size=25,
    )
)
def test_any_order_of_changes_equals_the_model(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    """The model has batches of (offset, value), a start and an end."""
    directory = tmp_path_factory.mktemp("model") / "orders-0"
    config = LogConfig(segment_bytes=400, index_interval_bytes=50, file_delete_delay_ms=0)
    batches: list[list[tuple[int, bytes | None]]] = []
    start = end = serial = 0
    log = open_log(directory, config=config)
    try:
        for step, number in steps:
            if step == "append":
                values = [b"%d" % (serial + extra) for extra in range(number)]
                serial += number
                log.append([Record(value=value) for value in values])
                batches.append([(end + row, value) for row, value in enumerate(values)])
                end += number
            elif step == "truncate" and number < end:
                log.truncate_to(number)
                batches = [batch for batch in batches if batch[-1][0] < number]
                start, end = min(start, number), number
            elif step == "delete" and number <= end:
                log.delete_records(number)
                start = max(start, number)
            elif step == "reopen":
                log.close()
                log = open_log(directory, config=config)
            expected = [pair for batch in batches for pair in batch if pair[0] >= start]
            assert (start, end) == (log.log_start_offset, log.log_end_offset)
            assert expected == [(record.offset, record.value) for record in log.records()]
    finally:
        log.close()


# -- delete_records ---------------------------------------------------------------------


def test_delete_records_moves_the_start_into_a_batch(directory: Path) -> None:
    """Readers get nothing below it, although the batch is whole on disk."""
    with filled(directory) as log:
        assert 5 == log.delete_records(5)
        assert (5, 200) == (log.log_start_offset, log.log_end_offset)
        assert list(range(5, 200)) == offsets(log)
        assert 0 == next(log.batches()).base_offset
        assert 0 == log.segments()[0].base_offset


def test_delete_records_removes_segments_below(directory: Path) -> None:
    """A segment is removed when its last offset is below the start, not before."""
    with filled(directory) as log:
        second = log.segments()[1].base_offset
        log.delete_records(second - 1)
        assert 0 == log.segments()[0].base_offset
        log.delete_records(second)
        assert second == log.segments()[0].base_offset
        assert list(range(second, 200)) == offsets(log)


def test_delete_records_up_to_the_end_keeps_the_active_segment(directory: Path) -> None:
    """The log is empty for readers, and its next offset stays."""
    with filled(directory) as log:
        assert 200 == log.delete_records(200)
        assert ([], 1) == (offsets(log), len(log.segments()))
        assert 200 == log.append(numbered(200, 1)).first_offset
    with manual_log(directory) as log:
        assert (200, [200]) == (log.log_start_offset, offsets(log))


def test_delete_records_is_checkpointed_at_once(directory: Path) -> None:
    """A crash must not restore records; after the close a segment's name may have the start."""
    with filled(directory) as log:
        log.delete_records(33)
        assert 33 == checkpoint(directory, LOG_START_OFFSET_CHECKPOINT)
        second = log.segments()[1].base_offset
        log.delete_records(second)
    assert checkpoint(directory, LOG_START_OFFSET_CHECKPOINT) is None
    with manual_log(directory) as log:
        assert second == log.log_start_offset


@pytest.mark.parametrize("offset", [0, 49, 50])
def test_delete_records_never_moves_the_start_back(directory: Path, offset: int) -> None:
    """At or below the start there is nothing to delete."""
    with filled(directory) as log:
        log.delete_records(50)
        assert 50 == log.delete_records(offset)
        assert 50 == log.log_start_offset


def test_delete_records_above_the_end_is_refused(directory: Path) -> None:
    """The error has the range, and nothing changed."""
    with filled(directory) as log:
        with pytest.raises(OffsetOutOfRangeError) as caught:
            log.delete_records(201)
        assert (201, 0, 200) == (
            caught.value.requested,
            caught.value.log_start_offset,
            caught.value.log_end_offset,
        )
        assert 200 == len(offsets(log))
