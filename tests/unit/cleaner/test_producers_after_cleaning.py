"""Tests of producers, transactions and segments after a cleaning, as in Kafka's tests (PAR-21)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kafkalog import AppendOrigin, Codec, Log, Record, compact_log
from kafkalog._core.builder import BatchBuilder
from kafkalog.files.names import SegmentFiles
from kafkalog.layout import LOG_OVERHEAD, MAGIC_POSITION
from kafkalog.records.codecs import compress
from tests.support import reference
from tests.support.damage import forget_shutdown
from tests.support.logs import manual_log
from tests.support.manual_time import START_MS, ManualClock
from tests.support.producer_batches import Produced, encoded
from tests.support.producing import committed_offsets
from tests.support.reference_messages import (
    Message,
    decode_payload,
    encode_message,
    encode_messages,
)

COMPACT: dict[str, Any] = {"cleanup_policy": ("compact",), "delete_retention_ms": 1000}
P, Q = 7, 8


@pytest.fixture(name="directory")
def fixture_directory(tmp_path: Path) -> Path:
    """Return the directory of a log."""
    return tmp_path / "orders-0"


def keyed(
    sequence: int,
    *keys: bytes,
    producer_id: int = P,
    epoch: int = 0,
    transactional: bool = False,
    timestamp_ms: int = START_MS,
) -> bytes:
    """Return a producer's batch with a record for each key."""
    builder = BatchBuilder()
    for key in keys:
        builder.append(key, b"v", timestamp_ms)
    return bytes(
        builder.finish(
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
    )


def end(log: Log, how: str, producer_id: int = P, epoch: int = 0) -> int:
    """Append a marker; return its offset."""
    marker = encoded([Produced(producer_id, epoch, ends=how, timestamp_ms=START_MS)])
    return log.append_batches(marker, origin=AppendOrigin.COORDINATOR).first_offset


def clean(log: Log) -> None:
    """Clean everything below a new segment."""
    compact_log(log, include_active=True)


def clean_again(log: Log) -> None:
    """Clean once more, after an append, as some of the log must be dirty."""
    log.append([Record(key=b"fill", value=b"v", timestamp_ms=START_MS)])
    clean(log)


def lose_snapshots(directory: Path) -> None:
    """Remove the snapshots, so that the next opening replays all batches, as after a crash."""
    for path in directory.glob("*.snapshot"):
        path.unlink()
    forget_shutdown(directory)


@pytest.mark.parametrize("count", [1, 2], ids=["cleaned once", "cleaned twice"])
@pytest.mark.parametrize("is_reloaded", [False, True], ids=["open", "reloaded without snapshots"])
def test_duplicates_after_cleaning_are_recognised(
    directory: Path, count: int, is_reloaded: bool
) -> None:
    """PAR-21, 1: the last batch of a producer stays known although its records went."""
    batches = {P: keyed(0, b"a", b"b"), Q: keyed(0, b"a", b"b", producer_id=Q)}
    with manual_log(directory, **COMPACT) as log:
        offsets = {key: log.append_batches(data).first_offset for key, data in batches.items()}
        log.append([Record(key=key, value=b"later") for key in (b"a", b"b")])
        for _time in range(count):
            clean_again(log)
        if not is_reloaded:
            again = {key: log.append_batches(data) for key, data in batches.items()}
    if is_reloaded:
        lose_snapshots(directory)
        with manual_log(directory, **COMPACT) as log:
            again = {key: log.append_batches(data) for key, data in batches.items()}
    for key, info in again.items():
        assert (True, offsets[key]) == (info.is_duplicate, info.first_offset)


def test_sequences_are_rebuilt_from_an_emptied_batch(directory: Path) -> None:
    """PAR-21, 2: only its header is left, and the next sequence follows it."""
    with manual_log(directory, **COMPACT) as log:
        log.append_batches(keyed(0, b"a", b"b", b"c"))
        log.append([Record(key=key, value=b"later") for key in (b"a", b"b", b"c")])
        clean(log)
        assert [3, 4, 5] == [each.offset for each in log.records()]
        emptied = next(iter(log.batches())).header
        assert (0, 2, 0) == (emptied.base_offset, emptied.last_offset, emptied.record_count)
    lose_snapshots(directory)
    with manual_log(directory, **COMPACT) as log:
        found = log.find_producer(P)
        assert found is not None
        assert 2 == found.last_sequence
        assert 6 <= log.append_batches(keyed(3, b"d")).first_offset


def test_marker_is_removed_after_its_horizon_and_after_its_data(directory: Path) -> None:
    """PAR-21, 3 and 4: with the pass that sets the horizon; another cleaning changes nothing."""
    clock = ManualClock()
    with manual_log(directory, clock=clock, **COMPACT) as log:
        log.append_batches(keyed(0, b"a", epoch=3, transactional=True))
        marker = end(log, "commit", epoch=3)
        log.append([Record(key=b"a", value=b"later", timestamp_ms=START_MS)])

        def facts() -> list[tuple[int, bool]]:
            headers = [each.header for each in log.batches()]
            return [
                (header.record_count, header.delete_horizon_ms is not None)
                for header in headers
                if header.last_offset == marker
            ]

        for _time in range(2):
            # The emptied batch that keeps the sequence counts as data of the transaction.
            clean_again(log)
            clock.advance(5000)
            assert [(1, False)] == facts()
        log.append_batches(keyed(1, b"z", epoch=3))
        clean(log)
        assert [(1, False)] == facts()
        clean_again(log)
        assert [(1, True)] == facts()
        clock.advance(999)
        clean_again(log)
        assert [(1, True)] == facts()
        clock.advance(2)
        for _time in range(2):
            clean_again(log)
            assert [] == facts()
        assert [b"a", b"z", b"fill"] == [each.key for each in log.records()]
    lose_snapshots(directory)
    with manual_log(directory, **COMPACT) as log:
        found = log.find_producer(P)
        assert found is not None
        assert (3, 1) == (found.producer_epoch, found.last_sequence)


def test_last_marker_of_a_producer_is_emptied_and_keeps_its_epoch(directory: Path) -> None:
    """PAR-21, 3: of a transaction without data here; its header still blocks old epochs."""
    clock = ManualClock()
    with manual_log(directory, clock=clock, **COMPACT) as log:
        marker = end(log, "abort", epoch=5)
        log.append([Record(key=b"a", value=b"v", timestamp_ms=START_MS)])
        for _time in range(4):
            clean_again(log)
            clock.advance(5000)
        headers = [each.header for each in log.batches() if each.header.last_offset == marker]
        assert [(0, 5, True)] == [
            (each.record_count, each.producer_epoch, each.is_control) for each in headers
        ]
        assert [b"a", b"fill"] == [each.key for each in log.records()]
        found = log.find_producer(P)
        assert found is not None
        assert 5 == found.producer_epoch


@pytest.mark.parametrize("how", ["commit", "abort"])
def test_transaction_across_two_segments_is_cleaned_with_marker(directory: Path, how: str) -> None:
    """PAR-21, 5: the marker decides about the records of the segment before."""
    with manual_log(directory, **COMPACT) as log:
        log.append([Record(key=key, value=b"old") for key in (b"a", b"b", b"c")])
        log.append_batches(keyed(0, b"a", transactional=True))
        log.roll()
        log.append_batches(keyed(1, b"b", transactional=True))
        end(log, how)
        before = committed_offsets(log)
        clean(log)
        seen = {each.key: each.offset for each in log.records(isolation="read_committed")}
        offsets = {b"a": 3, b"b": 4, b"c": 2} if how == "commit" else {b"a": 0, b"b": 1, b"c": 2}
        assert offsets == seen
        assert set(seen.values()) <= set(before)
        clean_again(log)
        seen = {each.key: each.offset for each in log.records(isolation="read_committed")}
        assert offsets == {key: offset for key, offset in seen.items() if key != b"fill"}


def test_sparse_segments_after_cleaning_are_merged(directory: Path) -> None:
    """PAR-21, 9: segments that lost all records become one, and the offsets stay."""
    with manual_log(directory, segment_bytes=300, **COMPACT) as log:
        for number in range(20):
            log.append([Record(key=b"same", value=b"%100d" % number)])
        log.reconfigure(log.config.replace(segment_bytes=1 << 20))
        before = len(log.segments())
        clean(log)
        clean(log)
        assert len(log.segments()) < before / 2
        assert [19] == [each.offset for each in log.records()]
        assert 20 == log.log_end_offset
        assert 0 == log.log_start_offset


def test_batches_above_a_lowered_max_message_bytes_are_cleaned(directory: Path) -> None:
    """PAR-21: `max.message.bytes` limits appends, not existing batches."""
    with manual_log(directory, **COMPACT) as log:
        log.append([Record(key=b"a", value=bytes(2000)), Record(key=b"b", value=bytes(2000))])
        log.append([Record(key=b"a", value=b"later")])
        log.reconfigure(log.config.replace(max_message_bytes=500))
        clean(log)
        assert [1, 2] == [each.offset for each in log.records()]


def test_cleaning_of_preallocated_files_leaves_no_tail(directory: Path) -> None:
    """PAR-21: a new segment ends with its last batch."""
    settings = COMPACT | {"preallocate": True, "segment_bytes": 4096}
    with manual_log(directory, **settings) as log:
        for number in range(3):
            log.append([Record(key=b"a", value=b"%d" % number)])
        clean(log)
        for segment in log.segments()[:-1]:
            assert (
                segment.size_bytes
                == SegmentFiles(directory, segment.base_offset).log.stat().st_size
            )


def mixed_wrapper(codec: Codec, first_offset: int, keys: Sequence[bytes]) -> bytes:
    """Return a wrapper of magic 1 with messages of magic 0 of old cleaners; values are offsets."""
    inner = encode_messages(
        Message(offset=delta, magic=0, key=key, value=b"%d" % (first_offset + delta))
        for delta, key in enumerate(keys)
    )
    return encode_message(
        Message(
            offset=first_offset + len(keys) - 1,
            magic=1,
            attributes=codec,
            value=compress(codec, inner, magic=1),
        )
    )


def inner_magics(entry: bytes) -> set[int]:
    """Return the formats of the messages in a wrapper."""
    _verdict, header = reference.parse_header(entry)
    assert header is not None
    payload = decode_payload(entry, header)
    magics, position = set(), 0
    while position < len(payload):
        magics.add(payload[position + MAGIC_POSITION])
        size = int.from_bytes(payload[position + 8 : position + 12], "big")
        position += LOG_OVERHEAD + size
    return magics


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_wrapper_of_mixed_magic_is_cleaned_to_its_magic(directory: Path, codec: Codec) -> None:
    """PAR-21, 7: offsets stay; the retained inner messages have the wrapper's format."""
    directory.mkdir()
    first, second = (
        mixed_wrapper(codec, 0, [b"a", b"b", b"c"]),
        mixed_wrapper(codec, 3, [b"a", b"d"]),
    )
    assert {0} == inner_magics(first) == inner_magics(second)
    SegmentFiles(directory, 0).log.write_bytes(first + second)
    with manual_log(directory, **COMPACT) as log:
        assert [b"%d" % number for number in range(5)] == [each.value for each in log.records()]
        log.append([Record(key=b"b", value=b"5", timestamp_ms=START_MS)])
        clean(log)
        left = [(each.offset, each.key) for each in log.records()]
        assert [(2, b"c"), (3, b"a"), (4, b"d"), (5, b"b")] == left
        assert [b"%d" % offset for offset, _key in left] == [each.value for each in log.records()]
        old = [batch for batch in log.batches() if batch.header.magic < 2]
        assert [1, 1] == [batch.header.magic for batch in old]
        rewritten, copied = (inner_magics(bytes(batch.data)) for batch in old)
        assert {1} == rewritten
        assert copied <= {0, 1}
