"""Records of brokers' directories by `read_records`, `search_records` and `tail_records`.

Each is compared with the same selection from all records of the log.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkalog import (
    CorruptRange,
    FoundRecord,
    Record,
    RecordSelection,
    count_matches,
    list_partitions,
    open_log,
    read_records,
    search_records,
    tail_records,
)
from kafkalog.inspection.internal_records import decode_internal
from tests.golden_directories.old_facts import PARTITIONS as OLD
from tests.golden_directories.old_facts import manifest_of
from tests.support.damage import batch_positions, flip, log_file
from tests.support.golden import (
    CLEAN,
    SWAP,
    UNCLEAN,
    Manifest,
    copy_partition,
    data_directory,
    partitions,
    unchanged,
)
from tests.support.golden_old import copy_old_partition

DIRECTORIES = [
    *(Manifest(CLEAN, partition).directory for partition in partitions(CLEAN)),
    *(manifest_of(broker, partition).directory for broker, partition in OLD),
]
NAMES = ["kafka-4.1", "kafka-old"]


def chosen(name: str) -> list[Path]:
    """Return the directories of one golden set."""
    found = [directory for directory in DIRECTORIES if name in directory.parts]
    assert found
    return found


def all_records(directory: Path) -> list[Record]:
    """Return all records of a log by its own reader."""
    with open_log(directory, read_only=True) as log:
        return list(log.records(on_corrupt="skip"))


def offsets(found: Iterator[FoundRecord]) -> list[int]:
    return [each.record.offset for each in found]


@pytest.mark.parametrize("name", NAMES)
def test_read_records_equals_the_log(name: str) -> None:
    """Every record of every format and codec, and of no other partition."""
    for directory in chosen(name):
        assert [each.record for each in read_records(directory)] == all_records(directory)


@pytest.mark.parametrize("name", NAMES)
def test_ranges_equal_the_selection_from_all_records(name: str) -> None:
    """Offsets, times, keys and the last ones, alone and together."""
    for directory in chosen(name):
        records = all_records(directory)
        if not records:
            assert offsets(read_records(directory, last=3)) == []
            continue
        middle = records[len(records) // 2]
        every = [each.offset for each in records]
        after = [each for each in every if each >= middle.offset]
        keyed = [each.offset for each in records if each.key == middle.key]
        assert offsets(read_records(directory, start=middle.offset)) == after
        assert offsets(read_records(directory, end=middle.offset)) == every[: -len(after)]
        assert offsets(read_records(directory, start=middle.offset, limit=7)) == after[:7]
        assert offsets(read_records(directory, last=5)) == every[-5:]
        assert offsets(read_records(directory, last=10**9)) == every
        assert offsets(read_records(directory, start=2**62)) == []
        if middle.key is not None:
            assert offsets(read_records(directory, key=middle.key)) == keyed
            assert offsets(read_records(directory, key=middle.key, last=2)) == keyed[-2:]


@pytest.mark.parametrize("name", NAMES)
def test_times_equal_the_selection_from_all_records(name: str) -> None:
    """From the first record at a time on, and of these only those within the times."""
    for directory in chosen(name):
        records = [each for each in all_records(directory) if each.timestamp_ms >= 0]
        if not records:
            continue
        since, until = records[len(records) // 3].timestamp_ms, records[-1].timestamp_ms
        expected = [each.offset for each in records if since <= each.timestamp_ms < until]
        assert offsets(read_records(directory, since=since, until=until)) == expected, directory


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fields", [("key", "value"), ("key",), ("key", "value", "headers")])
def test_search_equals_the_selection_from_all_records(name: str, fields: tuple[str, ...]) -> None:
    """A literal, without regard of case, and expressions with anchors; counts, too."""
    patterns: list[tuple[bytes | re.Pattern[bytes], bool]] = [
        (b"1", False),
        (b"KEY-1", True),
        (re.compile(rb"^.{3,9}$|velvet"), False),
    ]
    for directory in chosen(name):
        records = all_records(directory)
        for pattern, ignores_case in patterns:
            is_match = matcher(pattern, fields, ignores_case=ignores_case)
            expected = [each.offset for each in records if is_match(each)]
            found = search_records(directory, pattern, fields=fields, ignore_case=ignores_case)
            assert [each.record.offset for each in found] == expected, (directory, pattern)
            assert len(expected) == count_matches(
                directory, pattern, fields=fields, ignore_case=ignores_case
            )


def matcher(
    pattern: bytes | re.Pattern[bytes], fields: tuple[str, ...], *, ignores_case: bool
) -> Callable[[Record], bool]:
    """Return the slow search in one record."""

    def has(data: bytes | None) -> bool:
        if data is None:
            return False
        if isinstance(pattern, re.Pattern):
            return pattern.search(data) is not None
        return pattern.lower() in data.lower() if ignores_case else pattern in data

    def is_match(record: Record) -> bool:
        headers = [part for name, data in record.headers for part in (name.encode(), data)]
        cells: dict[str, list[bytes | None]] = {
            "key": [record.key],
            "value": [record.value],
            "headers": headers if "headers" in fields else [],
        }
        return any(has(cell) for field in fields for cell in cells[field])

    return is_match


@pytest.mark.parametrize("context", [1, 3, 5000])
def test_search_with_context_equals_the_neighbours(context: int) -> None:
    """Records before and after a match, over the batches of the columns, each once."""
    directory = data_directory(CLEAN) / "plain-0"
    records = all_records(directory)
    rows = [row for row, each in enumerate(records) if b"user-111" == each.key]
    near = {
        row
        for match in rows
        for row in range(max(match - context, 0), min(match + context + 1, len(records)))
    }
    found = list(search_records(directory, re.compile(b"^user-111$"), context=context))

    assert [each.record.offset for each in found] == [records[row].offset for row in sorted(near)]
    matches = [each.record.offset for each in found if each.is_match]
    assert matches == [records[row].offset for row in rows]
    limited = search_records(directory, re.compile(b"^user-111$"), context=context, limit=3)
    assert [each.record.offset for each in limited if each.is_match] == matches[:3]


def test_committed_records_are_those_of_a_consumer() -> None:
    """Without the records of aborted transactions, by each call."""
    directory = data_directory(CLEAN) / "transactions-0"
    with open_log(directory, read_only=True) as log:
        expected = [each.offset for each in log.records(isolation="read_committed")]
    assert offsets(read_records(directory, isolation="read_committed")) == expected
    assert offsets(tail_records(directory, last=9, isolation="read_committed")) == expected[-9:]
    selection = RecordSelection(isolation="read_committed")
    pattern = re.compile(rb"(?s).*")
    assert count_matches(directory, pattern, selection=selection) <= len(expected)


@pytest.mark.parametrize("data_set", [CLEAN, UNCLEAN, SWAP])
def test_whole_data_directory_is_read_and_unchanged(data_set: str) -> None:
    """All partitions, internal ones too; nothing is created, renamed or recovered."""
    directory = data_directory(data_set)
    with unchanged(directory):
        found = {each.partition for each in read_records(directory)}
        assert {each.partition for each in tail_records(directory, last=1)} == found
        assert {each.partition for each in search_records(directory, re.compile(b""))} <= found
    assert found


def test_damage_is_reported_and_the_rest_is_read(tmp_path: Path) -> None:
    """A flipped byte costs its batch alone: by records, by columns and in the last ones."""
    directory = copy_partition(CLEAN, "plain-small-0", tmp_path / "plain-small-0")
    whole = all_records(directory)
    path = log_file(directory)
    position = batch_positions(path)[2]
    flip(path, position + 70)
    reports: list[CorruptRange] = []
    found = [each.record.offset for each in read_records(directory, on_damage=reports.append)]

    (damage,) = reports
    assert (damage.path, damage.position) == (path, position)
    lost = range(damage.first_offset, damage.next_offset)
    assert found == [each.offset for each in whole if each.offset not in lost]
    assert offsets(read_records(directory, last=10**6)) == found
    count = count_matches(directory, re.compile(rb"(?s)."), on_damage=reports.append)
    assert 0 < count <= len(found)
    assert reports == [damage, damage]
    # A range without the damage does not report it.
    after: list[CorruptRange] = []
    assert offsets(read_records(directory, start=lost.stop, on_damage=after.append))
    assert after == []


@pytest.mark.parametrize(
    ("broker", "partition"),
    [
        ("kafka-0.8.2", "plain-0"),
        ("kafka-0.9.0", "gzip-0"),
        ("kafka-0.10.2", "lz4-0"),
        ("kafka-2.8", "v1-snappy-0"),
        ("kafka-2.8", "v2-zstd-0"),
    ],
)
def test_damage_of_an_old_log_is_reported_and_the_rest_is_read(
    broker: str, partition: str, tmp_path: Path
) -> None:
    """A flipped byte of each format and codec; a cut file in a list."""
    directory = copy_old_partition(broker, partition, tmp_path / partition)
    whole = [each.offset for each in all_records(directory)]
    path = log_file(directory)
    position = batch_positions(path)[1]
    flip(path, position + 40)
    reports: list[CorruptRange] = []
    found = [each.record.offset for each in read_records(directory, on_damage=reports.append)]

    assert [(each.path, each.position) for each in reports] == [(path, position)]
    lost = range(reports[0].first_offset, reports[0].next_offset)
    assert found == [offset for offset in whole if offset not in lost]
    assert found
    assert offsets(tail_records(directory, last=3)) == found[-3:]
    assert [each.record.offset for each in search_records(directory, re.compile(b"(?s)."))] == [
        each.offset for each in all_records(directory) if each.key or each.value
    ]
    last = max(directory.glob("*.log"), key=lambda each: (each.stat().st_size > 0, each.name))
    position = batch_positions(last)[-2]
    last.write_bytes(last.read_bytes()[: position + 30])
    (listing,) = list_partitions(directory)
    assert [(each.path, each.position) for each in listing.problems] == [(last, position)]


def test_internal_topics_are_decoded_as_by_kafkas_tool() -> None:
    """Positions and transactions: each record with a known key has all its fields."""
    kinds = set()
    directory = data_directory(CLEAN)
    for topic in ("__consumer_offsets", "__transaction_state"):
        for partition, record in read_records(f"{topic}@{directory}"):
            found = decode_internal(partition.topic, record.key, record.value)
            if found is not None:
                kinds.add((topic, found.key["type"], found.value is None))
                json.dumps(found)
    assert ("__consumer_offsets", 1, False) in kinds
    assert ("__transaction_state", 0, False) in kinds
    assert decode_internal("__consumer_offsets", b"\x00", b"") is None
    assert decode_internal("orders", b"\x00\x01", b"") is None
