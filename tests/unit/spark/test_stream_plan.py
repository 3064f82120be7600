"""Plans of streams without Spark: offsets, growth, new partitions, restarts, losses."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog import AppendOrigin, LogConfig, Record
from kafkalog.files.posix import PosixFileSystem
from kafkalog.spark import log_ends
from kafkalog.spark.errors import ErrorCode, KafkaLogSparkError
from kafkalog.spark.log_ends import LogEnds
from kafkalog.spark.options import ReadOptions
from kafkalog.spark.plan.log_files import follow_log_end
from kafkalog.spark.plan.snapshot import read_partition_facts
from kafkalog.spark.stream_offsets import OffsetJson
from kafkalog.spark.stream_plan import StreamPlan
from kafkalog.state.kafka_uuid import format_id
from kafkalog.state.partition_metadata import write_partition_metadata
from tests.support.manual_time import ManualClock
from tests.support.producer_batches import Produced, encoded

SMALL = LogConfig(segment_bytes=5_000, index_interval_bytes=1024)


def append(root: Path, name: str, count: int) -> None:
    """Append records to a partition, one a batch, and close it."""
    (root / "meta.properties").touch()
    with kafkalog.open_log(root / name, config=SMALL) as log:
        for _ in range(count):
            log.append([Record(value=b"v" * 50)])


def stream(root: Path, clock: ManualClock | None = None, **settings: str) -> StreamPlan:
    """Return a stream over a data directory, from the earliest offsets by default."""
    options = {"path": str(root), "startingOffsets": "earliest", **settings}
    return StreamPlan(ReadOptions.parse(options, streaming=True), clock)


def read(plan: StreamPlan, start: OffsetJson, end: OffsetJson) -> dict[str, list[int]]:
    """Return the offsets that the tasks of a micro-batch read."""
    found: dict[str, list[int]] = {}
    for split in plan.splits(start, end):
        for each in split.ranges:
            name = f"{each.topic}-{each.partition}"
            found.setdefault(name, []).extend(range(each.start, each.end))
    return {name: sorted(offsets) for name, offsets in found.items()}


def test_stream_of_a_log_reads_each_offset_once(tmp_path: Path) -> None:
    """Across rolls; without new records the end is the start itself."""
    append(tmp_path, "a-0", 3)
    plan = stream(tmp_path)
    start = plan.initial()
    assert {"a": {"0": 0}} == start
    end = plan.latest(start, is_limited=False)
    assert {"a": {"0": 3}} == end == plan.newest()
    assert {"a-0": [0, 1, 2]} == read(plan, start, end)
    assert end is plan.latest(end, is_limited=False)
    assert {} == read(plan, end, end)
    append(tmp_path, "a-0", 120)
    assert len(list((tmp_path / "a-0").glob("*.log"))) > 2
    fresh = plan.latest(end, is_limited=False)
    assert {"a-0": list(range(3, 123))} == read(plan, end, fresh)
    assert start == plan.initial()


def test_stream_default_begins_at_the_end(tmp_path: Path) -> None:
    """As Kafka's source; a partition created later is read from its start."""
    append(tmp_path, "a-0", 3)
    options = ReadOptions.parse({"path": str(tmp_path)}, streaming=True)
    assert {"a": {"0": 3}} == StreamPlan(options).initial()
    (tmp_path / "void").mkdir()
    plan = stream(tmp_path / "void", startingOffsets="latest")
    start = plan.initial()
    assert {} == start == plan.latest(start, is_limited=False)
    append(tmp_path / "void", "b-1", 2)
    end = plan.latest(start, is_limited=False)
    assert {"b-1": [0, 1]} == read(plan, start, end)


def test_stream_offsets_are_sorted_and_valid_starting_offsets(tmp_path: Path) -> None:
    """Topics by name, partitions by number, as JSON."""
    for name in ("b-0", "a-10", "a-9"):
        append(tmp_path, name, 1)
    plan = stream(tmp_path)
    end = plan.latest(plan.initial(), is_limited=False)
    assert '{"a": {"9": 1, "10": 1}, "b": {"0": 1}}' == json.dumps(end)
    assert end == stream(tmp_path, startingOffsets=json.dumps(end)).initial()


def test_stream_new_partition_is_read_from_its_start(tmp_path: Path) -> None:
    """With any starting offsets, during a run and between two runs."""
    append(tmp_path, "a-0", 2)
    plan = stream(tmp_path, startingOffsets="latest")
    start = plan.initial()
    append(tmp_path, "a-1", 3)
    end = plan.latest(start, is_limited=False)
    assert {"a-1": [0, 1, 2]} == read(plan, start, end)
    append(tmp_path, "b-0", 1)
    plan = stream(tmp_path)
    assert {"b-0": [0]} == read(plan, end, plan.latest(end, is_limited=False))


