"""Reads by offset: slices, batches, records, across segments and holes, during every change."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pytest

from kafkalog import AppendOrigin, Log, LogClosedError, OffsetOutOfRangeError, Record
from tests.support.logs import append_sized, manual_log, numbered
from tests.support.manual_time import START_MS
from tests.support.producer_batches import Produced, encoded


def filled(directory: Path, **settings: Any) -> Log:
    """Return a log of 300 numbered records in batches of ten and several segments."""
    settings.setdefault("segment_bytes", 2000)
    log = manual_log(directory, index_interval_bytes=200, **settings)
    for first in range(0, 300, 10):
        log.append(numbered(first, 10))
    assert len(log.segments()) > 3
    return log


def test_read_returns_whole_stored_batches(directory: Path) -> None:
    """Data, batches and records are three views of the same bytes."""
    with filled(directory) as log:
        fetched = log.read(0)
        stored = log.segments()[0].path.read_bytes()
        assert stored == bytes(fetched.data)
        assert len(stored) == len(fetched) == fetched.size_bytes
        assert stored == b"".join(bytes(batch.data) for batch in fetched.batches())
        last = list(fetched.records())[-1]
        assert last.offset + 1 == fetched.next_offset
        assert (0, 0, 300) == (
            fetched.first_offset,
            fetched.log_start_offset,
            fetched.log_end_offset,
        )


def test_read_within_a_batch_returns_the_whole_batch(directory: Path) -> None:
    """The bytes begin with the batch, the records at the requested offset."""
    with filled(directory) as log:
        fetched = log.read(25, max_bytes=1)
        assert (20, 30) == (fetched.first_offset, fetched.next_offset)
        assert [25, 26, 27, 28, 29] == [record.offset for record in fetched.records()]


@pytest.mark.parametrize("max_bytes", [0, 1, 60, 99])
def test_read_first_batch_above_max_bytes_is_returned(directory: Path, max_bytes: int) -> None:
    """A reader makes progress with any buffer size."""
    with manual_log(directory) as log:
        append_sized(log, 100)
        append_sized(log, 100)
        fetched = log.read(0, max_bytes=max_bytes)
        assert 100 == len(fetched.data)
        assert 1 == fetched.next_offset


@pytest.mark.parametrize(("max_bytes", "whole"), [(0, 0), (99, 0), (100, 1), (199, 1), (200, 2)])
def test_read_without_min_one_batch_cuts_at_max_bytes(
    directory: Path, max_bytes: int, whole: int
) -> None:
    """The slice has exactly that size; a cut batch is in its bytes, not in its batches."""
    with manual_log(directory) as log:
        append_sized(log, 100)
        append_sized(log, 100)
        append_sized(log, 100)
        fetched = log.read(0, max_bytes=max_bytes, min_one_batch=False)
        assert max_bytes == len(fetched.data)
        assert whole == len(list(fetched.batches()))
        assert whole == fetched.next_offset


def test_read_at_the_log_end_is_empty(directory: Path) -> None:
    """A read at the end is not an error: a later append may add records."""
    with manual_log(directory) as log:
        for _time in range(2):
            fetched = log.read(log.log_end_offset)
            assert (b"", 0, None) == (bytes(fetched.data), fetched.size_bytes, fetched.first_offset)
            assert log.log_end_offset == fetched.next_offset
            assert [] == list(fetched.records())
            log.append(numbered(0, 5))


def test_delete_records_minus_1_is_refused(directory: Path) -> None:
    """A broker's -1, for the high watermark, must not become a deletion of nothing."""
    with filled(directory) as log:
        with pytest.raises(ValueError, match="high_watermark"):
            log.delete_records(-1)
        assert 0 == log.log_start_offset
        assert 300 == log.delete_records(log.high_watermark)


@pytest.mark.parametrize("offset", [-1, 99, 301, 2**63 - 1])
def test_read_out_of_range_error_has_the_range(directory: Path, offset: int) -> None:
    """For every read API."""
    with filled(directory) as log:
        log.delete_records(100)
        for read in (log.read, log.batches, log.records):
            with pytest.raises(OffsetOutOfRangeError, match="100 to 300") as caught:
                read(offset)
            assert (offset, 100, 300) == (
                caught.value.requested,
                caught.value.log_start_offset,
                caught.value.log_end_offset,
            )


