"""Tests of the record filter: any log against the reference, and each rule."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkalog._core.offset_map import OffsetMap
from kafkalog.cleaner.cleaning_result import CleaningStatistics
from kafkalog.cleaner.keys import KeyCollector
from kafkalog.cleaner.record_filter import LastProducerBatch, RecordFilter
from kafkalog.cleaner.transactions import TransactionTracker
from kafkalog.errors import CorruptRecordError
from kafkalog.records.codecs import Codec
from kafkalog.records.conversion.conversion_units import FileRecords
from tests.support import golden
from tests.support.cleaning import Cleaned, SegmentCleaning, offset_map_of
from tests.support.cleaning_cases import DirtyLog, add_records, dirty_logs
from tests.support.reference_compaction import ReferenceCleaning, kept_of
from tests.support.reference_conversion import decode_run


def runs_of(log: DirtyLog, cuts: set[int]) -> list[bytes]:
    """Return the batches in several runs, cut before some of them."""
    runs: list[bytes] = [b""]
    for number, batch in enumerate(log.batches):
        if number in cuts:
            runs.append(b"")
        runs[-1] += batch
    return runs


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(log=dirty_logs(), data=st.data())
def test_filter_of_any_log_equals_the_reference(log: DirtyLog, data: st.DataObject) -> None:
    """For any batches, in any number of runs."""
    lives = data.draw(st.sets(st.sampled_from([1, 2, 9])))
    has_data = data.draw(st.booleans())
    lasts = {
        producer: LastProducerBatch(log.lasts.get(producer) if has_data else None, 0)
        for producer in lives
    }
    cleaning = SegmentCleaning(
        end_offset=data.draw(st.sampled_from([log.end, log.end + 1, *log.ends])),
        first_dirty=data.draw(st.integers(0, log.end)),
        now_ms=1000,
        delete_retention_ms=data.draw(st.sampled_from([0, 300])),
        last_batches=lasts,
        aborted=log.aborted,
        old_tombstones_stay=data.draw(st.booleans()),
    )
    # Batches beyond the end of the range are not in the files that are read.
    count = sum(end <= cleaning.end_offset for end in log.ends)
    log = DirtyLog(log.batches[:count], log.ends[:count], log.aborted, log.lasts)
    cuts = data.draw(st.sets(st.integers(1, max(1, count))))
    cleaned = cleaning.clean(runs_of(log, cuts))
    reference = ReferenceCleaning(
        data=log.data,
        rules=cleaning.rules(),
        first_dirty=cleaning.first_dirty,
        latest_offset=cleaning.end_offset - 1,
        aborted=log.aborted,
        old_tombstones_stay=cleaning.old_tombstones_stay,
    )
    assert reference.kept() == kept_of(cleaned.data)
    expected = sorted(reference.kept_transactions())
    assert expected == sorted(cleaned.aborted)
    statistics = cleaned.statistics
    assert len(log.data) == statistics.bytes_read
    assert len(cleaned.data) == statistics.bytes_written
    assert statistics.records_read == statistics.records_kept + sum(
        (
            statistics.superseded,
            statistics.tombstones_expired,
            statistics.keyless_dropped,
            statistics.aborted_dropped,
            statistics.control_dropped,
        )
    )


def kept_offsets(cleaned: Cleaned) -> list[int]:
    """Return the offsets of the records that stay."""
    return [record.offset for batch in kept_of(cleaned.data) for record in batch.records]


def test_filter_batch_that_loses_nothing_is_not_copied() -> None:
    """The buffers are slices of the run if no record is removed."""
    log = DirtyLog()
    add_records(log, (b"a", b"1"), (b"b", b"2"))
    add_records(log, (b"c", b"3"), codec=Codec.ZSTD)
    run = memoryview(log.data)
    record_filter = RecordFilter(
        offset_map_of(1), SegmentCleaning(99).rules(), TransactionTracker()
    )
    parts = record_filter.filter(FileRecords(run), old_tombstones_stay=True)
    assert log.data == b"".join(map(bytes, parts))
    assert all(isinstance(part, memoryview) and part.obj is run.obj for part in parts)
    assert 2 == record_filter.statistics.batches_copied


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("append_time", [False, True])
def test_filter_batch_that_loses_records_keeps_its_codec_and_bounds(
    codec: Codec, append_time: bool
) -> None:
    """Offsets, sequence, producer, leader epoch and timestamps of retained records stay."""
    log = DirtyLog()
    add_records(
        log,
        (b"a", b"old" * 50),
        (b"b", b"only" * 50),
        (b"a", b"new" * 50),
        (b"c", b"old"),
        codec=codec,
        append_time=append_time,
        producer_id=5,
    )
    add_records(log, (b"c", b"new"))
    before, _ = decode_run(log.data)
    after, _ = decode_run(SegmentCleaning(log.end).clean([log.data]).data)
    assert [1, 2] == [record.offset for record in after.records]
    assert before.records[1:3] == after.records
    changed = {"batch_length", "crc", "base_timestamp", "max_timestamp", "record_count"}
    for name, value in vars(before.header).items():
        if name not in changed:
            assert value == getattr(after.header, name)
    assert codec == after.codec
    # The largest timestamp is that of the records, or the append time.
    assert (2000 if append_time else 102) == after.header.max_timestamp
    assert (2000 if append_time else 101) == after.header.base_timestamp


def test_filter_tombstone_gets_a_horizon_and_is_removed_after_it() -> None:
    """Two cleanings, even without retention; the hidden record is removed in the first."""
    log = DirtyLog()
    add_records(log, (b"a", b"1"), (b"b", b"2"))
    add_records(log, (b"a", None), (b"c", b"3"))
    first = SegmentCleaning(log.end, now_ms=1000, delete_retention_ms=300).clean([log.data])
    assert [1, 2, 3] == kept_offsets(first)
    assert 1 == first.statistics.horizons_set
    for now_ms, expected in ((1299, [1, 2, 3]), (1300, [1, 3])):
        again = SegmentCleaning(log.end, now_ms=now_ms, delete_retention_ms=300).clean([first.data])
        assert expected == kept_offsets(again)
        assert 0 == again.statistics.horizons_set
        assert len(expected) == 2 + again.statistics.tombstones_kept
    # The batch with a horizon keeps it, and its records keep their timestamps.
    _, batch = decode_run(again.data)
    assert (0x40, 1300, 101) == (
        batch.header.attributes,
        batch.header.base_timestamp,
        batch.records[0].timestamp,
    )


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_filter_old_tombstone_is_removed_by_segment_age(magic: int, codec: Codec) -> None:
    """The old formats have no horizon; a wrapper is rewritten in its format."""
    log = DirtyLog()
    rows = [(b"a", b"1", 50), (b"b", b"2", 70), (b"a", None, 60), (b"c", b"3", 55)]
    log.add_old(rows, magic, codec, append_time=False)
    for stays, expected in ((True, [1, 2, 3]), (False, [1, 3])):
        cleaned = SegmentCleaning(log.end, old_tombstones_stay=stays).clean([log.data])
        assert expected == kept_offsets(cleaned)
        batches = decode_run(cleaned.data)
        assert {magic} == {batch.header.magic for batch in batches}
        assert {codec} == {batch.codec for batch in batches}


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_filter_last_message_of_the_range_is_retained(codec: Codec) -> None:
    """The old formats have no empty batch that could mark the log end."""
    log = DirtyLog()
    log.add_old([(b"a", b"1", 50), (None, b"2", 60)], 1, codec, append_time=False)
    assert [0, 1] == kept_offsets(SegmentCleaning(log.end).clean([log.data]))
    assert [0] == kept_offsets(SegmentCleaning(log.end + 1).clean([log.data]))


def test_filter_records_without_a_key_are_dropped_and_counted() -> None:
    """Old data has them; a compacted log accepts no new ones."""
    log = DirtyLog()
    add_records(log, (None, b"1"), (b"a", b"2"), (None, b"3"))
    add_records(log, (None, b"4"))
    cleaned = SegmentCleaning(log.end + 5).clean([log.data])
    assert [1] == kept_offsets(cleaned)
    assert 3 == cleaned.statistics.keyless_dropped


def test_filter_with_full_map_retains_all_records_after_its_end() -> None:
    """The cleaned range ends with the map."""
    log = DirtyLog()
    add_records(log, (b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", b"4"))
    add_records(log, (b"b", b"5"), (None, b"6"))
    cleaned = SegmentCleaning(log.end, entries=2).clean([log.data])
    assert 2 == cleaned.offset_map.latest_offset
    assert [1, 2, 3, 4, 5] == kept_offsets(cleaned)


def test_filter_in_several_passes_equals_one_pass() -> None:
    """No pass removes keys of another pass: neither values nor tombstones."""
    log = DirtyLog()
    for number in range(40):
        key = b"%d" % (number % 13)
        add_records(log, (key, b"v%d" % number), (key, None if number % 3 else b"w"), horizon=500)
    cleaning = SegmentCleaning(log.end, now_ms=1000)
    whole = cleaning.clean([log.data])
    assert 0 < whole.statistics.tombstones_expired
    data = log.data
    for part in range(3):
        offset_map = offset_map_of(13)
        offset_map.clear(secret=b"0123456789abcdef", part=part, part_count=3)
        assert KeyCollector(offset_map, TransactionTracker()).add(FileRecords(memoryview(data)))
        offset_map.advance_to(log.end - 1)
        record_filter = RecordFilter(offset_map, cleaning.rules(), TransactionTracker())
        parts = record_filter.filter(FileRecords(memoryview(data)), old_tombstones_stay=True)
        data = b"".join(map(bytes, parts))
        assert kept_of(data) != kept_of(whole.data) or part == 2
    assert kept_of(whole.data) == kept_of(data)


@pytest.mark.parametrize(
    ("identity", "exact", "expected"),
    [("md5", False, [1]), ("siphash", False, [0, 1]), ("md5", True, [0, 1])],
)
def test_filter_of_keys_with_one_md5_retains_both_except_under_md5(
    identity: Literal["md5", "siphash"], exact: bool, expected: list[int]
) -> None:
    """Kafka loses one; a keyed hash and a comparison of keys do not."""
    vector = golden.vectors("md5_collision")
    keys = [bytes.fromhex(vector[name]) for name in ("first", "second")]
    log = DirtyLog()
    add_records(log, (keys[0], b"1"))
    add_records(log, (keys[1], b"2"))

    def have_keys(offsets: Sequence[int], candidates: Sequence[bytes]) -> list[bool]:
        return [keys[offset] == key for offset, key in zip(offsets, candidates, strict=True)]

    offset_map = OffsetMap(bytearray(240), identity=identity, exact=exact, secret=bytes(16))
    callback = have_keys if exact else None
    run = FileRecords(memoryview(log.data))
    assert KeyCollector(offset_map, TransactionTracker(), have_keys=callback).add(run)
    record_filter = RecordFilter(
        offset_map, SegmentCleaning(99).rules(), TransactionTracker(), have_keys=callback
    )
    parts = record_filter.filter(run, old_tombstones_stay=True)
    found = kept_of(b"".join(map(bytes, parts)))
    assert expected == [record.offset for batch in found for record in batch.records]


def test_filter_batch_larger_than_the_columns_is_cleaned() -> None:
    """A batch with more records than rows are decoded at once."""
    log = DirtyLog()
    for codec in (Codec.NONE, Codec.LZ4):
        add_records(log, *[(b"%d" % (number % 7000), b"") for number in range(20_000)], codec=codec)
    cleaned = SegmentCleaning(log.end).clean([log.data])
    assert list(range(33_000, 40_000)) == kept_offsets(cleaned)


def test_filter_corrupt_batch_raises_with_its_position() -> None:
    """A run with a flipped bit has no output, compressed or not."""
    log = DirtyLog()
    add_records(log, (b"a", b"1"))
    add_records(log, (b"b", b"2" * 200))
    for _ in range(3):
        add_records(log, (b"b", b"2" * 200), codec=Codec.GZIP)
    good = log.data
    for batch in range(5):
        position = sum(map(len, log.batches[:batch]))
        data = bytearray(good)
        data[position + 61 + 8] ^= 1
        run = FileRecords(memoryview(bytes(data)), "segment", 1000)
        record_filter = RecordFilter(
            offset_map_of(1), SegmentCleaning(9).rules(), TransactionTracker()
        )
        with pytest.raises(CorruptRecordError, match=f"position {1000 + position} of segment"):
            record_filter.filter(run, old_tombstones_stay=True)
    cut = FileRecords(memoryview(good)[:-1])
    with pytest.raises(CorruptRecordError, match="the bytes end before the item does"):
        KeyCollector(offset_map_of(9), TransactionTracker()).add(cut)


def test_filter_batch_that_grows_is_counted() -> None:
    """It is retained nevertheless: records must not be lost for their size."""
    log = DirtyLog()
    rng = random.Random(1)
    add_records(log, (b"a", rng.randbytes(400)), (b"b", None), codec=Codec.LZ4)
    size = len(log.data)
    for limit, grown in ((size + 100, 0), (size - 1, 1)):
        cleaning = SegmentCleaning(log.end, now_ms=10**15, max_message_bytes=limit)
        cleaned = cleaning.clean([log.data])
        assert len(cleaned.data) > size
        assert grown == cleaned.statistics.batches_grown


def test_statistics_add_up() -> None:
    """The counts of several cleanings are summed."""
    first, second = CleaningStatistics(bytes_read=3, superseded=1), CleaningStatistics(bytes_read=4)
    first.add(second)
    assert 7 == first.as_dict()["bytes_read"]
    assert 1 == first.superseded