def test_stream_replayed_reads_the_same(tmp_path: Path) -> None:
    """A run that begins with the offsets of an uncommitted micro-batch."""
    append(tmp_path, "a-0", 50)
    append(tmp_path, "a-1", 5)
    plan = stream(tmp_path, maxOffsetsPerTrigger="20", minPartitions="3")
    start = plan.initial()
    end = plan.latest(start, is_limited=True)
    expected = plan.splits(start, end)
    assert 20 == sum(split.offset_count for split in expected)
    append(tmp_path, "a-0", 1)
    stored = json.loads(json.dumps([start, end]))
    resumed = stream(tmp_path, maxOffsetsPerTrigger="20", minPartitions="3")
    assert expected == resumed.splits(*stored)


def test_stream_frozen_leaves_out_later_records_and_partitions(tmp_path: Path) -> None:
    """AvailableNow: they belong to the next run."""
    append(tmp_path, "a-0", 30)
    plan = stream(tmp_path, maxOffsetsPerTrigger="20", minOffsetsPerTrigger="15")
    plan.freeze()
    start = plan.initial()
    append(tmp_path, "a-0", 7)
    append(tmp_path, "b-0", 7)
    middle = plan.latest(start, is_limited=True)
    end = plan.latest(middle, is_limited=True)
    assert [{"a": {"0": 20}}, {"a": {"0": 30}}] == [middle, end]
    assert end is plan.latest(end, is_limited=True)
    following = stream(tmp_path)
    rest = following.latest(end, is_limited=False)
    assert {"a-0": list(range(30, 37)), "b-0": list(range(7))} == read(following, end, rest)


def test_stream_limits_apply_only_if_spark_requests_them(tmp_path: Path) -> None:
    """Trigger.Once reads everything; a stream that waits returns its start."""
    append(tmp_path, "a-0", 30)
    clock = ManualClock()
    plan = stream(tmp_path, clock, maxOffsetsPerTrigger="20", minOffsetsPerTrigger="15")
    start = plan.initial()
    assert {"a": {"0": 30}} == plan.latest(start, is_limited=False)
    middle = plan.latest(start, is_limited=True)
    assert {"a": {"0": 20}} == middle
    assert middle is plan.latest(middle, is_limited=True)
    clock.advance(15 * 60_000)
    assert {"a": {"0": 30}} == plan.latest(middle, is_limited=True)


def test_stream_read_committed_stops_at_an_open_transaction(tmp_path: Path) -> None:
    """It continues after the end of the transaction."""
    (tmp_path / "meta.properties").touch()
    plan = stream(tmp_path, isolationLevel="read_committed")
    with kafkalog.open_log(tmp_path / "a-0") as log:
        log.append([Record(value=b"plain")] * 4)
        data = encoded([Produced(7, 0, 0, 3, transactional=True)])
        log.append_batches(data, origin=AppendOrigin.COORDINATOR)
        log.append([Record(value=b"behind")])
        start = plan.latest(plan.initial(), is_limited=False)
        assert {"a": {"0": 4}} == start
        ends = encoded([Produced(7, ends="commit")])
        log.append_batches(ends, origin=AppendOrigin.COORDINATOR)
        assert {"a": {"0": 9}} == plan.latest(start, is_limited=False)


def lost(plan: StreamPlan, start: OffsetJson, end: OffsetJson | None = None) -> dict[str, Any]:
    """Return the detail of the data loss of a micro-batch."""
    with pytest.raises(KafkaLogSparkError) as caught:
        if end is None:
            plan.latest(start, is_limited=False)
        else:
            plan.splits(start, end)
    assert ErrorCode.DATA_LOSS == caught.value.code
    return caught.value.detail


@pytest.mark.parametrize(("rule", "expected"), [("earliest", [6, 7, 8, 9]), ("latest", [])])
def test_stream_unread_records_deleted_are_a_data_loss(
    tmp_path: Path, rule: str, expected: list[int]
) -> None:
    """Records that were read may be deleted; others raise, or are skipped by the option."""
    append(tmp_path, "a-0", 10)
    with kafkalog.open_log(tmp_path / "a-0") as log:
        log.delete_records(6)
    start, end = {"a": {"0": 3}}, {"a": {"0": 10}}
    detail = lost(stream(tmp_path), start)
    assert ("deleted", 3, 6) == (detail["cause"], detail["first"], detail["log_start_offset"])
    assert 6 == lost(stream(tmp_path), start, end)["end"]
    assert end == stream(tmp_path).latest({"a": {"0": 6}}, is_limited=False)
    lenient = stream(tmp_path, onDataLoss=rule)
    assert end == lenient.latest(start, is_limited=False)
    assert expected == read(lenient, start, end).get("a-0", [])
    # An empty range has no loss.
    assert {} == read(stream(tmp_path), {"a": {"0": 3}}, {"a": {"0": 3}})


