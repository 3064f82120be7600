"""Tests of records of one call that are delayed: against a model, refusals, commits, errors."""

from __future__ import annotations

import copy
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from kafkalog import KafkaLogError, LogOfflineError, Record
from kafkalog._core.murmur2 import partition_of as partition_of_key
from kafkalog._core.record_groups import whole_group
from kafkalog._engine.commit_table import CommitTable
from kafkalog._engine.delayed_records import DelayedRecords
from kafkalog._engine.delayed_send import DelayedSend, DelayedTopic
from kafkalog.files.posix import PosixFileSystem
from kafkalog.log.log import partition_of
from kafkalog.state.commit_journal import (
    CommitBuilder,
    PartitionName,
    create_journal_file,
    journal_path,
)
from tests.support.delayed_logs import JOURNAL, DelayedLogs
from tests.support.manual_time import START_MS
from tests.support.reference_journal import (
    BLOCK,
    PlainCommit,
    PlainRecord,
    commits_of,
    file_bytes,
    record_bytes,
)

FILE_BYTES = 32 * BLOCK
Fields = list[bytes | None]


class Range(NamedTuple):
    """Offsets of records of a partition, as `split` returns them."""

    partition: int
    first_offset: int
    record_count: int
    is_duplicate: bool


class Model:
    """The records of each partition, in lists."""

    def __init__(self, partition_count: int) -> None:
        self.partitions: list[list[PlainRecord]] = [[] for _ in range(partition_count)]

    def send(self, keys: Fields, values: Fields, timestamp_ms: int) -> list[tuple[int, int]]:
        """Add records; return partition and offset of each."""
        found = []
        for key, value in zip(keys, values, strict=True):
            partition = partition_of_key(key or b"", len(self.partitions))
            records = self.partitions[partition]
            found.append((partition, len(records)))
            records.append((timestamp_ms, key, value))
        return found


def random_fields(random: Random, count: int) -> tuple[Fields, Fields]:
    """Return keys and values; some values are None, some fields empty."""
    keys: Fields = [random.randbytes(random.randrange(4)) for _ in range(count)]
    values: Fields = [
        None if random.random() < 0.2 else random.randbytes(random.randrange(50))
        for _ in range(count)
    ]
    return keys, values


def split_by_hand(places: list[tuple[int, int]], counts: list[int]) -> list[list[Range]]:
    """Return the ranges of each group, in the order of their first records."""
    found, start = [], 0
    for count in counts:
        offsets: dict[int, list[int]] = {}
        for partition, offset in places[start : start + count]:
            offsets.setdefault(partition, []).append(offset)
        found.append([Range(each, own[0], len(own), False) for each, own in offsets.items()])
        start += count
    return found


def random_counts(random: Random, total: int) -> list[int]:
    """Return sizes of groups, also empty ones, that add up."""
    counts = []
    while total:
        counts.append(random.randrange(total + 1))
        total -= counts[-1]
    return [*counts, 0]


def check_send(
    sent: DelayedSend, logs: DelayedLogs, places: list[tuple[int, int]], random: Random
) -> None:
    """Compare a call with partition and offset of each record."""
    by_partition: dict[int, list[int]] = {}
    for row, (partition, _offset) in enumerate(places):
        by_partition.setdefault(partition, []).append(row)
    assert len(sent) == len(places)
    assert [log.name for log in sent.logs] == [logs.records[each].name for each in by_partition]
    for place, (partition, rows) in enumerate(by_partition.items()):
        assert sent.partition(place) == partition
        assert sent.rows(place) == rows
        first_offset = places[rows[0]][1]
        assert sent.first_offset(place) == first_offset
        assert sent.end_offset(place) == first_offset + len(rows)
    assert (sent.errors, sent.is_committed) == ({}, False)
    counts = random_counts(random, len(places))
    assert sent.split(counts, Range) == split_by_hand(places, counts)


