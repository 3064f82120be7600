"""Snapshots of directories: partitions, their segments, and their ends."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import kafkalog
from kafkalog import LogConfig, Record
from kafkalog.files.posix import PosixFileHandle, PosixFileSystem
from kafkalog.model import TopicPartition
from kafkalog.spark.errors import ErrorCode, KafkaLogSparkError
from kafkalog.spark.jobs.job_arguments import with_internal_topics
from kafkalog.spark.options import ReadOptions
from kafkalog.spark.plan import FilterSet, QuerySnapshot
from kafkalog.spark.plan.log_files import (
    UNKNOWN_TIMESTAMP,
    SegmentCuts,
    find_log_end,
    offset_for_timestamp,
)
from kafkalog.state.checkpoints import OffsetCheckpoint
from tests.support.producer_batches import Produced, encoded
from tests.support.spark_rows import map_nothing

SMALL = LogConfig(segment_bytes=20_000, index_interval_bytes=1024)
DISK = PosixFileSystem()


def make_log(
    directory: Path, batches: int, *, size: int = 100, config: LogConfig = SMALL, first_ms: int = 0
) -> None:
    """Append batches of ten records, ten ms apart, and close."""
    with kafkalog.open_log(directory, config=config) as log:
        for batch in range(batches):
            times = [first_ms + 100 * batch + 10 * number for number in range(10)]
            log.append([Record(value=b"v" * size, timestamp_ms=time) for time in times])


def options(*paths: Path, **settings: str) -> ReadOptions:
    """Return the options of a batch over directories."""
    return ReadOptions.parse({"paths": ",".join(map(str, paths)), **settings})


def names(snapshot: QuerySnapshot) -> list[str]:
    """Return the partitions of a snapshot."""
    return [f"{topic}-{number}" for topic, number in snapshot.names()]


def data_directory(tmp_path: Path, *partitions: str, batches: int = 3) -> Path:
    """Make a data directory with logs."""
    (tmp_path / "meta.properties").write_text("version=1\n")
    for name in partitions:
        make_log(tmp_path / name, batches)
    return tmp_path


def test_snapshot_of_data_directory_has_live_partitions(tmp_path: Path) -> None:
    """Deleted, stray and future directories, metadata and internal topics are left out."""
    root = data_directory(
        tmp_path, "b-0", "a-10", "a-2", "__consumer_offsets-0", "__cluster_metadata-0"
    )
    for number, state in enumerate(("delete", "stray", "future")):
        make_log(root / f"c-{number}.{uuid.uuid4().hex}-{state}", 1)
    (root / "lost+found").mkdir()
    (root / "_kafkalog").mkdir()
    snapshot = QuerySnapshot.take(options(root))
    assert ["a-2", "a-10", "b-0"] == names(snapshot)
    assert [30, 30, 30] == snapshot.log_ends.tolist()
    named = QuerySnapshot.take(options(root, subscribe="__consumer_offsets"))
    assert ["__consumer_offsets-0"] == names(named)
    assert ["__consumer_offsets-0"] == names(QuerySnapshot.take(options(root / names(named)[0])))
    every = QuerySnapshot.take(with_internal_topics(options(root)))
    assert ["__consumer_offsets-0", "a-2", "a-10", "b-0"] == names(every)


def test_snapshot_of_several_directories_has_all_partitions(tmp_path: Path) -> None:
    """A partition in two directories is refused."""
    (tmp_path / "x").mkdir()
    (tmp_path / "y").mkdir()
    first = data_directory(tmp_path / "x", "a-0")
    second = data_directory(tmp_path / "y", "a-1")
    assert ["a-0", "a-1"] == names(QuerySnapshot.take(options(first, second, first)))
    assert ["a-1"] == names(QuerySnapshot.take(options(second / "a-1")))
    make_log(second / "a-0", 1)
    with pytest.raises(KafkaLogSparkError, match=r"OPTION_CONFLICT.*a-0 is in"):
        QuerySnapshot.take(options(first, second))


def test_snapshot_of_missing_path_topic_or_partition_is_refused(tmp_path: Path) -> None:
    """If named in the options; an empty directory is allowed."""
    root = tmp_path
    (root / "notes.txt").write_text("x")
    cases = [
        (options(root / "nothing"), ErrorCode.PATH_NOT_FOUND),
        (options(root / "notes.txt"), ErrorCode.PATH_NOT_FOUND),
        (options(root), ErrorCode.PATH_NOT_FOUND),
    ]
    (tmp_path / "data").mkdir()
    data = data_directory(tmp_path / "data", "a-0")
    cases += [
        (options(data, subscribe="a,b"), ErrorCode.TOPIC_NOT_FOUND),
        (options(data, assign='{"a": [0, 1]}'), ErrorCode.TOPIC_NOT_FOUND),
    ]
    for chosen, code in cases:
        with pytest.raises(KafkaLogSparkError) as caught:
            QuerySnapshot.take(chosen)
        assert code == caught.value.code
    (tmp_path / "void").mkdir()
    assert [] == names(QuerySnapshot.take(options(tmp_path / "void")))
    assert [] == names(QuerySnapshot.take(options(data, subscribePattern="z.*")))


def test_snapshot_of_segments_has_bases_and_sizes(tmp_path: Path) -> None:
    """A row per segment, and the log start of the checkpoint."""
    root = data_directory(tmp_path, "a-0", "a-1", batches=60)
    OffsetCheckpoint(DISK, root / "log-start-offset-checkpoint").write({TopicPartition("a", 1): 55})
    snapshot = QuerySnapshot.take(options(root))
    with kafkalog.open_log(root / "a-0", read_only=True) as log:
        segments = log.segments()
    bases, sizes = snapshot.segments_of(0)
    assert [segment.base_offset for segment in segments] == bases
    assert [segment.size_bytes for segment in segments] == sizes
    assert len(bases) > 3
    assert ([0, 55], [600, 600]) == (snapshot.log_starts.tolist(), snapshot.log_ends.tolist())
    assert snapshot.largest_timestamps is None


def test_snapshot_with_filters_opens_only_matching_partitions(tmp_path: Path) -> None:
    """Times are looked up only for a filter on them."""
    root = data_directory(tmp_path, "a-0", "a-1", "b-0", batches=60)
    (root / "b-0" / "00000000000000000000.log").write_bytes(b"not a log, and nobody looks")
    filters = FilterSet.of(
        [("topic", "startswith", "a"), ("partition", "==", 1), ("timestamp", ">=", 3000)]
    )
    snapshot = QuerySnapshot.take(options(root), filters=filters)
    assert ["a-1"] == names(snapshot)
    assert {("a", 0), ("b", 0)} == snapshot.left_out
    times = snapshot.largest_timestamps
    assert times is not None
    bases, _sizes = snapshot.segments_of(0)
    # A batch of ten records takes 100 ms: the last one of a segment ends ten before the next.
    assert [10 * base - 10 for base in bases[1:]] == times[:-1].tolist()
    assert UNKNOWN_TIMESTAMP == times[-1]


def test_log_end_during_a_write_is_after_the_last_whole_batch(tmp_path: Path) -> None:
    """An unfinished batch and preallocated space do not count."""
    directory = tmp_path / "a-0"
    make_log(directory, 50, size=1000, config=LogConfig())
    path = directory / "00000000000000000000.log"
    size, whole = path.stat().st_size, path.read_bytes()
    assert (500, size) == find_log_end(DISK, directory, 0)
    batch = whole[: size // 50]
    for torn in (batch[:30], batch[:70], batch[:-1], bytes(100_000)):
        path.write_bytes(whole + torn)
        assert (500, size) == find_log_end(DISK, directory, 0)


@pytest.mark.parametrize("batch", [3, 48, 49])
@pytest.mark.parametrize("position", [8, 16, 23, 80])
def test_log_end_with_damage_equals_that_of_the_engine(
    batch: int, position: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to the durable offset; the file is not mapped, because its owner may truncate it."""
    directory = tmp_path / "a-0"
    make_log(directory, 50, size=1000, config=LogConfig())
    path = directory / "00000000000000000000.log"
    whole = path.read_bytes()
    at = len(whole) // 50 * batch + position
    for behind in (b"", b"?" * 200):
        path.write_bytes(whole[:at] + b"\xf3" + whole[at + 1 :] + behind)
        with kafkalog.open_log(directory, read_only=True) as log:
            expected = log.log_end_offset
        with monkeypatch.context() as patched:
            patched.setattr(PosixFileHandle, "map", map_nothing)
            assert expected == find_log_end(DISK, directory, 0)[0]