@pytest.mark.parametrize("rule", ["earliest", "latest"])
def test_stream_log_truncated_below_its_offset_is_a_data_loss(tmp_path: Path, rule: str) -> None:
    """Below the start or the end of a micro-batch; no offset is read twice."""
    append(tmp_path, "a-0", 10)
    with kafkalog.open_log(tmp_path / "a-0") as log:
        log.truncate_to(6)
    start, end = {"a": {"0": 8}}, {"a": {"0": 10}}
    assert ("truncated", 6) == tuple(
        lost(stream(tmp_path), start)[key] for key in ("cause", "first")
    )
    assert 8 == lost(stream(tmp_path), {"a": {"0": 3}}, {"a": {"0": 9}})["end"] - 1
    lenient = stream(tmp_path, onDataLoss=rule)
    shorter = lenient.latest(start, is_limited=False)
    assert {"a": {"0": 6}} == shorter
    assert {} == read(lenient, start, shorter)
    assert {"a-0": [3, 4, 5]} == read(lenient, {"a": {"0": 3}}, end)
    append(tmp_path, "a-0", 2)
    fresh = lenient.latest(shorter, is_limited=False)
    assert {"a-0": [6, 7]} == read(lenient, shorter, fresh)


def make_topic(root: Path, count: int) -> str:
    """Create a topic with an id, after removing an old one; return the id."""
    shutil.rmtree(root / "a-0", ignore_errors=True)
    append(root, "a-0", count)
    topic_id = uuid.uuid4()
    write_partition_metadata(PosixFileSystem(), root / "a-0", topic_id)
    return format_id(topic_id)


def test_stream_topic_created_again_is_a_data_loss(tmp_path: Path) -> None:
    """Found by the topic ids in the checkpoint; `earliest` reads the whole new topic."""
    first_id = make_topic(tmp_path, 5)
    plan = stream(tmp_path)
    start = plan.latest(plan.initial(), is_limited=False)
    assert {"a": {"0": 5}, "#topic_ids": {"a": first_id}} == start
    assert start == stream(tmp_path, startingOffsets=json.dumps(start)).initial()
    second_id = make_topic(tmp_path, 9)
    for each in (plan, stream(tmp_path)):
        assert "another topic" == lost(each, start)["cause"]
    lenient = stream(tmp_path, failOnDataLoss="false")
    end = lenient.latest(start, is_limited=False)
    assert {"a": {"0": 9}, "#topic_ids": {"a": second_id}} == end
    assert {"a-0": list(range(9))} == read(lenient, start, end)
    assert end is lenient.latest(end, is_limited=False)
    latest = stream(tmp_path, onDataLoss="latest")
    assert {} == read(latest, start, latest.latest(start, is_limited=False))
    # Created again after that end was planned.
    make_topic(tmp_path, 20)
    assert "another topic" == lost(stream(tmp_path), end, {**end, "a": {"0": 12}})["cause"]
    assert {} == read(stream(tmp_path, failOnDataLoss="false"), end, {**end, "a": {"0": 12}})


def test_stream_deleted_partition_is_a_data_loss(tmp_path: Path) -> None:
    """The error names it; without failing, the stream continues with the others."""
    append(tmp_path, "a-0", 2)
    append(tmp_path, "a-1", 2)
    start = {"a": {"0": 1, "1": 1}}
    plan = stream(tmp_path, failOnDataLoss="false")
    assert {"a": {"0": 2, "1": 2}} == plan.latest(start, is_limited=False)
    shutil.rmtree(tmp_path / "a-1")
    assert 1 == lost(stream(tmp_path), start)["partition"]
    assert 1 == lost(stream(tmp_path), start, {"a": {"0": 2, "1": 2}})["partition"]
    assert {"a": {"0": 2}} == plan.latest(start, is_limited=False)
    assert {"a": {"0": 2}} == plan.latest({"a": {"0": 2, "1": 1}}, is_limited=False)
    assert {"a-0": [1]} == read(plan, start, {"a": {"0": 2, "1": 2}})