@pytest.mark.parametrize("partition_count", [1, 2, 5, 40])
@pytest.mark.parametrize("seed", range(6))
def test_calls_are_those_of_a_model(seed: int, partition_count: int) -> None:
    """Appends in between, after some of which the offsets stay reserved."""
    random = Random(seed)
    logs, model = DelayedLogs(partition_count), Model(partition_count)
    for number in range(12):
        keys, values = random_fields(random, random.randrange(60))
        timestamp_ms = START_MS + number
        sent = logs.accept(keys, values, timestamp_ms)
        assert isinstance(sent, DelayedSend)
        check_send(sent, logs, model.send(keys, values, timestamp_ms), random)
        # A log whose end is not durable would take no more without its reserved offsets.
        sent.record(list(range(len(sent.logs))), number)
        for _ in range(random.randrange(3)):
            partition = random.randrange(partition_count)
            logs.appends(partition).append_due()
    for partition, expected in enumerate(model.partitions):
        logs.appends(partition).append_all()
        log = logs.logs[partition]
        found = [(each.timestamp_ms, each.key, each.value) for each in log.records()]
        assert found == expected
        assert log.durable_offset == log.log_end_offset == len(expected)
    logs.close()


@pytest.mark.parametrize("seed", range(8))
def test_commits_are_those_of_the_reference(seed: int, tmp_path: Path) -> None:
    """Several calls in a commit, some partitions left out; byte for byte if the names are first."""
    random = Random(seed)
    logs = DelayedLogs(4)
    file = create_journal_file(
        PosixFileSystem(), journal_path(tmp_path, 1), FILE_BYTES, takes_records=True
    )
    commits: list[PlainCommit] = []
    numbers: dict[int, int] = {}
    for sequence in range(1, 7):
        builder, plain = CommitBuilder(file.numbers), PlainCommit(sequence, 1, {}, [])
        if seed % 2 == 0 and sequence == 1:
            for partition, records in enumerate(logs.records):
                numbers[partition] = builder.number(records.name)
                plain.names[numbers[partition]] = plain_name(records)
        for _ in range(random.randrange(1, 4)):
            add_call(logs, builder, file.numbers, numbers, plain, random)
        file.append(builder, sequence, 1)
        if sequence == 3:
            # A commit that was not written: the next one takes its place, with its names.
            for number in plain.names:
                del numbers[next(each for each, own in numbers.items() if own == number)]
            continue
        file.accept(builder, sequence)
        commits.append(plain)
    file.sync()
    file.close()
    content = file.path.read_bytes()
    assert commits_of(content) == commits
    if seed % 2 == 0:
        assert content == file_bytes(content[12:20], commits, FILE_BYTES, version=2)
    logs.close()


def plain_name(records: DelayedRecords) -> tuple[str, bytes]:
    """Return the name of a partition as the reference has it."""
    return records.name.directory, records.name.topic_id.bytes


def add_call(
    logs: DelayedLogs,
    builder: CommitBuilder,
    file_numbers: dict[PartitionName, int],
    numbers: dict[int, int],
    plain: PlainCommit,
    random: Random,
) -> None:
    """Add some records of a call to a commit, and to that of the reference."""
    keys, values = random_fields(random, random.randrange(1, 12))
    timestamp_ms = START_MS + random.randrange(1000)
    sent = logs.accept(keys, values, timestamp_ms)
    assert isinstance(sent, DelayedSend)
    chosen = [place for place in range(len(sent.logs)) if random.random() < 0.6]
    before = builder.size_bytes
    sent.write_to(builder.table, chosen, file_numbers, lambda log: builder.number(log.name))
    assert builder.size_bytes <= before + sent.size_bytes + BLOCK
    for place in chosen:
        partition = sent.partition(place)
        if partition not in numbers:
            numbers[partition] = len(numbers)
            plain.names[numbers[partition]] = plain_name(logs.records[partition])
        rows = [(timestamp_ms, keys[row], values[row]) for row in sent.rows(place)]
        offsets = sent.first_offset(place), sent.end_offset(place)
        plain.entries.append(("records", numbers[partition], *offsets, record_bytes(rows)))