@pytest.mark.parametrize("damage", ["none", "gone", "preallocated", "foreign"])
def test_log_end_is_the_same_with_any_index(tmp_path: Path, damage: str) -> None:
    """An index entry is used only if a batch begins at its position."""
    directory = tmp_path / "a-0"
    make_log(directory, 100, size=500, config=LogConfig(index_interval_bytes=4096))
    index = directory / "00000000000000000000.index"
    entries = index.read_bytes()
    if damage == "gone":
        index.unlink()
    elif damage == "preallocated":
        index.write_bytes(entries + bytes(8 * 10_000))
    elif damage == "foreign":
        index.write_bytes(entries[:-4] + (12345).to_bytes(4, "big"))
    size = (directory / "00000000000000000000.log").stat().st_size
    assert (1000, size) == find_log_end(DISK, directory, 0)


def test_log_end_read_committed_stops_at_an_open_transaction(tmp_path: Path) -> None:
    """The visible end is the last stable offset."""
    directory = tmp_path / "a-0"
    with kafkalog.open_log(directory) as log:
        log.append([Record(value=b"plain")] * 4)
        log.append_batches(
            encoded([Produced(7, 0, 0, 3, transactional=True)]),
            origin=kafkalog.AppendOrigin.COORDINATOR,
        )
        log.append([Record(value=b"behind")] * 2)
        committed = QuerySnapshot.take(options(directory, isolationLevel="read_committed"))
        assert ([9], [4]) == (committed.log_ends.tolist(), committed.visible_ends.tolist())
        plain = QuerySnapshot.take(options(directory))
        assert [9] == plain.visible_ends.tolist()