class Looks:
    """Counter of full reads and followed ends of partitions, with old enough file times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.read_in_full: list[str] = []
        self.followed: list[str] = []

        def counting_look(disk: Any, directory: str, *rest: Any) -> Any:
            self.read_in_full.append(Path(directory).name)
            return read_partition_facts(disk, directory, *rest)

        def counting_follow(disk: Any, directory: Path, *rest: Any) -> Any:
            self.followed.append(directory.name)
            return follow_log_end(disk, directory, *rest)

        monkeypatch.setattr(log_ends, "read_partition_facts", counting_look)
        monkeypatch.setattr(log_ends, "follow_log_end", counting_follow)

    def taken(self) -> tuple[list[str], list[str]]:
        """Return the partitions read in full and those followed, since the last call."""
        found = sorted(self.read_in_full), sorted(self.followed)
        self.read_in_full.clear()
        self.followed.clear()
        return found


def test_log_ends_unchanged_logs_are_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Growth is followed from the last end; a new segment is read in full."""
    root = tmp_path / "data"
    root.mkdir()
    for name in ("a-0", "a-1"):
        append(root, name, 3)
    looks = Looks(monkeypatch)
    options = ReadOptions.parse({"path": str(root)}, streaming=True)
    logs = LogEnds(options, clock=ManualClock(now_ms=2**42))
    logs.refresh()
    assert (["a-0", "a-1"], []) == looks.taken()
    with kafkalog.open_log(root / "a-0", config=SMALL) as log:
        # Opening a log for writing changes the directory.
        logs.refresh()
        looks.taken()
        logs.refresh()
        looks.taken()
        log.append([Record(value=b"v")])
        logs.refresh()
        assert ([], ["a-0"]) == looks.taken()
        assert [4, 3] == logs.log_ends.tolist()
        logs.refresh()
        assert ([], []) == looks.taken()
        log.roll()
        os.utime(root / "a-0", ns=(1, 1))
        log.append([Record(value=b"v")])
        logs.refresh()
        assert (["a-0"], []) == looks.taken()
        assert [5, 3] == logs.log_ends.tolist()


def test_log_ends_of_many_partitions_are_checked_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some each time, and those that grew recently; all of them with `fully`."""
    for number in range(6):
        append(tmp_path, f"a-{number}", 1)
    monkeypatch.setattr(log_ends, "CHECKS_MAX", 2)
    options = ReadOptions.parse({"path": str(tmp_path)}, streaming=True)
    logs = LogEnds(options, clock=ManualClock(now_ms=2**42))
    logs.refresh()
    # Without growth, partitions are only checked in turn.
    for _ in range(4):
        logs.refresh()
    path = tmp_path / "a-5"
    with kafkalog.open_log(path) as log:
        log.append([Record(value=b"v")] * 4)
    seen = []
    for _ in range(3):
        logs.refresh()
        seen.append(int(logs.log_ends[5]))
    assert 5 == seen[-1]
    assert sorted(seen) == seen
    with kafkalog.open_log(tmp_path / "a-2") as log:
        log.append([Record(value=b"v")] * 4)
    logs.refresh(fully=True)
    assert [1, 1, 5, 1, 1, 5] == logs.log_ends.tolist()


def test_log_ends_new_segment_is_found_by_the_directory_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the directory shows the roll of an unchanged segment; old columns stay."""
    for number in range(4):
        append(tmp_path, f"a-{number}", 1)
    monkeypatch.setattr(log_ends, "DIRECTORY_CHECKS_MAX", 1)
    options = ReadOptions.parse({"path": str(tmp_path)}, streaming=True)
    logs = LogEnds(options, clock=ManualClock(now_ms=2**42))
    for _ in range(3):
        logs.refresh()
    before = logs.log_ends
    segment = tmp_path / "a-3" / f"{0:020}.log"
    stamp = segment.stat().st_mtime_ns
    with kafkalog.open_log(tmp_path / "a-3") as log:
        log.roll()
        log.append([Record(value=b"v")] * 4)
    os.utime(segment, ns=(stamp, stamp))
    for _ in range(4):
        logs.refresh()
    assert [1, 1, 1, 5] == logs.log_ends.tolist()
    assert [1, 1, 1, 1] == before.tolist()


def test_stream_disk_error_has_a_code(tmp_path: Path) -> None:
    """Also for calls of the file system outside the engine."""
    (tmp_path / "a-0").symlink_to(tmp_path / "a-0")
    for path in (tmp_path, tmp_path / "a-0"):
        plan = StreamPlan(ReadOptions.parse({"path": str(path)}, streaming=True))
        with pytest.raises(KafkaLogSparkError) as caught:
            plan.initial()
        assert (ErrorCode.STORAGE, str(tmp_path / "a-0")) == (
            caught.value.code,
            caught.value.path,
        )
