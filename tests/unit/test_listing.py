"""Lists of partitions: live directories, states, settings, damage, wrong names."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from kafkalog import (
    FileSystem,
    LogConfig,
    LogManager,
    NotALogError,
    PartitionListing,
    Record,
    UnknownTopicOrPartitionError,
    list_partitions,
    open_log,
)
from kafkalog.files.filesystem import FileHandle
from kafkalog.files.names import DirectoryState
from kafkalog.files.posix import PosixFileSystem
from tests.support.damage import log_file


def make_log(directory: Path, *, appends: int = 3, segment_bytes: int = 1 << 20) -> None:
    """Write a log with one record a batch and a time of a second each."""
    with open_log(directory, config=LogConfig(segment_bytes=segment_bytes)) as log:
        for number in range(appends):
            log.append([Record(value=b"v" * 100, timestamp_ms=1_000 * number)])


def one(path: Path) -> PartitionListing:
    """Return the only listing of a path."""
    (found,) = list_partitions(path)
    return found


def test_listing_of_a_log_has_its_numbers(tmp_path: Path) -> None:
    """A log outside of a data directory, in several segments."""
    make_log(tmp_path / "orders-3", appends=40, segment_bytes=1_000)
    found = one(tmp_path / "orders-3")

    assert (found.topic_partition.topic, found.topic_partition.partition) == ("orders", 3)
    assert (found.start_offset, found.end_offset) == (0, 40)
    assert (found.first_timestamp_ms, found.last_timestamp_ms) == (0, 39_000)
    assert found.segment_count == len(list(found.path.glob("*.log"))) > 3
    assert found.disk_bytes == sum(path.stat().st_size for path in found.path.iterdir())
    assert (found.codec, found.leader_epoch, found.health) == ("none", 0, "ok")


def test_listing_beside_a_writer_is_current_and_changes_nothing(tmp_path: Path) -> None:
    """Preallocated indexes of an active segment, a log start in no checkpoint yet, no lock."""
    with LogManager([tmp_path / "data"]) as manager:
        manager.create_topic("t", 2, {"segment.bytes": "100000", "retention.ms": "5"})
        log = manager.log("t", 1)
        for number in range(2_000):
            log.append([Record(value=b"v" * 100)])
            if number % 500 == 0:
                before = sorted(map(str, (tmp_path / "data").rglob("*")))
                first, second = list_partitions(tmp_path / "data")
                assert second.end_offset == number + 1
                assert (first.health, first.problems, second.problems) == ("empty", (), ())
                assert sorted(map(str, (tmp_path / "data").rglob("*"))) == before
        assert second.settings == {"segment.bytes": "100000", "retention.ms": "5"}


def test_listing_of_states_and_globs(tmp_path: Path) -> None:
    """Directories that a broker has renamed, and patterns of topics."""
    for name in ("a-0", "a-10", "a-2", "b-0"):
        make_log(tmp_path / name)
    (tmp_path / "meta.properties").write_text("version=1\n")
    (tmp_path / "b-0").rename(tmp_path / f"b-0.{'0' * 32}-delete")
    found = list_partitions(tmp_path)

    assert [str(each.topic_partition) for each in found] == ["a-0", "a-2", "a-10", "b-0"]
    assert (found[3].state, found[3].health) == (DirectoryState.DELETE, "deleted")
    assert len(list_partitions(tmp_path, topics="b*")) == 1
    assert len(list_partitions(tmp_path, topics=["x", "a"])) == 3
    assert len(list_partitions(f"a@{tmp_path}")) == len(list_partitions(tmp_path / "a")) == 3
    assert len(list_partitions(f"a-2@{tmp_path}")) == 1


@pytest.mark.parametrize(
    ("position", "data", "end_offset", "message"),
    [
        (0, b"\xff" * 30, 30, "not a batch"),
        (-50, b"", 29, "an incomplete batch"),
        (-169, b"\xee" * 40, 29, "not a batch"),
    ],
)
def test_listing_of_damage_has_file_and_position(
    tmp_path: Path, position: int, data: bytes, end_offset: int, message: str
) -> None:
    """At the start, at the end; the numbers that the headers still show are there."""
    make_log(tmp_path / "t-0", appends=30)
    path = log_file(tmp_path / "t-0")
    whole = path.read_bytes()
    assert len(whole) % 30 == 0
    if data:
        start = position % len(whole)
        path.write_bytes(whole[:start] + data + whole[start + len(data) :])
    else:
        path.write_bytes(whole[:position])
    found = one(tmp_path / "t-0")

    assert found.health == "damaged"
    (problem,) = found.problems
    assert (problem.path, problem.message) == (path, message)
    if position:
        assert problem.position == len(whole) // 30 * 29
        assert found.end_offset == end_offset


def test_listing_of_a_garbage_index_is_that_of_the_batches(tmp_path: Path) -> None:
    """An index is a hint only: a wrong one costs a walk from the start."""
    make_log(tmp_path / "t-0", appends=1_000)
    index = tmp_path / "t-0" / f"{0:020}.index"
    index.write_bytes(b"\x7f" * 80)
    assert one(tmp_path / "t-0").end_offset == 1_000
    index.write_bytes(b"\x00\x00\x00\x01" * 20)
    assert one(tmp_path / "t-0").end_offset == 1_000
    index.unlink()
    assert one(tmp_path / "t-0").end_offset == 1_000


def test_listing_of_damaged_state_files_continues(tmp_path: Path) -> None:
    """The partition is listed; the checkpoint is a problem."""
    make_log(tmp_path / "t-0")
    (tmp_path / "log-start-offset-checkpoint").write_bytes(b"garbage")
    found = one(tmp_path)

    assert (found.end_offset, found.health) == (3, "damaged")
    assert "log-start-offset-checkpoint" in found.problems[0].message


class Vanishing:
    """A file system whose first opens find no file, as if a retention had deleted it."""

    def __init__(self, misses: int) -> None:
        self._disk = PosixFileSystem()
        self._misses = misses

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def open(self, path: Path) -> FileHandle:
        """Open a segment, or miss it."""
        if path.suffix == ".log" and self._misses:
            self._misses -= 1
            raise FileNotFoundError(path)
        return self._disk.open(path)


def test_listing_of_a_log_whose_segments_disappear_lists_again(tmp_path: Path) -> None:
    """Retention and compaction work during a list."""
    make_log(tmp_path / "t-0", appends=40, segment_bytes=1_000)
    (found,) = list_partitions(tmp_path / "t-0", filesystem=cast(FileSystem, Vanishing(3)))
    assert (found.end_offset, found.problems) == (40, ())
    (found,) = list_partitions(tmp_path / "t-0", filesystem=cast(FileSystem, Vanishing(99)))
    assert (found.end_offset, len(found.problems)) == (None, 1)


def test_listing_of_wrong_names_suggests_the_nearest(tmp_path: Path) -> None:
    """Paths, topics and foreign directories; nothing is created."""
    make_log(tmp_path / "data" / "orders-0")
    (tmp_path / "data" / "meta.properties").write_text("version=1\n")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_bytes(b"")

    with pytest.raises(NotALogError, match=r"nearest name is .*data"):
        list_partitions(tmp_path / "dat")
    with pytest.raises(NotALogError, match=r"nearest name is .*data"):
        list_partitions(tmp_path / "dat" / "orders-0")
    with pytest.raises(UnknownTopicOrPartitionError, match="nearest name is orders"):
        list_partitions(f"order@{tmp_path / 'data'}")
    with pytest.raises(UnknownTopicOrPartitionError, match="nearest name is orders-0"):
        list_partitions(tmp_path / "data" / "order-0")
    with pytest.raises(NotALogError, match="neither a data directory nor a partition"):
        list_partitions(tmp_path / "other")
    with pytest.raises(NotALogError, match="not a directory"):
        list_partitions(tmp_path / "other" / "file")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["data", "other"]
