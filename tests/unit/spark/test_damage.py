"""Damaged input in each mode, files that change during a read, and memory bounds."""

from __future__ import annotations

import json
import logging
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog import Record
from kafkalog._core import crc32c
from kafkalog.files import zeros as zeros_module
from kafkalog.files.filesystem import FileHandle
from kafkalog.files.names import SegmentFiles
from kafkalog.files.posix import PosixFileHandle, PosixFileSystem
from kafkalog.log.ranges import damage as damage_module
from kafkalog.log.ranges import reader as reader_module
from kafkalog.spark.errors import ErrorCode, KafkaLogSparkError
from kafkalog.spark.options import ReadOptions
from kafkalog.spark.plan import FilterSet, LogSplit, SplitRange
from kafkalog.spark.plan.splitting import split_at_least
from tests.support.damage import batch_positions, flip, log_file, splice, truncate, zero_range
from tests.support.logs import manual_log, numbered
from tests.support.spark_rows import planned, read_batches, read_table

COLUMNS = ["offset", "key", "value", "topic", "partition", "_corrupt_record"]
TOPIC = "orders-3"


def make_log(tmp_path: Path, *, batches: int = 8, **settings: Any) -> Path:
    """Append batches of two records each; several segments if they are small."""
    directory = tmp_path / TOPIC
    with manual_log(directory, **settings) as log:
        for number in range(batches):
            log.append(numbered(2 * number, 2))
    return directory


def split_of(directory: Path, start: int, end: int) -> LogSplit:
    """Return the split of a range, as planned before the files changed."""
    return LogSplit((SplitRange(str(directory), "orders", 3, start, end),), 1)


def read_range(directory: Path, start: int, end: int, **settings: str) -> list[dict[str, Any]]:
    """Return the rows of a range."""
    options = ReadOptions.parse({"path": str(directory), **settings})
    batches = read_batches([split_of(directory, start, end)], options, columns=COLUMNS)
    return [row for batch in batches for row in batch.to_pylist()]


def offsets_until_error(
    directory: Path, start: int, end: int, **settings: str
) -> tuple[list[int], KafkaLogSparkError | None]:
    """Return the offsets of the rows before an error, and the error."""
    options = ReadOptions.parse({"path": str(directory), **settings})
    found: list[int] = []
    try:
        for batch in read_batches([split_of(directory, start, end)], options, columns=["offset"]):
            found += batch["offset"].to_pylist()
    except KafkaLogSparkError as error:
        return found, error
    return found, None


def check_modes(
    directory: Path, end: int, kept: list[int], code: ErrorCode, *, first: int, **settings: str
) -> dict[str, Any]:
    """Check all three modes at one damaged range; return the facts of its row."""
    before, error = offsets_until_error(directory, 0, end, **settings)
    assert [offset for offset in kept if offset < first] == before
    assert error is not None and code is error.code
    assert f"[KAFKALOG.{code}]" in str(error)
    detail = json.loads(str(error)[str(error).index(' {"') :])
    assert {"path", "position", "base_offset"} <= detail.keys()
    dropped = read_range(directory, 0, end, mode="DROPMALFORMED", **settings)
    assert kept == [row["offset"] for row in dropped]
    rows = read_range(directory, 0, end, mode="PERMISSIVE", **settings)
    damaged = [row for row in rows if row["_corrupt_record"] is not None]
    assert kept == sorted(row["offset"] for row in rows if row["_corrupt_record"] is None)
    ((offset, key, value, topic, partition, text),) = [row.values() for row in damaged]
    assert (first, None, None, "orders", 3) == (offset, key, value, topic, partition)
    facts: dict[str, Any] = json.loads(text)
    assert code == facts["code"]
    return facts


def test_wrong_crc_is_corrupt(tmp_path: Path) -> None:
    """The error has the position of the batch; the read continues with the next one."""
    directory = make_log(tmp_path)
    path = log_file(directory)
    start, end = batch_positions(path)[3:5]
    flip(path, start + 70)
    kept = [offset for offset in range(16) if offset not in (6, 7)]
    facts = check_modes(directory, 16, kept, ErrorCode.CORRUPT_BATCH, first=6)
    assert (str(path), start, end - start) == (
        facts["path"],
        facts["position"],
        facts["size_bytes"],
    )
    assert (6, 8, "CRC") == (facts["base_offset"], facts["next_offset"], facts["reason"])


