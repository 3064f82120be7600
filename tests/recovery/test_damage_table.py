"""Every kind of damage after which a real broker loses records, serves wrong ones, or is silent.

Kafka 4.1 was given copies of a killed broker's directory, with one damage each. Some it repairs as
one would wish; in others it deletes thousands of whole records for one flipped bit, trusts a
garbled index and silently leaves records out, or starts as if nothing were wrong. Each test here
makes one such damage on the same data and expects more of kafkalog: no whole record is lost, no
record is wrong, and no damage to data stays without a report.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

import kafkalog
from kafkalog import CorruptRecordError, CorruptStateError, Log
from kafkalog.files.names import LOG_START_OFFSET_CHECKPOINT
from tests.support.golden import (
    UNCLEAN,
    BatchFact,
    Manifest,
    RecordFact,
    copy_data_directory,
    snapshot,
)

PARTITION = "u-log-0"
COMPRESSED = "u-lz4-0"
TRANSACTIONAL = "u-txn-0"

# The last two segments of u-log-0 are above the checkpointed recovery point, 2814.
OLD_SEGMENT = 1046
UNFLUSHED_SEGMENT = 2814
LAST_SEGMENT = 3070
# Distance of the offsets that are looked up, from a random first one: readers of files look for new
# segments at each call.
OFFSETS_STEP = 29


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A copy of the data directory of a broker that was killed."""
    return copy_data_directory(UNCLEAN, tmp_path / "data")


@pytest.fixture(params=["writing", "reading"])
def read_only(request: pytest.FixtureRequest) -> bool:
    """Both modes of a log: a writer may repair the disk, a reader may change nothing."""
    return bool(request.param == "reading")


@cache
def records_of(partition: str) -> tuple[RecordFact, ...]:
    """Data records of a partition as Kafka's classes read them before the damage."""
    facts = Manifest(UNCLEAN, partition).records()
    return tuple(fact for fact in facts if not fact.is_control)


@cache
def batches_of(partition: str, base_offset: int) -> tuple[BatchFact, ...]:
    """Batches of one segment."""
    name = f"{base_offset:020}.log"
    return tuple(fact for fact in Manifest(UNCLEAN, partition).batches() if fact.segment == name)


def segment(data: Path, base_offset: int, suffix: str = ".log", partition: str = PARTITION) -> Path:
    return data / partition / f"{base_offset:020}{suffix}"


def flip(path: Path, position: int, mask: int = 1) -> None:
    """Flip bits of one byte."""
    content = bytearray(path.read_bytes())
    content[position] ^= mask
    path.write_bytes(content)


def append(path: Path, tail: bytes) -> None:
    with path.open("ab") as file:
        file.write(tail)


def shorten(path: Path, size: int) -> None:
    with path.open("r+b") as file:
        file.truncate(size)