def segments_of(directory: Path) -> tuple[Sequence[int], Sequence[int]]:
    """Return the base offsets and sizes of a log's segments."""
    return QuerySnapshot.take(options(directory)).segments_of(0)


def test_offset_for_timestamp_equals_that_of_the_engine(tmp_path: Path) -> None:
    """For many times, with and without indexes, and from an offset."""
    directory = tmp_path / "a-0"
    make_log(directory, 80, first_ms=1000)
    bases, ends = map(list, segments_of(directory))
    timestamps = [0, 999, 1000, 1005, 1990, 5123, 8990, 8991, 10**12]
    with kafkalog.open_log(directory, read_only=True) as log:
        expected = [log.offset_for_timestamp(time) for time in timestamps]
    offsets = [None if each is None else each.offset for each in expected]
    found = [offset_for_timestamp(DISK, directory, bases, ends, time) for time in timestamps]
    assert offsets == found
    for index in directory.glob("*.timeindex"):
        index.unlink()
    found = [offset_for_timestamp(DISK, directory, bases, ends, time) for time in timestamps]
    assert offsets == found
    # Search from an offset.
    assert 300 == offset_for_timestamp(DISK, directory, bases, ends, 1000, 300)


def test_offset_for_timestamp_skips_a_damaged_batch(tmp_path: Path) -> None:
    """Workers skip a batch with a wrong checksum too."""
    directory = tmp_path / "a-0"
    make_log(directory, 20, config=LogConfig())
    path = directory / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[len(data) // 20 * 3 + 90] ^= 1
    path.write_bytes(data)
    assert 40 == offset_for_timestamp(DISK, directory, [0], [len(data)], 300)


def test_cuts_of_a_segment_are_between_batches(tmp_path: Path) -> None:
    """Near the requested positions; without an index there are none."""
    directory = tmp_path / "a-0"
    make_log(directory, 400, config=LogConfig(index_interval_bytes=1024))
    size = (directory / "00000000000000000000.log").stat().st_size
    cuts = SegmentCuts(DISK, str(directory)).near(0, size, [size // 4, size // 2, 3 * size // 4])
    assert 3 == len(cuts)
    assert all(cut % 10 == 0 for cut in cuts)
    assert np.abs(np.array(cuts) - [1000, 2000, 3000]).max() <= 20
    for index in directory.glob("*.index"):
        index.unlink()
    assert [] == SegmentCuts(DISK, str(directory)).near(0, size, [size // 2])