def test_wrong_crc_without_checks_is_read(tmp_path: Path) -> None:
    """`checkCrcs=false` skips only the CRC check."""
    directory = make_log(tmp_path)
    path = log_file(directory)
    flip(path, batch_positions(path)[3] + 17)
    rows = read_range(directory, 0, 16, checkCrcs="false")
    assert list(range(16)) == [row["offset"] for row in rows]


@pytest.mark.parametrize("position", [8, 16, 23])
def test_invalid_header_skips_to_the_next_batch(position: int, tmp_path: Path) -> None:
    """Length, magic and last offset delta: the search finds the next batch."""
    directory = make_log(tmp_path)
    path = log_file(directory)
    flip(path, batch_positions(path)[3] + position, 0xF0)
    kept = [offset for offset in range(16) if offset not in (6, 7)]
    check_modes(directory, 16, kept, ErrorCode.CORRUPT_BATCH, first=6)


def test_large_damage_is_skipped_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damage larger than a chunk is mapped, so no more bytes are copied than without it."""
    directory = make_log(tmp_path, batches=200)
    path = log_file(directory)
    starts = batch_positions(path)
    zero_range(path, starts[3], starts[150] - starts[3])
    kept = [*range(6), *range(300, 400)]
    copied: list[int] = []
    pread = PosixFileHandle.pread

    def counted(handle: PosixFileHandle, size: int, position: int) -> bytes:
        data = pread(handle, size, position)
        copied.append(len(data))
        return data

    monkeypatch.setattr(damage_module, "PIECE_BYTES", 300)
    monkeypatch.setattr(zeros_module, "PIECE_BYTES", 300)
    monkeypatch.setattr(reader_module, "PIECE_BYTES", 300)
    monkeypatch.setattr(PosixFileHandle, "pread", counted)
    facts = check_modes(directory, 400, kept, ErrorCode.CORRUPT_BATCH, first=6)
    assert (300, starts[150] - starts[3]) == (facts["next_offset"], facts["size_bytes"])
    assert max(copied) < starts[150] - starts[3]


def test_unknown_format_is_unsupported_in_every_mode(tmp_path: Path) -> None:
    """A batch of a future format is not damage; a damaged magic byte is."""
    directory = make_log(tmp_path)
    path = log_file(directory)
    start, end = batch_positions(path)[3:5]
    data = bytearray(path.read_bytes()[start:end])
    data[16] = 3
    data[30] ^= 0xFF  # the CRC of the known format must not match
    splice(path, start, bytes(data), replacing=end - start)
    for mode in ("FAILFAST", "PERMISSIVE", "DROPMALFORMED"):
        with pytest.raises(KafkaLogSparkError, match=r"UNSUPPORTED.*format 3") as caught:
            read_range(directory, 0, 16, mode=mode)
        assert 3 == caught.value.detail["magic"]


@pytest.mark.parametrize("codec", [5, 7])
def test_unknown_codec_is_unsupported_in_every_mode(codec: int, tmp_path: Path) -> None:
    """Its CRC is right, so it may be good data."""
    directory = make_log(tmp_path)
    path = log_file(directory)
    start, end = batch_positions(path)[3:5]
    data = bytearray(path.read_bytes()[start:end])
    data[22] |= codec
    data[17:21] = struct.pack(">I", crc32c.value(bytes(data[21:])))
    splice(path, start, bytes(data), replacing=end - start)
    for mode in ("FAILFAST", "PERMISSIVE", "DROPMALFORMED"):
        _, error = offsets_until_error(directory, 0, 16, mode=mode)
        assert error is not None and ErrorCode.UNSUPPORTED is error.code


def test_invalid_records_with_a_right_crc_are_corrupt(tmp_path: Path) -> None:
    """The error has the batch of the invalid records."""
    directory = make_log(tmp_path)
    path = log_file(directory)
    start, end = batch_positions(path)[3:5]
    data = bytearray(path.read_bytes()[start:end])
    data[61] ^= 0x7F
    data[17:21] = struct.pack(">I", crc32c.value(bytes(data[21:])))
    splice(path, start, bytes(data), replacing=end - start)
    kept = [offset for offset in range(16) if offset not in (6, 7)]
    check_modes(directory, 16, kept, ErrorCode.CORRUPT_BATCH, first=6)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_batch_that_decompresses_above_the_limit_is_too_large(codec: str, tmp_path: Path) -> None:
    """The other batches are read."""
    directory = tmp_path / TOPIC
    with manual_log(directory, compression_type=codec) as log:
        log.append(numbered(0, 2))
        log.append([Record(value=bytes(200_000))])
        log.append(numbered(3, 2))
    facts = check_modes(
        directory, 5, [0, 1, 3, 4], ErrorCode.BATCH_TOO_LARGE, first=2, maxBatchBytes="100k"
    )
    assert 2 == facts["base_offset"]


def test_batch_above_the_limit_is_too_large(tmp_path: Path) -> None:
    """It is not read, and the batch after it is found."""
    directory = tmp_path / TOPIC
    with manual_log(directory, max_message_bytes=4_000_000) as log:
        log.append(numbered(0, 2))
        log.append([Record(value=os.urandom(1_500_000))])
        log.append(numbered(3, 2))
    facts = check_modes(
        directory, 5, [0, 1, 3, 4], ErrorCode.BATCH_TOO_LARGE, first=2, maxBatchBytes="1200k"
    )
    assert "1228800" in facts["message"] or "1200000" in facts["message"]
    assert [0, 1, 2, 3, 4] == [row["offset"] for row in read_range(directory, 0, 5)]


@pytest.mark.parametrize("tail", [b"\x00" * 4096, b"\x01" * 30, None])
def test_torn_tail_of_the_last_segment_ends_the_log(tail: bytes | None, tmp_path: Path) -> None:
    """Zeros, garbage or half a batch after the last whole one: no error in any mode."""
    directory = make_log(tmp_path)
    path = log_file(directory)
    whole = path.read_bytes()
    path.write_bytes(whole + (whole[: batch_positions(path)[1] - 5] if tail is None else tail))
    (directory / ".kafka_cleanshutdown").unlink(missing_ok=True)
    for mode in ("FAILFAST", "PERMISSIVE", "DROPMALFORMED"):
        table = read_table(directory, columns=["offset"], mode=mode)
        assert list(range(16)) == table["offset"].to_pylist()


def test_torn_tail_of_a_sealed_segment_is_corrupt(tmp_path: Path) -> None:
    """It is one row; the next segment follows."""
    directory = make_log(tmp_path, segment_bytes=300)
    bases = sorted(int(path.stem) for path in directory.glob("*.log"))
    path = log_file(directory)
    cut = batch_positions(path)[-2] + 20
    truncate(path, cut)
    lost = bases[1] - 2
    kept = [offset for offset in range(16) if offset not in (lost, lost + 1)]
    facts = check_modes(directory, 16, kept, ErrorCode.CORRUPT_BATCH, first=lost)
    assert (20, bases[1]) == (facts["size_bytes"], facts["next_offset"])


def test_zeros_at_the_end_of_a_sealed_segment_are_ignored(tmp_path: Path) -> None:
    """Preallocated space that a crash left untrimmed."""
    directory = make_log(tmp_path, segment_bytes=300)
    path = log_file(directory)
    truncate(path, path.stat().st_size + 5000)
    assert list(range(16)) == [row["offset"] for row in read_range(directory, 0, 16)]


def test_gaps_and_empty_segments_are_not_damage(tmp_path: Path) -> None:
    """Compaction removes offsets, and all records of a segment."""
    directory = make_log(tmp_path, segment_bytes=300)
    path = log_file(directory)
    second = sorted(directory.glob("*.log"))[1]
    second.write_bytes(b"")
    start, end = batch_positions(path)[:2]
    splice(path, start, b"", replacing=end - start)
    lost = {0, 1, *range(int(second.stem), int(sorted(directory.glob("*.log"))[2].stem))}
    rows = read_range(directory, 0, 16)
    assert [offset for offset in range(16) if offset not in lost] == [row["offset"] for row in rows]


def test_damage_outside_the_range_is_not_reported(tmp_path: Path) -> None:
    """Before or after the range; damage that overlaps it is reported."""
    directory = make_log(tmp_path)
    path = log_file(directory)
    flip(path, batch_positions(path)[3] + 70)
    for start, end in ((0, 6), (8, 16)):
        offsets, error = offsets_until_error(directory, start, end)
        assert (list(range(start, end)), None) == (offsets, error)
    for start, end in ((0, 7), (7, 16)):
        assert offsets_until_error(directory, start, end)[1] is not None


def test_damage_across_tasks_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By the task in which it begins, or else by the first task of the read."""
    directory = make_log(tmp_path)
    path = log_file(directory)
    starts = batch_positions(path)
    zero_range(path, starts[3], starts[6] - starts[3])
    options = ReadOptions.parse({"path": str(directory), "mode": "PERMISSIVE"})
    whole = LogSplit((SplitRange(str(directory), "orders", 3, 0, 16),), 16)
    for count in (2, 3, 5, 16):
        splits = split_at_least([whole], count)
        batches = list(read_batches(splits, options, columns=COLUMNS))
        rows = [row for batch in batches for row in batch.to_pylist()]
        assert [*range(6), 6, *range(12, 16)] == sorted(row["offset"] for row in rows)
        assert [6] == [row["offset"] for row in rows if row["_corrupt_record"] is not None]
    # No task reads its begin.
    assert [8, 12, 13] == sorted(
        row["offset"] for row in read_range(directory, 8, 14, mode="PERMISSIVE")
    )
    caplog.clear()
    dropped = ReadOptions.parse({"path": str(directory), "mode": "DROPMALFORMED"})
    assert list(read_batches(split_at_least([whole], 5), dropped, columns=COLUMNS))
    assert 1 == len(caplog.records)