def random_bytes(size: int) -> bytes:
    """Bytes without order, the same on every machine."""
    chunks = (hashlib.sha256(number.to_bytes(4)).digest() for number in range(size // 32 + 1))
    return b"".join(chunks)[:size]


def closed_in_order(data: Path) -> None:
    """Write the files of an orderly stop, after which a broker recovers nothing."""
    (data / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":17}')
    marks = data / "recovery-point-offset-checkpoint"
    lines = marks.read_text().splitlines()
    ends = {
        name: Manifest(UNCLEAN, name).summary.log_end_offset
        for name in (PARTITION, COMPRESSED, TRANSACTIONAL)
    }
    rows = [line.split() for line in lines[2:]]
    lines[2:] = [
        f"{topic} {number} {ends.get(f'{topic}-{number}', int(offset))}"
        for topic, number, offset in rows
    ]
    marks.write_text("\n".join(lines) + "\n")


def open_partition(data: Path, partition: str = PARTITION, *, read_only: bool = False) -> Log:
    return kafkalog.open_log(data / partition, read_only=read_only)


def ensure_equal(expected: list[RecordFact], log: Log, on_corrupt: str = "raise") -> None:
    """Assert that a full read gives exactly these records, every field of them."""
    found = list(log.records(on_corrupt=on_corrupt))  # type: ignore[arg-type]
    assert [fact.offset for fact in expected] == [record.offset for record in found]
    for fact, record in zip(expected, found, strict=True):
        assert (fact.timestamp_ms, fact.timestamp_type, fact.key, fact.headers) == (
            record.timestamp_ms,
            record.timestamp_type,
            record.key,
            record.headers,
        )
        assert fact.has_value(record.value)


def ensure_all_served(log: Log, partition: str = PARTITION) -> None:
    """Assert that nothing is missing: by a full read, by offset and by time."""
    expected = list(records_of(partition))
    ensure_equal(expected, log)
    assert Manifest(UNCLEAN, partition).summary.log_end_offset == log.log_end_offset
    ensure_every_offset_is_found(log, expected)
    ensure_every_time_is_found(log, partition)


def ensure_every_offset_is_found(log: Log, expected: list[RecordFact]) -> None:
    """Assert that a read from any offset begins with the batch that has it; some are tried."""
    for fact in expected[secrets.randbelow(OFFSETS_STEP) :: OFFSETS_STEP]:
        batch = next(log.read(fact.offset, max_bytes=1).batches())
        assert fact.batch_base_offset == batch.header.base_offset
        assert fact.offset == next(log.records(fact.offset, fact.offset + 1)).offset


def ensure_every_time_is_found(log: Log, partition: str) -> None:
    """Assert that look-ups by time give the first record in the log that is late enough."""
    # Compared with records of the manifest: a broker's answer may be a control record.
    facts = records_of(partition)
    for fact in facts[::97]:
        first = next(each for each in facts if each.timestamp_ms >= fact.timestamp_ms)
        answer = log.offset_for_timestamp(fact.timestamp_ms)
        assert answer is not None
        assert (first.offset, first.timestamp_ms) == (answer.offset, answer.timestamp_ms)


def ensure_only_these_are_missing(log: Log, victims: list[BatchFact], path: Path) -> None:
    """
    Assert the three guarantees for damage to whole batches, of which `victims` are unreadable.

    Skipping gives every other record; raising gives all before the damage and then names it; and
    the log lists the range.
    """
    gone = {offset for fact in victims for offset in range(fact.base_offset, fact.last_offset + 1)}
    expected = [fact for fact in records_of(PARTITION) if fact.offset not in gone]
    ensure_equal(expected, log, "skip")

    corrupt_ranges = log.corrupt_ranges()
    assert [(path, victims[0].position, victims[0].base_offset)] == [
        (corrupt_range.path, corrupt_range.position, corrupt_range.first_offset)
        for corrupt_range in corrupt_ranges
    ]
    assert corrupt_ranges[0].next_offset > victims[-1].last_offset

    offsets, error = read_until_damage(log)
    assert [fact.offset for fact in expected if fact.offset < victims[0].base_offset] == offsets
    assert (str(path), victims[0].position) == (error.path, error.position)
    with pytest.raises(CorruptRecordError):
        list(log.read(victims[0].base_offset).batches())
    ensure_every_offset_is_found(log, expected)


def read_until_damage(log: Log) -> tuple[list[int], CorruptRecordError]:
    """Read with the default of raising; return the offsets before the error, and the error."""
    offsets: list[int] = []
    try:
        for record in log.records():
            offsets.append(record.offset)  # noqa: PERF401 - those before the error are wanted
    except CorruptRecordError as error:
        return offsets, error
    raise AssertionError("the damage was passed over in silence")


# ------------------------------------------------------------------------------------ torn tails


@pytest.mark.parametrize("missing", [1, 11, 40, 62, None])
def test_torn_last_batch_is_the_only_loss(data: Path, missing: int | None, read_only: bool) -> None:
    """Cut by a byte, in its header, in its records, fully: all records before it are served."""
    last = batches_of(PARTITION, LAST_SEGMENT)[-1]
    path = segment(data, LAST_SEGMENT)
    kept = 11 if missing is None else last.batch_size - missing
    torn = path.read_bytes()[last.position : last.position + kept]
    shorten(path, last.position + kept)

    with open_partition(data, read_only=read_only) as log:
        ensure_equal([f for f in records_of(PARTITION) if f.offset < last.base_offset], log)
        assert last.base_offset == log.log_end_offset
        assert () == log.corrupt_ranges()
        if not read_only:
            [cut] = log.recovery_report.cut
            assert (path, last.position, kept) == (cut.path, cut.position, cut.size_bytes)
            assert cut.kept_in is not None
            assert torn == cut.kept_in.read_bytes()
            assert last.position == path.stat().st_size


def test_empty_last_segment_costs_only_its_own_records(data: Path, read_only: bool) -> None:
    """The log ends at the base offset of a segment whose records never reached the disk."""
    shorten(segment(data, LAST_SEGMENT), 0)

    with open_partition(data, read_only=read_only) as log:
        ensure_equal([f for f in records_of(PARTITION) if f.offset < LAST_SEGMENT], log)
        assert LAST_SEGMENT == log.log_end_offset


@pytest.mark.parametrize("tail", [bytes(100), bytes(9000), b"garbage", random_bytes(700)])
def test_bytes_after_the_last_batch_cost_no_record(
    data: Path, tail: bytes, read_only: bool
) -> None:
    """Zeros of an extended file, garbage of a torn write: truncated, and kept unless all zero."""
    path = segment(data, LAST_SEGMENT)
    size = path.stat().st_size
    append(path, tail)

    with open_partition(data, read_only=read_only) as log:
        ensure_all_served(log)
        if not read_only:
            [cut] = log.recovery_report.cut
            assert (path, size, len(tail)) == (cut.path, cut.position, cut.size_bytes)
            kept = cut.kept_in
            assert (tail if any(tail) else None) == (None if kept is None else kept.read_bytes())
            assert size == path.stat().st_size
    if not read_only:
        with open_partition(data) as log:
            assert () == log.recovery_report.cut
            ensure_all_served(log)


# -------------------------------------------------------------------- damage before whole batches


@pytest.mark.parametrize("base_offset", [OLD_SEGMENT, UNFLUSHED_SEGMENT, LAST_SEGMENT])
@pytest.mark.parametrize(
    ("byte", "mask"),
    [(70, 1), (61, 0x80), (11, 1), (10, 1), (8, 0x40), (16, 0x0B), (23, 0x40), (58, 1)],
)
def test_flipped_bit_costs_one_batch(
    data: Path, base_offset: int, byte: int, mask: int, read_only: bool
) -> None:
    """
    Records, three bytes of the length, the magic (9), the last offset delta, the count.

    A broker deletes every later batch and segment, or starts as if nothing were wrong.
    """
    victim = batches_of(PARTITION, base_offset)[3]
    path = segment(data, base_offset)
    flip(path, victim.position + byte, mask)

    with open_partition(data, read_only=read_only) as log:
        assert Manifest(UNCLEAN, PARTITION).summary.log_end_offset == log.log_end_offset
        if base_offset >= UNFLUSHED_SEGMENT:
            # Above the recovery point every byte was read, so the report has the damage already.
            assert [victim.position] == [
                each.position for each in log.recovery_report.corrupt_ranges
            ]
        ensure_only_these_are_missing(log, [victim], path)


@pytest.mark.parametrize(
    ("base_offset", "byte"),
    [
        *((OLD_SEGMENT, byte) for byte in (0, 1, 5, 6)),
        *((UNFLUSHED_SEGMENT, byte) for byte in (0, 1, 5, 6)),
        (LAST_SEGMENT, 0),
    ],
)
def test_flipped_offset_beyond_the_segment_costs_one_batch(
    data: Path, base_offset: int, byte: int, read_only: bool
) -> None:
    """No CRC covers a base offset; an offset beyond the segment cannot be right."""
    victim = batches_of(PARTITION, base_offset)[3]
    path = segment(data, base_offset)
    flip(path, victim.position + byte, 0x40)

    with open_partition(data, read_only=read_only) as log:
        assert Manifest(UNCLEAN, PARTITION).summary.log_end_offset == log.log_end_offset
        ensure_only_these_are_missing(log, [victim], path)


@pytest.mark.parametrize("byte", [8, 9, 10, 11])
def test_flipped_length_in_a_single_segment_costs_one_batch(
    data: Path, byte: int, read_only: bool
) -> None:
    """Batch 4 of a log of one segment: a broker keeps 58 records, kafkalog loses only batch 4."""
    victim = batches_of(COMPRESSED, 0)[3]
    path = segment(data, 0, partition=COMPRESSED)
    flip(path, victim.position + byte, 0x20)

    with open_partition(data, COMPRESSED, read_only=read_only) as log:
        expected = [
            fact
            for fact in records_of(COMPRESSED)
            if not victim.base_offset <= fact.offset <= victim.last_offset
        ]
        ensure_equal(expected, log, "skip")
        assert [victim.position] == [
            corrupt_range.position for corrupt_range in log.corrupt_ranges()
        ]


def test_damage_below_the_recovery_point_is_found_by_the_reader(
    data: Path, read_only: bool
) -> None:
    """A clean start scans nothing: the reader raises a typed error, or skips the damage."""
    closed_in_order(data)
    victim = batches_of(PARTITION, OLD_SEGMENT)[3]
    flip(segment(data, OLD_SEGMENT), victim.position + 70)

    with open_partition(data, read_only=read_only) as log:
        assert log.recovery_report.clean
        ensure_only_these_are_missing(log, [victim], segment(data, OLD_SEGMENT))


def test_two_damaged_neighbours_are_one_corrupt_range(data: Path, read_only: bool) -> None:
    """Zeros over the border of two batches cost both of them and no other."""
    victims = list(batches_of(PARTITION, UNFLUSHED_SEGMENT)[5:7])
    path = segment(data, UNFLUSHED_SEGMENT)
    content = bytearray(path.read_bytes())
    content[victims[1].position - 40 : victims[1].position + 40] = bytes(80)
    path.write_bytes(content)

    with open_partition(data, read_only=read_only) as log:
        ensure_only_these_are_missing(log, victims, path)


def test_flipped_leader_epoch_costs_no_record(data: Path, read_only: bool) -> None:
    """No CRC covers it and no record depends on it: all records are served unchanged."""
    victim = batches_of(PARTITION, UNFLUSHED_SEGMENT)[3]
    flip(segment(data, UNFLUSHED_SEGMENT), victim.position + 15, 4)

    with open_partition(data, read_only=read_only) as log:
        ensure_all_served(log)


def test_recovery_of_damage_in_the_middle_changes_no_segment(data: Path) -> None:
    """The damage becomes a corrupt range; not a byte of any segment changes."""
    victim = batches_of(PARTITION, UNFLUSHED_SEGMENT)[3]
    flip(segment(data, UNFLUSHED_SEGMENT), victim.position + 70)
    logs = {name: digest for name, digest in snapshot(data).items() if name.endswith(".log")}

    with open_partition(data) as log:
        assert 1 == len(log.recovery_report.corrupt_ranges)

    after = {name: digest for name, digest in snapshot(data).items() if name.endswith(".log")}
    assert logs == after


def test_append_after_damage_continues_at_the_old_end(data: Path) -> None:
    """Appends to a damaged log, and both sides of the corrupt range, survive a reopening."""
    victim = batches_of(PARTITION, UNFLUSHED_SEGMENT)[3]
    flip(segment(data, UNFLUSHED_SEGMENT), victim.position + 70)
    end_offset = Manifest(UNCLEAN, PARTITION).summary.log_end_offset

    with open_partition(data) as log:
        info = log.append([kafkalog.Record(key=b"after", value=b"the damage")])
        assert end_offset == info.first_offset

    with open_partition(data) as log:
        found = [record.offset for record in log.records(on_corrupt="skip")]
        gone = range(victim.base_offset, victim.last_offset + 1)
        assert [offset for offset in range(end_offset + 1) if offset not in gone] == found
        assert [victim.position] == [
            corrupt_range.position for corrupt_range in log.corrupt_ranges()
        ]


# ------------------------------------------------------------------------------------------ indexes


def garble_index(path: Path) -> None:
    path.write_bytes(random_bytes(path.stat().st_size))


def cut_index_to_67_bytes(path: Path) -> None:
    shorten(path, 67)


def zero_index(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def shift_positions(path: Path) -> None:
    """Make every entry wrong by one byte: entries stay in order and in range."""
    content = bytearray(path.read_bytes())
    for slot in range(0, len(content), 8):
        position = int.from_bytes(content[slot + 4 : slot + 8]) + 1
        content[slot + 4 : slot + 8] = position.to_bytes(4)
    path.write_bytes(content)


def swap_promises(path: Path) -> None:
    """Give every offset the position of a later batch: in order, in range, at real batches."""
    entries = bytearray(path.read_bytes())
    offsets = [entries[slot : slot + 4] for slot in range(0, len(entries), 8)]
    for number, slot in enumerate(range(8, len(entries), 8)):
        entries[slot : slot + 4] = offsets[number]
    path.write_bytes(entries[8:])


def unlink(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "crashed"])
@pytest.mark.parametrize(
    "damage",
    [garble_index, cut_index_to_67_bytes, zero_index, shift_positions, swap_promises, unlink],
)
def test_damaged_offset_index_costs_no_record(
    data: Path, damage: Callable[[Path], None], clean: bool, read_only: bool
) -> None:
    """A broker trusts it: 253 of 3,537 records were never returned, without an error."""
    if clean:
        closed_in_order(data)
    damage(segment(data, OLD_SEGMENT, ".index"))

    with open_partition(data, read_only=read_only) as log:
        ensure_all_served(log)


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "crashed"])
@pytest.mark.parametrize("damage", [garble_index, cut_index_to_67_bytes, zero_index, unlink])
def test_damaged_time_index_finds_every_time(
    data: Path, damage: Callable[[Path], None], clean: bool, read_only: bool
) -> None:
    """A broker trusts it: 11 of 22 look-ups by time found no record."""
    if clean:
        closed_in_order(data)
    damage(segment(data, OLD_SEGMENT, ".timeindex"))

    with open_partition(data, read_only=read_only) as log:
        ensure_all_served(log)
        largest = max(fact.timestamp_ms for fact in records_of(PARTITION))
        answer = log.offset_for_timestamp(kafkalog.MAX_TIMESTAMP)
        assert answer is not None
        assert largest == answer.timestamp_ms


def test_missing_indexes_are_rebuilt(data: Path, read_only: bool) -> None:
    """The log is enough to rebuild them; a writer also writes the files."""
    for path in (data / PARTITION).iterdir():
        if path.suffix in (".index", ".timeindex"):
            path.unlink()

    with open_partition(data, read_only=read_only) as log:
        ensure_all_served(log)
    rebuilt = {path.suffix for path in (data / PARTITION).iterdir()} & {".index", ".timeindex"}
    assert (set() if read_only else {".index", ".timeindex"}) == rebuilt


def test_read_only_damaged_directory_is_unchanged(data: Path) -> None:
    """A reader works around every damage of this file at once, in memory."""
    flip(segment(data, UNFLUSHED_SEGMENT), batches_of(PARTITION, UNFLUSHED_SEGMENT)[3].position + 9)
    append(segment(data, LAST_SEGMENT), b"garbage")
    garble_index(segment(data, OLD_SEGMENT, ".index"))
    unlink(segment(data, 251, ".timeindex"))
    before = snapshot(data)

    with open_partition(data, read_only=True) as log:
        assert 3000 < sum(1 for _ in log.records(on_corrupt="skip"))

    assert before == snapshot(data)


# ---------------------------------------------------------------------------------- other files


def test_flipped_bit_in_a_snapshot_costs_no_record(data: Path, read_only: bool) -> None:
    """Snapshots only save time: producer state is rebuilt from the log."""
    flip(segment(data, 1048, ".snapshot", TRANSACTIONAL), 20)

    with open_partition(data, TRANSACTIONAL, read_only=read_only) as log:
        ensure_equal(list(records_of(TRANSACTIONAL)), log)


def test_torn_transaction_index_costs_no_record(data: Path, read_only: bool) -> None:
    """A reader of uncommitted records does not use it: all records without the markers."""
    path = next(iter(sorted((data / TRANSACTIONAL).glob("*.txnindex"))))
    shorten(path, path.stat().st_size - 20)

    with open_partition(data, TRANSACTIONAL, read_only=read_only) as log:
        ensure_equal(list(records_of(TRANSACTIONAL)), log)


BROKEN_CHECKPOINT = b"0\n7\nx"


@pytest.mark.parametrize(
    "damage",
    [
        Path.unlink,
        lambda path: path.write_bytes(b""),
        # A damaged log start checkpoint raises: see the next test.
        lambda path: (
            path.write_bytes(BROKEN_CHECKPOINT) if path.name != LOG_START_OFFSET_CHECKPOINT else 0
        ),
    ],
    ids=["missing", "empty", "broken"],
)
def test_damaged_checkpoints_cost_only_time(
    data: Path, damage: Callable[[Path], None], read_only: bool
) -> None:
    """Without a recovery point every segment is scanned, and every record is served."""
    for path in data.glob("*-checkpoint"):
        damage(path)

    with open_partition(data, read_only=read_only) as log:
        assert len(batches_of(PARTITION, 0)) < log.recovery_report.scanned_batches
        assert 249 == log.recovery_report.scanned_batches
        ensure_all_served(log)


def test_damaged_log_start_checkpoint_raises_and_changes_nothing(
    data: Path, read_only: bool
) -> None:
    """PAR-3: deleted records would be back; only the user may decide that, by removing the file."""
    path = data / LOG_START_OFFSET_CHECKPOINT
    path.write_bytes(BROKEN_CHECKPOINT)

    with pytest.raises(CorruptStateError, match="line 2") as caught:
        open_partition(data, read_only=read_only)
    assert str(path) == str(caught.value.path)
    assert BROKEN_CHECKPOINT == path.read_bytes()

    path.unlink()
    with open_partition(data, read_only=read_only) as log:
        ensure_all_served(log)


def test_undamaged_copy_recovers_without_loss(data: Path, read_only: bool) -> None:
    """The control of this experiment: recovery of the killed broker's own bytes."""
    with open_partition(data, read_only=read_only) as log:
        assert not log.recovery_report.clean
        assert ((), ()) == (log.recovery_report.cut, log.recovery_report.corrupt_ranges)
        ensure_all_served(log)