def test_read_negative_max_bytes_is_refused(directory: Path) -> None:
    """-1 does not mean "unlimited"."""
    with manual_log(directory) as log, pytest.raises(ValueError, match="max_bytes"):
        log.read(0, max_bytes=-1)


def test_read_loop_returns_every_record_once(directory: Path) -> None:
    """`next_offset` of one read is the offset of the next, for every buffer size."""
    with filled(directory) as log:
        for max_bytes in (1, 150, 333, 1000, 100_000):
            seen: list[int] = []
            offset = 0
            while offset < log.log_end_offset:
                fetched = log.read(offset, max_bytes=max_bytes)
                seen += [record.offset for record in fetched.records()]
                assert fetched.next_offset > offset
                offset = fetched.next_offset
            assert list(range(300)) == seen


def test_records_of_a_range_are_those_in_it(directory: Path) -> None:
    """Start and end within a batch, both in one, over segments, empty, reversed."""
    chooser = random.Random(4)
    with filled(directory) as log:
        ranges = [(0, 300), (0, 0), (300, 300), (5, 6), (19, 21), (50, 40), (0, 1000)]
        ranges += [(chooser.randrange(300), chooser.randrange(320)) for _time in range(30)]
        for start, end in ranges:
            expected = list(range(start, min(end, 300)))
            assert expected == [record.offset for record in log.records(start, end)]


def test_batches_of_a_range_are_those_that_overlap_it(directory: Path) -> None:
    """Whole batches: the first has the start, the last begins below the end."""
    with filled(directory) as log:
        assert [20, 30, 40] == [batch.base_offset for batch in log.batches(25, 41)]
        assert [20] == [batch.base_offset for batch in log.batches(29, 30)]


def test_read_in_a_hole_begins_after_it(directory: Path) -> None:
    """As compaction leaves holes: in a segment, between segments, before the first batch."""
    with manual_log(directory) as log, manual_log(directory.with_name("holes-0")) as holes:
        log.append(numbered(0, 1))
        batch = bytes(next(log.batches()).data)
        for offset in (3, 4, 10, 11, 20):
            if offset == 10:
                holes.roll()
            holes.append_batches(offset.to_bytes(8, "big") + batch[8:], assign_offsets=False)
        expected = {0: 3, 3: 3, 4: 4, 5: 10, 9: 10, 10: 10, 12: 20, 20: 20}
        for offset, first in expected.items():
            assert first == holes.read(offset, max_bytes=1).first_offset
            assert first == next(holes.records(offset)).offset
        assert [3, 4, 10, 11, 20] == [record.offset for record in holes.records()]
        assert [] == list(holes.records(5, 10))


def test_records_before_an_append_end_at_the_old_log_end(directory: Path) -> None:
    """An iterator reads one snapshot of the log."""
    with filled(directory) as log:
        records = log.records()
        log.append(numbered(300, 50))
        assert 300 == len(list(records))
        assert 350 == len(list(log.records()))


def test_iterator_continues_after_roll_deletion_and_truncation(directory: Path) -> None:
    """It reads its snapshot to the end, although the files were deleted."""
    with filled(directory, file_delete_delay_ms=0) as log:
        records = log.records()
        seen = list(itertools.islice(records, 15))
        log.roll()
        log.delete_records(250)
        log.truncate_to(260)
        log.append([Record(value=b"other")])
        seen += records
        assert [b"v%d" % number for number in range(300)] == [record.value for record in seen]
        assert [*range(250, 260)] == [record.offset for record in log.records()][:10]


def test_slice_stays_valid_after_deletion_and_close(directory: Path) -> None:
    """No bytes of a reader are unmapped or overwritten."""
    with filled(directory, file_delete_delay_ms=0) as log:
        sealed, active = log.read(0), log.read(299)
        kept, latest = sealed.data, active.data
        before = bytes(kept), bytes(latest)
        log.delete_records(200)
        log.truncate_to(210)
        log.append(numbered(500, 50))
    assert before == (bytes(kept), bytes(latest))
    assert [b"v0", b"v1"] == [r.value for r in itertools.islice(sealed.records(), 2)]