def test_filters_apply_to_rows_of_damage(tmp_path: Path) -> None:
    """Spark does not apply a pushed filter again."""
    directory = make_log(tmp_path)
    path = log_file(directory)
    flip(path, batch_positions(path)[3] + 70)
    for terms, expected in (
        ([("key", "==", b"k4")], [4]),
        ([("key", "==", None)], [6]),
        ([("offset", ">", 12)], [13, 14, 15]),
        ([("offset", "in", [3, 6, 9])], [3, 9, 6]),
    ):
        table = read_table(
            directory, columns=COLUMNS, mode="PERMISSIVE", filters=FilterSet.of(terms)
        )
        assert expected == table["offset"].to_pylist()


def test_skipped_damage_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With its code and position, for `python_worker_logs()`."""
    directory = make_log(tmp_path)
    flip(log_file(directory), batch_positions(log_file(directory))[3] + 70)
    with caplog.at_level(logging.WARNING, "kafkalog.spark"):
        read_range(directory, 0, 16, mode="DROPMALFORMED")
    assert ["KAFKALOG.CORRUPT_BATCH" in record.getMessage() for record in caplog.records] == [True]


# ---- files that change during a read ------------------------------------------------------------


class HookedDisk(PosixFileSystem):
    """A disk that calls a hook before the file of one segment is opened."""

    def __init__(self, name: str, hook: Any) -> None:
        super().__init__()
        self._name = name
        self._hook: Any = hook

    def open(self, path: Path, *, create: bool = False, write: bool = False) -> FileHandle:
        if path.name == self._name and self._hook is not None:
            hook, self._hook = self._hook, None
            hook(path)
        return super().open(path, create=create, write=write)


def read_on(disk: HookedDisk, directory: Path, end: int, **settings: str) -> Iterator[int]:
    """Yield the offsets of a range, read from the disk."""
    options = ReadOptions.parse({"path": str(directory), **settings})
    tasks = [split_of(directory, 0, end)]
    for batch in read_batches(tasks, options, columns=["offset"], filesystem=disk):
        yield from batch["offset"].to_pylist()


def test_segment_replaced_by_compaction_is_found_by_offset(tmp_path: Path) -> None:
    """It is removed after the listing; a lower segment then has its records."""
    directory = make_log(tmp_path, segment_bytes=300)
    first, second = sorted(directory.glob("*.log"))[:2]

    def merge(path: Path) -> None:
        merged = first.read_bytes() + second.read_bytes()
        fresh = first.with_suffix(".tmp")
        fresh.write_bytes(merged)
        fresh.rename(first)
        second.unlink()

    disk = HookedDisk(second.name, merge)
    assert list(range(16)) == list(read_on(disk, directory, 16))


def test_segment_deleted_by_retention_is_a_data_loss(tmp_path: Path) -> None:
    """It raises, or is skipped with `failOnDataLoss=false`."""

    def delete(path: Path) -> None:
        for file in sorted(directory.glob("*.log")):
            if file.name <= path.name:
                file.unlink()

    directory = make_log(tmp_path / "a", segment_bytes=300)
    second, third = sorted(directory.glob("*.log"))[1:3]
    with pytest.raises(KafkaLogSparkError) as caught:
        list(read_on(HookedDisk(second.name, delete), directory, 16))
    assert (ErrorCode.DATA_LOSS, int(second.stem), int(third.stem)) == (
        caught.value.code,
        caught.value.detail["first"],
        caught.value.detail["log_start_offset"],
    )
    directory = make_log(tmp_path / "b", segment_bytes=300)
    found = list(read_on(HookedDisk(second.name, delete), directory, 16, failOnDataLoss="false"))
    lost = range(int(second.stem), int(third.stem))
    assert [offset for offset in range(16) if offset not in lost] == found


def test_deleted_directory_is_a_data_loss(tmp_path: Path) -> None:
    """The topic was deleted after the planning."""
    offsets, error = offsets_until_error(tmp_path / TOPIC, 0, 16)
    assert ([], ErrorCode.DATA_LOSS) == (offsets, error and error.code)
    assert ([], None) == offsets_until_error(tmp_path / TOPIC, 0, 16, onDataLoss="latest")


def test_file_truncated_during_a_read_ends_the_log_there(tmp_path: Path) -> None:
    """No SIGBUS: the rows before the cut are read, the rest is a data loss."""
    directory = tmp_path / TOPIC
    with manual_log(directory) as log:
        for _ in range(30):
            log.append([Record(value=bytes(100_000))])
    path = log_file(directory)
    options = ReadOptions.parse({"path": str(directory), "arrowBatchRows": "5"})
    batches = read_batches([split_of(directory, 0, 30)], options, columns=["offset"])
    found = next(batches)["offset"].to_pylist()
    # Within a batch, and before the end of a mapping of the whole file.
    truncate(path, batch_positions(path)[20] + 30)
    with pytest.raises(KafkaLogSparkError) as caught:
        for batch in batches:
            found += batch["offset"].to_pylist()
    assert ErrorCode.DATA_LOSS is caught.value.code
    assert list(range(20)) == found
    assert 20 == caught.value.detail["log_end_offset"]


def test_planned_end_above_the_log_end_is_a_data_loss(tmp_path: Path) -> None:
    """The log was truncated; with `onDataLoss=earliest` the remaining rows are read."""
    directory = make_log(tmp_path)
    path = log_file(directory)
    truncate(path, batch_positions(path)[5])
    offsets, error = offsets_until_error(directory, 0, 16)
    assert (list(range(10)), ErrorCode.DATA_LOSS) == (offsets, error and error.code)
    offsets, error = offsets_until_error(directory, 0, 16, onDataLoss="earliest")
    assert (list(range(10)), None) == (offsets, error)


class FailingDisk(PosixFileSystem):
    """A disk that fails the first opens of a file."""

    def __init__(self, name: str, times: int) -> None:
        super().__init__()
        self._name = name
        self._left = times

    def open(self, path: Path, *, create: bool = False, write: bool = False) -> FileHandle:
        if path.name == self._name and self._left:
            self._left -= 1
            raise OSError(5, "an error of the disk", str(path))
        return super().open(path, create=create, write=write)


@pytest.mark.parametrize(("failures", "retries", "works"), [(1, 1, True), (1, 0, False)])
def test_disk_error_is_retried_as_often_as_io_retries(
    failures: int, retries: int, works: bool, tmp_path: Path
) -> None:
    """After that it is raised with its code."""
    directory = make_log(tmp_path, segment_bytes=300)
    name = sorted(directory.glob("*.log"))[1].name
    options = ReadOptions.parse({"path": str(directory), "io.retries": str(retries)})
    disk = FailingDisk(name, failures)
    batches = read_batches([split_of(directory, 0, 16)], options, filesystem=disk)
    if works:
        assert 16 == sum(batch.num_rows for batch in batches)
        return
    with pytest.raises(KafkaLogSparkError) as caught:
        list(batches)
    assert ErrorCode.STORAGE is caught.value.code


def test_wrong_or_missing_index_does_not_change_the_rows(tmp_path: Path) -> None:
    """An index entry is a hint: the header at its position is checked."""
    directory = make_log(tmp_path, batches=100, index_interval_bytes=100)
    index = SegmentFiles(directory, 0).offset_index
    good = index.read_bytes()
    lies = [struct.pack(">ii", 5, 33) + good, struct.pack(">iiii", 70, -9, 190, 2**31 - 1)]
    for spoilt in (None, b"", good[:-3], *lies, os.urandom(80)):
        if spoilt is None:
            index.unlink()
        else:
            index.write_bytes(spoilt)
        for start, end in ((0, 200), (77, 80), (199, 200)):
            assert (list(range(start, end)), None) == offsets_until_error(directory, start, end)


def test_growing_log_is_read_to_the_planned_end(tmp_path: Path) -> None:
    """Its writer continues; later records belong to the next query."""
    directory = tmp_path / TOPIC
    with manual_log(directory, segment_bytes=300) as log:
        log.append(numbered(0, 4))
        options = ReadOptions.parse({"path": str(directory)})
        tasks = planned(options)
        for number in range(4, 20):
            log.append(numbered(number, 1))
        rows = [row for batch in read_batches(tasks, options) for row in batch.to_pylist()]
        assert [0, 1, 2, 3] == [row["offset"] for row in rows]
        assert 20 == read_table(directory).num_rows