def refuse(logs: DelayedLogs, how: str) -> None:
    """Let the log of partition 1 take nothing."""
    log = logs.logs[1]
    if how == "not set":
        logs.topic.set_log(1, None)
    elif how == "blocked":
        logs.records[1].record_outcome(has_failed=True)
    elif how == "closed":
        log.close()
    elif how == "offline":
        partition_of(log).gate.mark_offline(OSError("gone"), notify=False)
    elif how == "not durable":
        log.append([Record(value=b"a")])


@pytest.mark.parametrize("how", ["not set", "blocked", "closed", "offline", "not durable"])
def test_log_that_takes_nothing_is_returned_and_nothing_changed(how: str) -> None:
    """By its partition, also if other logs come before it in the call."""
    logs = DelayedLogs(3)
    refuse(logs, how)
    assert logs.accept([logs.keys[each] for each in (0, 2, 1)], [b"v"] * 3) == 1
    assert logs.counts() == [0] * 3
    assert [each.next_offset for each in logs.records] == [-1] * 3
    assert not any(partition_of(log).gate.state.has_delayed for log in logs.logs)
    # A call without records of the partition.
    sent = logs.accept([logs.keys[0], logs.keys[2]], [b"v"] * 2)
    assert isinstance(sent, DelayedSend)
    assert logs.counts() == [1, 0, 1]
    logs.topic.set_log(1, logs.records[1])
    logs.close()


@pytest.mark.parametrize(
    "settings",
    [
        {"compression_type": "lz4"},
        {"message_timestamp_type": "LogAppendTime"},
        {"max_message_bytes": 100},
        {"segment_bytes": 100},
        {"message_timestamp_after_max_ms": 10},
        {"message_timestamp_before_max_ms": 10},
    ],
)
def test_settings_that_change_or_refuse_records_take_none(settings: dict[str, Any]) -> None:
    """The largest record, or the time, decides."""
    logs = DelayedLogs(1, **settings)
    offset_ms = -11 if "message_timestamp_before_max_ms" in settings else 11
    values: Fields = [b"", b"v" * 60]
    assert logs.accept([logs.keys[0]] * 2, values, START_MS + offset_ms) == 0
    assert logs.counts() == [0]
    logs.close()


def test_records_without_a_key_and_large_ones_take_another_path() -> None:
    """No log has any of the call."""
    logs = DelayedLogs(2)
    size_max = 64 * 1024 - whole_group([logs.keys[0]], [b""]).size_bytes
    assert logs.accept([logs.keys[0], None], [b"a", b"b"]) is None
    assert logs.accept([logs.keys[1], logs.keys[0]], [b"a", bytes(size_max + 1)]) is None
    assert logs.counts() == [0, 0]
    assert isinstance(logs.accept([logs.keys[0]], [bytes(size_max)]), DelayedSend)
    assert logs.counts() == [1, 0]
    logs.close()


def test_call_without_records_has_no_logs() -> None:
    """As for a producer that sends nothing."""
    logs = DelayedLogs(1)
    sent = logs.accept([], [])
    assert isinstance(sent, DelayedSend)
    assert (len(sent), sent.logs, sent.journals) == (0, [], [])
    assert sent.split([0, 0], Range) == [[], []]
    assert sent.places_in(JOURNAL) == ([], [], [])
    logs.close()