def test_slice_from_before_a_deletion_can_be_read(directory: Path) -> None:
    """Bytes are fetched at the first access; the slice keeps the segment until then."""
    with filled(directory) as log:
        fetched = log.read(0)
        log.delete_records(200)
        assert 0 == next(fetched.records()).offset
        newest = log.read(295)
        log.truncate_to(205)
        assert 295 == next(newest.records()).offset


def test_records_keep_their_values_after_close(directory: Path) -> None:
    """They are decoded at the first access, which may come later."""
    with filled(directory) as log:
        records = list(log.records(280))
    assert [b"v%d" % number for number in range(280, 300)] == [r.value for r in records]


def test_read_after_close_is_refused(directory: Path) -> None:
    """Also by an iterator from before the close."""
    with filled(directory) as log:
        records = log.records()
        next(records)
        batches = log.batches()
    with pytest.raises(LogClosedError):
        log.read(0)
    with pytest.raises(LogClosedError):
        next(batches)
    with pytest.raises(LogClosedError):
        list(records)


@pytest.mark.parametrize("release", ["0.9.0", "0.10.2"])
@pytest.mark.parametrize("within", [False, True])
def test_iterator_over_old_messages_ends_at_the_close(
    tmp_path: Path, release: str, *, within: bool
) -> None:
    """Each message is a batch: the next one is refused, although a run was decoded in one go."""
    with manual_log(tmp_path / "t-0", message_format_version=release) as log:
        log.append([Record(value=b"%d" % number) for number in range(200)])
        records = log.records(20, 150) if within else log.records()
        taken = [next(records), next(records)]
    with pytest.raises(LogClosedError):
        next(records)
    first = 20 if within else 0
    assert [first, first + 1] == [record.offset for record in taken]
    assert [b"%d" % first, b"%d" % (first + 1)] == [record.value for record in taken]


def test_read_of_an_empty_log_is_empty(directory: Path) -> None:
    """No segment bytes, no index entries, no timestamp, and no error."""
    with manual_log(directory) as log:
        assert [] == list(log.records())
        assert [] == list(log.batches())
        assert b"" == bytes(log.read(0).data)
        assert log.offset_for_timestamp(START_MS) is None
        assert () == log.corrupt_ranges()
        assert 1 == len(log.segments())


def test_one_mapping_serves_many_segments(directory: Path) -> None:
    """With one mapping and one open file every segment is read, in any order."""
    with filled(directory, mappings_max=1, open_files_max=1, segment_bytes=500) as log:
        for offset in (299, 0, 150, 299, 75, 0):
            assert b"v%d" % offset == next(log.records(offset)).value
        assert list(range(300)) == [record.offset for record in log.records()]


@pytest.mark.parametrize("version", ["0.9.0", "0.10.2", "4.1"])
@pytest.mark.parametrize("compression", ["uncompressed", "gzip"])
@pytest.mark.parametrize("start", [0, 7, 10, 299, 300])
def test_read_tuples_and_lists_equal_the_records(
    version: str, compression: str, start: int, directory: Path
) -> None:
    """In every format, also from within a batch."""
    settings = {"message_format_version": version, "compression_type": compression}
    with filled(directory, segment_bytes=1500, **settings) as log:
        log.append([Record(value=b""), Record(key=b"")])
        fetched = log.read(start)
        pairs = [(record.key, record.value) for record in fetched.records()]
        assert pairs
        assert pairs == list(fetched.tuples())
        assert pairs == list(zip(*fetched.lists(), strict=True))


def test_read_committed_tuples_and_lists_equal_the_records(directory: Path) -> None:
    """They leave out control batches and aborted ones."""
    with manual_log(directory) as log:
        for producer, outcome in ((1, "abort"), (2, "commit")):
            data = Produced(producer, count=producer, transactional=True)
            log.append_batches(encoded([data]))
            marker = encoded([Produced(producer, ends=outcome)])
            log.append_batches(marker, origin=AppendOrigin.COORDINATOR)
        for isolation, count in (("read_committed", 2), ("read_uncommitted", 3)):
            fetched = log.read(0, isolation=isolation)  # type: ignore[arg-type]
            pairs = [(record.key, record.value) for record in fetched.records()]
            assert [(None, b"")] * count == pairs == list(fetched.tuples())
            assert ([None] * count, [b""] * count) == fetched.lists()
