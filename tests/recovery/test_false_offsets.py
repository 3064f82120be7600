"""Flipped base offsets, which no CRC covers: every read API and opening gives the same records."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow
import pytest

from kafkalog import KafkaLogError, Log, Record
from tests.support.damage import forget_shutdown, log_file
from tests.support.logs import manual_log
from tests.support.old_logs import LOG_KINDS, Chapter, OldFact, chapters_of, fact_of, facts_of

# Low bits, which may still fit; those around 32 bits; the sign.
BITS = (0, 2, 5, 13, 31, 40, 62, 63)
EVERY_KIND = pytest.mark.parametrize("kind", LOG_KINDS)


def write_log(directory: Path, segments: list[list[Chapter]]) -> None:
    """Write segments as a killed writer leaves them."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    for chapters in segments:
        path = log_file(directory, chapters[0].first_offset)
        path.write_bytes(b"".join(each.data for each in chapters))


def flip_offset(directory: Path, chapters: list[Chapter], number: int, bit: int) -> None:
    """Flip one bit of the base offset of a batch."""
    path = log_file(directory, chapters[0].first_offset)
    data = bytearray(path.read_bytes())
    start = sum(len(each.data) for each in chapters[:number])
    data[start + 7 - bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def served(log: Log) -> list[OldFact]:
    """Return the records read around damage, and compare all other reads with them."""
    found = [fact_of(record) for record in log.records(on_corrupt="skip")]
    offsets = {fact[0] for fact in found}
    assert offsets == scanned_offsets(log)
    for fact in found:
        record = log.get(fact[0])
        assert record is not None
        assert fact == fact_of(record)
    for offset in range(log.log_start_offset, min(log.log_end_offset, 60)):
        if offset not in offsets:
            try:
                assert log.get(offset) is None
            except KafkaLogError as error:
                assert error.path is not None
    return found


def scanned_offsets(log: Log) -> set[int]:
    """Return the offsets that a scan gives."""
    found: set[int] = set()
    scan = log.scan(columns=["offset"], on_corrupt="skip")
    for batch in pyarrow.RecordBatchReader.from_stream(scan):
        found.update(batch.column(0).to_pylist())
    return found


def check_openings(directory: Path, all_facts: list[OldFact], others: list[OldFact]) -> None:
    """Check that a read-only opening, a writer, a crash and a clean stop give the same records."""
    end = all_facts[-1][0] + 1
    with manual_log(directory, read_only=True) as log:
        first = served(log)
    assert set(others) <= set(first) <= set(all_facts)
    with manual_log(directory) as log:
        assert first == served(log)
        assert () == log.recovery_report.cut
        assert len(first) == len(all_facts) or log.corrupt_ranges()
        assert end <= log.log_end_offset
        reported = log.corrupt_ranges()
    forget_shutdown(directory)
    with manual_log(directory) as log:
        assert first == served(log)
        assert {f.position for f in reported if f.size_bytes} <= {
            f.position for f in log.corrupt_ranges()
        }
        assert end <= log.append([Record(value=b"new")]).first_offset
    with manual_log(directory) as log:
        assert log.recovery_report.clean
        assert first == [fact for fact in served(log) if fact[4] != b"new"]


def is_plain(chapters: list[Chapter], number: int) -> bool:
    """Return whether a batch and the next one show their number of offsets."""
    return all(each.magic == 2 or not each.codec for each in chapters[number : number + 2])


@EVERY_KIND
@pytest.mark.parametrize("segments", [1, 2])
def test_flipped_offset_costs_one_batch_at_every_opening(
    tmp_path: Path, kind: str, segments: int
) -> None:
    """HOST-3, HOST-4, HOST-9: in the last and in a sealed segment, in every format."""
    directory = tmp_path / "orders-0"
    plan = LOG_KINDS[kind]
    parts = [chapters_of(plan, first_offset=0)]
    if segments == 2:
        parts.append(chapters_of(plan, first_offset=parts[0][-1].last_offset + 1))
    all_facts = [fact for part in parts for fact in facts_of(part)]
    for part in parts[-2:]:
        for number in range(len(part) - (part is parts[-1])):
            if not is_plain(part, number):
                continue
            for bit in BITS[number % 2 :: 2]:
                write_log(directory, parts)
                flip_offset(directory, part, number, bit)
                gone = facts_of([part[number]])
                others = [fact for fact in all_facts if fact not in gone]
                check_openings(directory, all_facts, others)


@EVERY_KIND
def test_flipped_offset_of_the_last_batch_keeps_the_log_end(tmp_path: Path, kind: str) -> None:
    """HOST-5: after a clean stop the recovery point is the log end."""
    directory = tmp_path / "orders-0"
    chapters = chapters_of(LOG_KINDS[kind], first_offset=0)
    others, end = facts_of(chapters[:-1]), chapters[-1].last_offset + 1
    for bit in range(0, 64, 5):
        write_log(directory, [chapters])
        with manual_log(directory) as log:
            assert end == log.log_end_offset
        flip_offset(directory, chapters, len(chapters) - 1, bit)
        with manual_log(directory, read_only=True) as log:
            assert others == served(log), bit
            assert end == log.log_end_offset
        with manual_log(directory) as log:
            assert others == served(log)
            assert end == log.log_end_offset
            assert log.corrupt_ranges()
            assert end == log.append([Record(value=b"new")]).first_offset


@EVERY_KIND
def test_flipped_offset_before_a_damaged_batch_costs_both_only(tmp_path: Path, kind: str) -> None:
    """HOST-4: a raised offset, and a damaged batch after it."""
    directory = tmp_path / "orders-0"
    chapters = chapters_of(LOG_KINDS[kind] * 2, first_offset=0)
    for number in (0, 3):
        if not (is_plain(chapters, number) and is_plain(chapters, number + 1)):
            continue
        for bit in (2, 3, 12, 33):
            write_log(directory, [chapters])
            flip_offset(directory, chapters, number, bit)
            path = log_file(directory)
            data = bytearray(path.read_bytes())
            data[sum(len(each.data) for each in chapters[: number + 2]) - 3] ^= 1
            path.write_bytes(data)
            others = facts_of(chapters[:number] + chapters[number + 2 :])
            with manual_log(directory) as log:
                found = [fact_of(record) for record in log.records(on_corrupt="skip")]
            missing = set(others) - set(found)
            assert not missing, (number, bit)


@pytest.mark.parametrize("bit", [41, 50, 61])
def test_flipped_offset_beyond_the_segment_before_a_stray_batch_is_corrupt(
    tmp_path: Path, bit: int
) -> None:
    """HOST-5: the batch after it may be stray too; found by the mutated directories."""
    directory = tmp_path / "t-0"
    with manual_log(directory) as log:
        for number in range(6):
            if number == 3:
                log.roll()
            log.append([Record(value=b"%d" % number)])
    forget_shutdown(directory)
    path = log_file(directory, 3)
    data = bytearray(path.read_bytes())
    data[2 * len(data) // 3 + 7 - bit // 8] ^= 1 << bit % 8
    path.write_bytes(bytes(data) + log_file(directory, 0).read_bytes()[: len(data) // 3])
    for read_only in (True, False, False):
        with manual_log(directory, read_only=read_only) as log:
            assert [0, 1, 2, 3, 4] == [each.offset for each in log.records(on_corrupt="skip")]
            assert log.corrupt_ranges()
            assert log.log_end_offset < 1 << 40


def test_flipped_offset_between_two_damaged_messages_is_corrupt(tmp_path: Path) -> None:
    """Candidate batches after damage contradict each other too; found by mutated directories."""
    directory = tmp_path / "t-0"
    with manual_log(directory, message_format_version="0.10.2") as log:
        for number in range(16):
            log.append([Record(value=b"%d" % number, timestamp_ms=1)])
    forget_shutdown(directory)
    path = log_file(directory, 0)
    data = bytearray(path.read_bytes())
    starts = [0]
    while starts[-1] < len(data):
        starts.append(starts[-1] + 12 + int.from_bytes(data[starts[-1] + 8 : starts[-1] + 12]))
    for number in (3, 12):
        data[starts[number] + 8 : starts[number] + 34] = bytes(26)
    data[starts[9] + 7] ^= 1
    path.write_bytes(data)
    expected = [number for number in range(16) if number not in (3, 9, 12)]
    for read_only in (True, False, False):
        with manual_log(directory, read_only=read_only) as log:
            found = [
                (each.offset, bytes(each.value or b"")) for each in log.records(on_corrupt="skip")
            ]
            assert [(number, b"%d" % number) for number in expected] == found
            assert log.corrupt_ranges()


@pytest.mark.parametrize("magic", ["2.8", "0.10.2"])
def test_lowered_offset_of_the_last_batch_without_recovery_point_is_corrupt(
    tmp_path: Path, magic: str
) -> None:
    """HOST-4: the checkpoint is lost, and the clean shutdown marker exists."""
    directory = tmp_path / "t-0"
    # The index leads to the very last batch.
    with manual_log(directory, message_format_version=magic, index_interval_bytes=1) as log:
        for number in range(8):
            log.append([Record(value=b"%d" % number, timestamp_ms=1)])
        last = log.append([Record(value=b"last", timestamp_ms=1)]).first_offset
    (directory / "recovery-point-offset-checkpoint").unlink()
    path = log_file(directory, 0)
    data = path.read_bytes()
    start = data.rindex(last.to_bytes(8))
    path.write_bytes(data[:start] + (5).to_bytes(8) + data[start + 8 :])
    for read_only in (True, False):
        with manual_log(directory, read_only=read_only) as log:
            found = [each.offset for each in log.records(on_corrupt="skip")]
            assert found == list(range(8))
            assert log.corrupt_ranges()
            assert log.log_end_offset > 7
            if not read_only:
                new = log.append([Record(value=b"new")]).first_offset
                assert log.get(new) is not None