class BlockingLock:
    """A lock whose owner finds that the log takes no more records."""

    def __init__(self) -> None:
        self.records: DelayedRecords | None = None
        self.depth = 0

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_error: object) -> None:
        self.release()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Let an append fail in the meantime."""
        self.depth += 1
        if self.records is not None:
            self.records.record_outcome(has_failed=True)
        return True

    def release(self) -> None:
        """Count the release."""
        self.depth -= 1


def test_log_that_refuses_under_its_lock_refuses_the_call() -> None:
    """No log has any of it, and no lock stays held."""
    logs = DelayedLogs(2)
    partition, lock = partition_of(logs.logs[0]), BlockingLock()
    blocked = DelayedRecords(
        partition.gate.state,
        partition.local.published,
        partition.flusher.source,
        partition.appender.lane,
        lock,
        logs.logs[0],
        logs.records[0].name,
        JOURNAL,
    )
    logs.topic.set_log(0, blocked)
    lock.records = blocked
    assert logs.accept([logs.keys[each] for each in (1, 0)], [b"a", b"b"]) == 0
    assert (len(blocked), blocked.next_offset, logs.counts()) == (0, -1, [0, 0])
    assert lock.depth == 0
    logs.close()


def test_places_are_those_of_a_journal_without_an_error() -> None:
    """Waiting, appended already, of a log that is offline; of two journals."""
    logs = DelayedLogs(6, journals=("x", "x", "y", "x", "x", "x"))
    sent = logs.accept(list(logs.keys), [b"v"] * 6)
    assert isinstance(sent, DelayedSend)
    assert sent.journals == ["x", "y"]
    assert sent.places_in("x") == ([0, 1, 3, 4, 5], [], [])
    assert sent.places_in("y") == ([2], [], [])
    assert sent.places_in("z") == ([], [], [])
    logs.appends(0).append_all()
    # Offsets that stay reserved are those of the commit.
    logs.appends(1).append_due()
    partition_of(logs.logs[3]).gate.mark_offline(OSError("gone"), notify=False)
    error = KafkaLogError("refused")
    sent.fail(4, error)
    sent.fail(4, LogOfflineError("later"))
    assert sent.errors == {4: error}
    assert sent.places_in("x") == ([1, 5], [0], [3])
    sent.set_committed()
    assert sent.is_committed
    logs.logs.pop(3)
    logs.close()


def test_recorded_places_are_those_of_the_commit() -> None:
    """The others have no commit."""
    logs = DelayedLogs(3)
    sent = logs.accept([logs.keys[each] for each in (0, 1, 2, 1)], [b"v"] * 4)
    assert isinstance(sent, DelayedSend)
    sent.record([1, 2], 5)
    found = [(each.recorded_offset, each.first_sequence) for each in logs.records]
    assert found == [(-1, -1), (2, 5), (1, 5)]
    logs.close()


def test_invalid_arguments_raise() -> None:
    """Nothing is accepted, and nothing is read outside of the lists."""
    logs = DelayedLogs(1)
    with pytest.raises(ValueError, match="keys must be as many as values, 2, got 1"):
        logs.accept([b"k"], [b"v", b"w"])
    for keys, values in (([b"k", "k"], [b"v", b"v"]), ([b"k"], [3])):
        with pytest.raises(TypeError, match="must be bytes or None"):
            logs.accept(keys, values)  # type: ignore[arg-type]
    assert logs.counts() == [0]
    sent = logs.send("a", "b")
    for counts in ([1], [3], [1, 2], [], [3, -1]):
        with pytest.raises(ValueError, match="counts must be those of 2 records"):
            sent.split(counts, Range)
    for place in (-1, 1, 2**40):
        for call in (sent.first_offset, sent.end_offset, sent.rows):
            with pytest.raises(IndexError, match="place must be below 1"):
                call(place)
        with pytest.raises(IndexError, match="place must be below 1"):
            sent.record([place], 1)
        with pytest.raises(IndexError, match="place must be below 1"):
            sent.write_to(CommitTable(), [place], {}, lambda _log: 0)
    for made in (sent, logs.topic):
        with pytest.raises(TypeError, match="cannot be pickled or copied"):
            copy.copy(made)
    for count in (0, -1):
        with pytest.raises(ValueError, match="partition_count must be >= 1"):
            DelayedTopic(count)
    assert len(DelayedTopic(3)) == 3
    for partition in (1, 2**40):
        with pytest.raises(IndexError):
            logs.topic.set_log(partition, None)
    logs.close()
