"""Encoding of a task's rows to files of batches, for each partition in their order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafkalog import LogManager
from kafkalog.files.posix import PosixFileSystem
from kafkalog.log.ingest import file_batches
from kafkalog.records.batch_view import BatchView
from kafkalog.records.codecs import Codec
from kafkalog.spark import encoding
from kafkalog.spark.encoding import EncodingRules, TaskAttempt, TaskWriter, topics_in
from kafkalog.spark.errors import ErrorCode, KafkaLogSparkError
from kafkalog.spark.txn.model import StagedFile, TransactionId
from kafkalog.spark.txn.staging import StagingArea
from tests.support.manual_time import START_MS, ManualClock

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def rules(**changes: Any) -> EncodingRules:
    """Return encoding rules with the changes."""
    defaults: dict[str, Any] = {
        "topic": "t",
        "new_partitions": 1,
        "partitioner": "murmur2",
        "codec": Codec.NONE,
        "batch_bytes": 1024,
        "segment_bytes": 1 << 30,
        "timestamp_column": None,
    }
    return EncodingRules(**(defaults | changes))


def writer(directory: Path, encoding_rules: EncodingRules, task: int = 3) -> TaskWriter:
    """Return the writer of a task attempt."""
    filesystem = PosixFileSystem()
    return TaskWriter(
        directory,
        StagingArea(filesystem, directory),
        TransactionId.of_query("q", 1),
        encoding_rules,
        filesystem=filesystem,
        clock=ManualClock(),
        attempt=TaskAttempt(task, 9),
    )


def rows_of(file: StagedFile) -> Iterator[tuple[bytes | None, bytes | None, int]]:
    """Yield key, value and time of the rows in a file."""
    data = Path(file.path).read_bytes()
    for batch in file_batches(data, Path(file.path)):
        view = BatchView(memoryview(data)[batch.position : batch.end_position])
        yield from ((record.key, record.value, record.timestamp_ms) for record in view.records())


def table(count: int, **columns: pa.Array) -> pa.RecordBatch:
    """Return rows with numbers as values."""
    value = pa.array([b"%d" % row for row in range(count)], pa.binary())
    return pa.record_batch({"value": value, **columns})


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD, Codec.GZIP, Codec.LZ4], ids=str)
def test_rows_of_many_arrow_batches_keep_their_order(tmp_path: Path, codec: Codec) -> None:
    """The batches of Arrow and of the log have different borders."""
    task = writer(tmp_path, rules(codec=codec))
    for _ in range(5):
        task.write(table(100))
    [file] = task.finish()
    assert [b"%d" % row for row in range(100)] * 5 == [value for _k, value, _t in rows_of(file)]
    assert {START_MS} == {time for _key, _value, time in rows_of(file)}
    assert (500, 3, 0, "t", 0, 1) == (
        file.record_count, file.task, file.sequence, file.topic, file.partition,
        file.partition_count,
    )  # fmt: skip
    assert Path(file.path).stat().st_size == file.size_bytes
    assert (500, START_MS, START_MS) == (
        file.null_key_count, file.min_timestamp, file.max_timestamp,
    )  # fmt: skip
    batches = file_batches(Path(file.path).read_bytes(), Path(file.path))
    assert len(batches) == file.batch_count > 1
    assert max(batch.size_bytes for batch in batches) == file.largest_batch_bytes


def test_rows_of_many_topics_are_split_by_partition(tmp_path: Path) -> None:
    """Existing topics keep their partition count, new ones get that of the option."""
    with LogManager([tmp_path]) as manager:
        manager.create_topic("old", 3)
    assert {"old": [0, 1, 2]} == topics_in(PosixFileSystem(), tmp_path)
    topics = pa.array(["old", "new", "old", "new", "old", "new"])
    partitions = pa.array([2, 1, 0, 1, 2, 0], pa.int32())
    task = writer(tmp_path, rules(topic=None, new_partitions=2))
    for _ in range(2):
        task.write(table(6, topic=topics, partition=partitions))
    found = {
        (file.topic, file.partition, file.partition_count): [
            value for _k, value, _t in rows_of(file)
        ]
        for file in task.finish()
    }
    assert {
        ("old", 2, 3): [b"0", b"4"] * 2,
        ("old", 0, 3): [b"2"] * 2,
        ("new", 1, 2): [b"1", b"3"] * 2,
        ("new", 0, 2): [b"5"] * 2,
    } == found


def test_rows_with_headers_are_split_by_partition(tmp_path: Path) -> None:
    """They use another code path than rows without headers."""
    headers = pa.array([[{"key": "h", "value": b"%d" % row}] for row in range(200)], HEADERS)
    partitions = pa.array([row % 2 for row in range(200)], pa.int32())
    task = writer(tmp_path, rules(new_partitions=2))
    task.write(table(200, partition=partitions, headers=headers))
    for file in task.finish():
        expected = [b"%d" % row for row in range(file.partition, 200, 2)]
        assert expected == [value for _key, value, _time in rows_of(file)]


def test_full_file_is_followed_by_another(tmp_path: Path) -> None:
    """No file is larger than a segment; their numbers give the order."""
    task = writer(tmp_path, rules(segment_bytes=3000))
    task.write(table(1000))
    files = sorted(task.finish(), key=lambda file: file.sequence)
    assert len(files) > 3
    assert all(file.size_bytes <= 3000 for file in files)
    values = [value for file in files for _key, value, _time in rows_of(file)]
    assert [b"%d" % row for row in range(1000)] == values


def test_record_larger_than_a_batch_has_its_own_batch(tmp_path: Path) -> None:
    """The commit checks the limit of the topic."""
    task = writer(tmp_path, rules())
    values = [b"a", bytes(5000), b"b"]
    task.write(pa.record_batch({"value": pa.array(values, pa.binary())}))
    [file] = task.finish()
    assert values == [value for _key, value, _time in rows_of(file)]
    assert 3 == file.batch_count
    assert file.largest_batch_bytes > 5000


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (pa.array([5, None, 7], pa.int64()), [5, -1, 7]),
        (pa.array([5_999, None, 7_000], pa.timestamp("us", tz="UTC")), [5, -1, 7]),
        (pa.array([5_999, 0, 7_000], pa.timestamp("us")), [5, 0, 7]),
    ],
    ids=["ms", "timestamp", "timestamp_ntz"],
)
def test_timestamps_of_a_column_are_rounded_down_to_milliseconds(
    tmp_path: Path, times: pa.Array, expected: list[int]
) -> None:
    """A null is a record without a timestamp."""
    task = writer(tmp_path, rules(timestamp_column="at"))
    task.write(table(3, at=times))
    [file] = task.finish()
    assert expected == [time for _key, _value, time in rows_of(file)]
    assert max(expected) == file.max_timestamp
    assert min(time for time in expected if time >= 0) == file.min_timestamp


def test_headers_and_strings_are_encoded(tmp_path: Path) -> None:
    """Text is UTF-8; a null cell is a record without headers."""
    headers = pa.array([[{"key": "h", "value": b"1"}], None, []], HEADERS)
    task = writer(tmp_path, rules())
    keys = pa.array(["\u00e9", None, "b"])
    task.write(
        pa.record_batch({"value": pa.array(["x", None, ""]), "key": keys, "headers": headers})
    )
    [file] = task.finish()
    data = Path(file.path).read_bytes()
    records = list(BatchView(memoryview(data)).records())
    assert [(("h", b"1"),), (), ()] == [record.headers for record in records]
    assert [("\u00e9".encode(), b"x"), (None, None), (b"b", b"")] == [
        (record.key, record.value) for record in records
    ]
    assert 1 == file.null_key_count


@pytest.mark.parametrize(
    ("columns", "changes", "code"),
    [
        ({"topic": pa.array([None], pa.string())}, {"topic": None}, ErrorCode.COLUMN_MISSING),
        ({"topic": pa.array(["a/b"])}, {"topic": None}, ErrorCode.OPTION_INVALID),
        ({"partition": pa.array([1], pa.int32())}, {}, ErrorCode.PARTITION_OUT_OF_RANGE),
        (
            {"at": pa.array([-2_000_000], pa.timestamp("us"))},
            {"timestamp_column": "at"},
            ErrorCode.RECORD_INVALID,
        ),
    ],
    ids=["no-topic", "topic-name", "partition", "before-1970"],
)
def test_invalid_row_is_refused(
    tmp_path: Path, columns: dict[str, pa.Array], changes: dict[str, Any], code: ErrorCode
) -> None:
    """The error has a code."""
    task = writer(tmp_path, rules(**changes))
    with pytest.raises(KafkaLogSparkError) as caught:
        task.write(table(1, **columns))
    assert code == caught.value.code
    task.abandon()


def test_abandoned_attempt_leaves_no_file(tmp_path: Path) -> None:
    """Finished and unfinished files are removed, and the directories."""
    task = writer(tmp_path, rules(segment_bytes=3000))
    task.write(table(1000))
    assert any(tmp_path.rglob("*.log"))
    task.abandon()
    assert [] == list(tmp_path.iterdir())


def test_topic_with_missing_partitions_is_refused(tmp_path: Path) -> None:
    """A topic in several directories has an unknown number of partitions."""
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-2").mkdir()
    task = writer(tmp_path, rules())
    with pytest.raises(KafkaLogSparkError) as caught:
        task.write(table(1))
    assert ErrorCode.UNSUPPORTED == caught.value.code


@pytest.mark.parametrize("spread_max", [64, 1], ids=["spread", "brought together"])
def test_many_partitions_use_bounded_memory_and_open_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spread_max: int
) -> None:
    """The largest batches are closed early, and files are reopened."""
    monkeypatch.setattr(encoding, "SPREAD_MAX", spread_max)
    monkeypatch.setattr(encoding, "PENDING_BYTES", 4000)
    monkeypatch.setattr(encoding, "OPEN_FILES", 3)
    task = writer(tmp_path, rules(new_partitions=20, batch_bytes=1 << 20))
    partitions = pa.array([row % 20 for row in range(400)], pa.int32())
    for _ in range(4):
        task.write(table(400, partition=partitions))
    files = task.finish()
    assert 20 == len(files)
    assert any(file.batch_count > 1 for file in files)
    for file in files:
        expected = [b"%d" % row for row in range(file.partition, 400, 20)] * 4
        assert expected == [value for _key, value, _time in rows_of(file)]
