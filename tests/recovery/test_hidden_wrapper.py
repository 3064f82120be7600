"""A wrapper of an old format that begins below the base offset of its segment."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import kafkalog
from tests.support.old_logs import chapters_of, write_chapters


def _with_hidden_wrapper(directory: Path, *, damage: bool) -> None:
    """Write two segments of wrappers, damage the first, name the second by its last offset."""
    config = kafkalog.LogConfig(message_format_version="0.10.2", compression_type="gzip")
    with kafkalog.open_log(directory, config=config) as log:
        for first in (0, 3):
            records = [
                kafkalog.Record(value=b"%d" % number, timestamp_ms=1_700_000_000_000)
                for number in range(first, first + 3)
            ]
            log.append(records)
            log.roll()
    path = directory / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= int(damage)
    path.write_bytes(data)
    for each in sorted(directory.iterdir()):
        if each.name.startswith(f"{3:020d}."):
            each.rename(directory / each.name.replace(f"{3:020d}", f"{5:020d}"))


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("damage", [True, False])
def test_wrapper_below_its_segment_is_served_by_every_read_api(
    tmp_path: Path, damage: bool, read_only: bool
) -> None:
    """`get` and `get_many` serve the same records around the damage as `records`."""
    directory = tmp_path / "t-0"
    _with_hidden_wrapper(directory, damage=damage)
    with kafkalog.open_log(directory, read_only=read_only) as log:
        served = [record.offset for record in log.records(on_corrupt="skip")]
        assert served == [*([] if damage else [0, 1, 2]), 3, 4, 5]
        values = [b"%d" % offset for offset in served]
        assert [record and record.value for record in map(log.get, served)] == values
        many = log.get_many(np.array(served))
        assert [record and record.value for record in many] == values
        for offset in (0, 2) if damage else ():
            with pytest.raises(kafkalog.CorruptRecordError):
                log.get(offset)
            with pytest.raises(kafkalog.CorruptRecordError):
                log.get_many([offset])


def _with_lowered_wrapper(directory: Path, *sizes: int) -> None:
    """Write a wrapper a segment, put junk after the first, and lower the second."""
    config = kafkalog.LogConfig(message_format_version="0.10.2", compression_type="gzip")
    first = 0
    with kafkalog.open_log(directory, config=config) as log:
        for count in sizes:
            log.append([kafkalog.Record(value=b"%d" % (first + each)) for each in range(count)])
            first += count
            log.roll()
    before, lying = (directory / f"{base:020d}.log" for base in (0, sizes[0]))
    before.write_bytes(before.read_bytes() + b"junk" * 50)
    data = bytearray(lying.read_bytes())
    data[7] ^= 8
    lying.write_bytes(data)
    (directory / ".kafka_cleanshutdown").unlink(missing_ok=True)


@pytest.mark.parametrize("read_only", [True, False])
def test_wrapper_below_its_segment_after_damage_is_corrupt(tmp_path: Path, read_only: bool) -> None:
    """HOST-4: after damage only the base offset of its segment shows the offsets of a wrapper."""
    directory = tmp_path / "t-0"
    # The second has offset 21 instead of 29: its records would be 12 to 21.
    _with_lowered_wrapper(directory, 20, 10, 1)
    for _ in range(2):
        with kafkalog.open_log(directory, read_only=read_only) as log:
            served = [(each.offset, each.value) for each in log.records(on_corrupt="skip")]
            assert served == [(offset, b"%d" % offset) for offset in (*range(20), 30)]
            assert any(each.first_offset <= 20 < each.next_offset for each in log.corrupt_ranges())


def test_append_after_a_corrupt_wrapper_is_served(tmp_path: Path) -> None:
    """HOST-5: recovery checks the last wrapper as readers do, and the log ends after it."""
    directory = tmp_path / "t-0"
    _with_lowered_wrapper(directory, 20, 10)
    (directory / f"{30:020d}.log").unlink()
    for number in range(2):
        with kafkalog.open_log(directory) as log:
            offset = log.append([kafkalog.Record(value=b"new")]).first_offset
            assert offset == 30 + number
            found = log.get(offset)
            assert found is not None and found.value == b"new"
            served = [each.offset for each in log.records(on_corrupt="skip")]
            assert served == [*range(20), *range(30, 31 + number)]


@pytest.mark.parametrize("read_only", [True, False])
def test_raised_message_between_damage_costs_no_record_of_the_next_wrapper(
    tmp_path: Path, read_only: bool
) -> None:
    """HOST-3: a raised message does not get an offset of a record inside the next wrapper."""
    directory = tmp_path / "t-0"
    path = directory / f"{0:020d}.log"
    starts = []
    for compression, offsets in (
        ("uncompressed", (0, 1, 2, 3, 4)),
        ("gzip", (5, 6, 7)),
        ("uncompressed", (8,)),
    ):
        config = kafkalog.LogConfig(message_format_version="0.10.2", compression_type=compression)
        with kafkalog.open_log(directory, config=config) as log:
            for part in [offsets] if compression == "gzip" else [(each,) for each in offsets]:
                starts.append(path.stat().st_size)
                log.append([kafkalog.Record(value=b"%d" % each * 30) for each in part])
    data = bytearray(path.read_bytes())
    data[starts[2] + 40] ^= 1
    data[starts[3] + 7] ^= 3 ^ 5
    data[starts[4] + 40] ^= 1
    path.write_bytes(data)
    (directory / ".kafka_cleanshutdown").unlink()
    with kafkalog.open_log(directory, read_only=read_only) as log:
        served = [(each.offset, each.value) for each in log.records(on_corrupt="skip")]
        assert served == [(each, b"%d" % each * 30) for each in (0, 1, 5, 6, 7, 8)]
        assert [(each.first_offset, each.next_offset) for each in log.corrupt_ranges()] == [(2, 5)]


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("is_first", [True, False])
def test_wrapper_with_a_flipped_offset_is_not_served_at_other_offsets(
    tmp_path: Path, read_only: bool, is_first: bool
) -> None:
    """HOST-4: records after the previous end and below the base come from a false base offset."""
    directory = tmp_path / "t-0"
    _with_hidden_wrapper(directory, damage=False)
    path = directory / f"{5:020d}.log"
    data = bytearray(path.read_bytes())
    data[7] = 6
    path.write_bytes(data)
    if is_first:
        (directory / f"{0:020d}.log").unlink()
    (directory / ".kafka_cleanshutdown").unlink()
    (directory / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    with kafkalog.open_log(directory, read_only=read_only) as log:
        served = {record.offset: record.value for record in log.records(on_corrupt="skip")}
        assert served == ({} if is_first else {number: b"%d" % number for number in range(3)})
        assert log.corrupt_ranges()
        assert log.log_end_offset >= 5


@pytest.mark.parametrize("read_only", [True, False])
def test_wrapper_with_an_offset_below_its_count_is_corrupt(tmp_path: Path, read_only: bool) -> None:
    """HOST-4: a broker serves the inner offsets unchanged, which count from 0."""
    directory = tmp_path / "t-0"
    config = kafkalog.LogConfig(message_format_version="0.10.2", compression_type="gzip")
    with kafkalog.open_log(directory, config=config) as log:
        for _ in range(3):
            log.append([kafkalog.Record(value=b"v", timestamp_ms=1) for _ in range(4)])
    path = directory / f"{0:020d}.log"
    path.write_bytes(bytes(8) + path.read_bytes()[8:])
    with kafkalog.open_log(directory, config=config, read_only=read_only) as log:
        assert [each.offset for each in log.records(on_corrupt="skip")] == list(range(4, 12))
        with pytest.raises(kafkalog.CorruptRecordError):
            log.get(0)
        assert log.get(4) is not None


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("magic", [0, 1])
def test_append_to_a_segment_named_by_its_last_record_is_served(
    tmp_path: Path, magic: int, read_only: bool
) -> None:
    """HOST-4: the offset of the last wrapper fits the segment, its first record does not."""
    directory = tmp_path / "t-0"
    wrappers = chapters_of([(magic, 1, 3), (magic, 1, 4), (magic, 1, 5)])
    write_chapters(directory, wrappers, base_offset=11)
    with kafkalog.open_log(directory, read_only=read_only) as log:
        assert not list(log.records(on_corrupt="skip"))
        assert log.recovery_report.corrupt_ranges
        assert log.log_end_offset > 11
        if not read_only:
            appended = log.append([kafkalog.Record(value=b"new")]).first_offset
            assert log.get(appended) is not None


@pytest.mark.parametrize("read_only", [True, False])
def test_wrapper_that_becomes_the_last_is_checked_as_the_last(
    tmp_path: Path, read_only: bool
) -> None:
    """HOST-4: later segments are truncated, and with them the evidence against its offset."""
    directory = tmp_path / "t-0"
    config = kafkalog.LogConfig(message_format_version="0.9.0", compression_type="gzip")
    with kafkalog.open_log(directory, config=config) as log:
        for count in (4, 4, 4):
            log.append([kafkalog.Record(value=b"v") for _ in range(count)])
        log.roll()
        log.append([kafkalog.Record(value=b"v") for _ in range(4)])
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (directory / name).unlink(missing_ok=True)
    first, last = sorted(directory.glob("*.log"))
    data = bytearray(first.read_bytes())
    second = 12 + int.from_bytes(data[8:12])
    data[7] ^= 4
    data[second + 20] ^= 1
    first.write_bytes(data[: 2 * second])
    torn = bytearray(last.read_bytes())
    torn[30] ^= 1
    last.write_bytes(torn)
    with kafkalog.open_log(directory, config=config, read_only=read_only) as log:
        assert log.recovery_report.corrupt_ranges
        assert not list(log.records(on_corrupt="skip"))
        if not read_only:
            appended = log.append([kafkalog.Record(value=b"new")]).first_offset
            found = log.get(appended)
            assert found is not None
            assert found.value == b"new"


def _flipped_wrappers(
    directory: Path, version: str, sizes: list[int], flips: dict[int, int]
) -> None:
    """Write wrappers of `sizes` records; flip bits in the offsets of those with these numbers."""
    starts = []
    path = directory / f"{0:020d}.log"
    for count in sizes:
        codec = "gzip" if count > 1 else "uncompressed"
        config = kafkalog.LogConfig(message_format_version=version, compression_type=codec)
        starts.append(path.stat().st_size if path.exists() else 0)
        with kafkalog.open_log(directory, config=config) as log:
            log.append([kafkalog.Record(value=b"v", timestamp_ms=1) for _ in range(count)])
    data = bytearray(path.read_bytes())
    for number, bits in flips.items():
        data[starts[number] + 7] ^= bits
    path.write_bytes(data)
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (directory / name).unlink(missing_ok=True)


def test_message_after_a_wrapper_outside_the_segment_is_served_after_a_roll(
    tmp_path: Path,
) -> None:
    """HOST-4: its record count is used, though the next segment contradicts its offset."""
    directory = tmp_path / "t-0"
    _flipped_wrappers(directory, "0.9.0", [6, 1, 1], {0: 16, 2: 1})
    for number in range(3):
        with kafkalog.open_log(directory) as log:
            served = [each.offset for each in log.records(on_corrupt="skip")]
            assert served == [6, *range(8, 8 + number)]
            log.append([kafkalog.Record(value=b"new")])
            log.roll()


@pytest.mark.parametrize("read_only", [True, False])
def test_wrappers_that_contradict_earlier_batches_are_checked_with_them(
    tmp_path: Path, read_only: bool
) -> None:
    """HOST-4: the records of a doubtful wrapper may contradict a batch before the doubtful ones."""
    directory = tmp_path / "t-0"
    _flipped_wrappers(directory, "0.10.2", [4, 5, 3, 1, 1], {1: 2, 3: 2})
    with kafkalog.open_log(directory, read_only=read_only) as log:
        served = [each.offset for each in log.records(on_corrupt="skip")]
        assert served == [*range(4), *range(9, 12), 13]
