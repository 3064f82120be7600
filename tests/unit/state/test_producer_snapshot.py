"""The producer snapshot: brokers' bytes, read and written, order of entries, damage, crashes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.crc32c import value as crc32c
from kafkalog.errors import CorruptStateError, DiskFullError, LogStorageError
from kafkalog.files.names import parse_segment_file
from kafkalog.files.posix import PosixFileSystem
from kafkalog.state.producer_snapshot import (
    ProducerSnapshotEntry,
    decode_snapshot,
    encode_snapshot,
    read_snapshot,
    write_snapshot,
)
from tests.support.golden import DATA_SETS, GOLDEN, Manifest, partitions
from tests.support.simulated_disk import PowerCut, SimulatedDisk

DATA = Path("/data")
PATH = DATA / "00000000000000005100.snapshot"
END = 5100
GOLDEN_FILES = sorted(path.relative_to(GOLDEN).as_posix() for path in GOLDEN.rglob("*.snapshot*"))
T = 1_700_000_000_000

# The worked examples of the specification.
EMPTY = bytes.fromhex("00 01 48 67 4b c7 00 00 00 00")
TWO = bytes.fromhex(
    "00 01 11 96 2b de 00 00 00 02"
    "00 00 00 00 00 00 10 92 00 03 00 00 00 10 00 00 00 00 00 00 13 c4 00 00 00 09"
    "00 00 01 8b cf e5 68 32 00 00 00 0c ff ff ff ff ff ff ff ff"
    "00 00 00 00 00 00 10 93 00 00 ff ff ff ff ff ff ff ff ff ff ff ff 00 00 00 00"
    "00 00 01 8b cf e5 68 3c 00 00 00 07 00 00 00 00 00 00 13 cf"
)
ENTRIES = [
    ProducerSnapshotEntry(4242, 3, 16, 5060, 9, T + 50, 12, -1),
    ProducerSnapshotEntry(4243, 0, -1, -1, 0, T + 60, 7, 5071),
]


@pytest.fixture(name="disk")
def fixture_disk() -> SimulatedDisk:
    """Return a disk with a durable, empty partition directory."""
    disk = SimulatedDisk()
    disk.make_durable(DATA)
    return disk


def entry(producer_id: int, **changes: int) -> ProducerSnapshotEntry:
    """Return an entry of a producer with a batch of one record at offset 10."""
    return ProducerSnapshotEntry(producer_id, 0, 5, 10, 0, T, -1, -1)._replace(**changes)


def test_snapshot_examples_are_encoded_and_decoded() -> None:
    """Byte for byte."""
    assert [] == decode_snapshot(EMPTY)
    assert EMPTY == encode_snapshot([])
    assert ENTRIES == decode_snapshot(TWO, end_offset=END)
    assert TWO == encode_snapshot(ENTRIES)


@pytest.mark.parametrize("folder", [*DATA_SETS, "kafka-old"])
def test_snapshot_of_broker_is_written_back_byte_for_byte(folder: str) -> None:
    """All that brokers 2.8 and 4.1 wrote, in their order, whatever order they are given in."""
    names = [name for name in GOLDEN_FILES if name.startswith(f"{folder}/")]
    assert len(names) >= 5
    for name in names:
        path = GOLDEN / name
        end_offset = parse_segment_file(path.name).base_offset
        entries = read_snapshot(PosixFileSystem(), path, end_offset=end_offset)
        assert entries is not None
        assert path.read_bytes() == encode_snapshot(entries), name


@pytest.mark.parametrize("data_set", DATA_SETS)
def test_snapshot_of_broker_equals_its_manifest(data_set: str) -> None:
    """Field by field, as Kafka's own classes decoded them."""
    count = 0
    for partition in partitions(data_set):
        if partition.endswith("-delete"):
            continue
        manifest = Manifest(data_set, partition)
        for name, facts in manifest.summary.producer_snapshots.items():
            entries = decode_snapshot((manifest.directory / name).read_bytes())
            assert [
                (
                    fact.producer_id,
                    fact.producer_epoch,
                    fact.last_sequence,
                    fact.last_offset,
                    fact.offset_delta,
                    fact.last_timestamp,
                    fact.coordinator_epoch,
                    -1 if fact.current_txn_first_offset is None else fact.current_txn_first_offset,
                )
                for fact in facts
            ] == [tuple(each) for each in entries]
            count += 1
    assert count


def test_encode_snapshot_has_the_order_of_a_hash_map() -> None:
    """By hand: 16 buckets up to 12 producers, then 32; a large id is folded before it counts."""
    entries = [entry(number) for number in (33, 1, 16, 2**63 - 2, 2, 2**32)]
    ordered = [each.producer_id for each in decode_snapshot(encode_snapshot(entries))]
    assert [16, 33, 1, 2**63 - 2, 2**32, 2] == ordered
    many = [entry(number) for number in (16, *range(12))]
    ordered = [each.producer_id for each in decode_snapshot(encode_snapshot(many))]
    assert [*range(12), 16] == ordered
    ordered = [each.producer_id for each in decode_snapshot(encode_snapshot(many[:12]))]
    assert [16, *range(11)] == ordered


@pytest.mark.parametrize("size", range(10))
def test_decode_snapshot_incomplete_head_is_refused(size: int) -> None:
    """Also an empty file: a power cut after a write without a sync leaves such files."""
    with pytest.raises(CorruptStateError, match="size must be >= 10 bytes") as caught:
        decode_snapshot(TWO[:size], path=PATH)
    assert (str(PATH), size) == (caught.value.path, caught.value.position)


def test_decode_snapshot_any_bit_flip_is_refused() -> None:
    """Version, checksum, or what the checksum covers."""
    for position in range(len(TWO)):
        for bit in range(8):
            data = bytearray(TWO)
            data[position] ^= 1 << bit
            with pytest.raises(CorruptStateError, match=r"version|checksum"):
                decode_snapshot(bytes(data))


@pytest.mark.parametrize("data", [TWO[:-1], TWO[:56], TWO[:10], TWO + b"\0", bytes(102)])
def test_decode_snapshot_wrong_size_is_refused(data: bytes) -> None:
    """A broker that wrote a shorter one over a longer one leaves such."""
    with pytest.raises(CorruptStateError, match=r"checksum|version"):
        decode_snapshot(data)


def with_checksum(covered: bytes, version: int = 1) -> bytes:
    """Return a file with a right checksum over anything."""
    return version.to_bytes(2, "big") + crc32c(covered).to_bytes(4, "big") + covered


@pytest.mark.parametrize(
    ("data", "position", "match"),
    [
        (with_checksum(TWO[6:], version=0), 0, "version must be 1, got 0"),
        (with_checksum(TWO[6:], version=2), 0, "version must be 1, got 2"),
        (with_checksum(b"\x7f\xff\xff\xff"), 6, "count must fit 10 bytes, got 2147483647"),
        (with_checksum(b"\xff\xff\xff\xff"), 6, "count must fit 10 bytes, got -1"),
        (with_checksum(TWO[6:56]), 6, "count must fit 56 bytes, got 2"),
        (with_checksum(TWO[6:] + b"\0"), 6, "count must fit 103 bytes, got 2"),
        (with_checksum(TWO[6:56] + TWO[10:56]), 56, "producer 4242 .*a second entry"),
        (with_checksum(TWO[6:10] + b"\xff" * 46 + TWO[56:]), 10, "negative producer id"),
    ],
)
def test_decode_snapshot_invalid_with_right_checksum_is_refused(
    data: bytes, position: int, match: str
) -> None:
    """The checksum guards against accidents only."""
    with pytest.raises(CorruptStateError, match=match) as caught:
        decode_snapshot(data, path=PATH)
    assert (str(PATH), position) == (caught.value.path, caught.value.position)
    assert str(caught.value).startswith(f"{PATH}: ")


BAD_ENTRIES = [
    entry(7, producer_epoch=-2),
    entry(7, last_sequence=-2),
    entry(7, last_offset=-2),
    entry(7, coordinator_epoch=-2),
    entry(7, transaction_first_offset=-2),
    entry(7, offset_delta=-1),
    entry(7, offset_delta=11),
    entry(7, last_offset=-1, offset_delta=1),
]


@pytest.mark.parametrize("bad", BAD_ENTRIES)
def test_snapshot_invalid_entry_is_refused_in_both_directions(bad: ProducerSnapshotEntry) -> None:
    """Out of range for its field, or a batch that begins below offset 0."""
    data = bytearray(encode_snapshot([entry(7)]))
    numbers = zip(bad, (8, 2, 4, 8, 4, 8, 4, 8), strict=True)
    data[10:] = b"".join(number.to_bytes(size, "big", signed=True) for number, size in numbers)
    with pytest.raises(CorruptStateError, match="producer 7 at position 10: "):
        decode_snapshot(with_checksum(bytes(data[6:])))
    with pytest.raises(ValueError, match="ProducerSnapshotEntry"):
        encode_snapshot([bad])


@pytest.mark.parametrize(
    "entries",
    [
        [entry(7), entry(7)],
        [entry(-1)],
        [entry(2**63)],
        [entry(7, producer_epoch=2**15)],
        [entry(7, last_sequence=2**31)],
    ],
)
def test_encode_snapshot_invalid_entries_are_refused(
    disk: SimulatedDisk, entries: list[ProducerSnapshotEntry]
) -> None:
    """The caller's mistake must not cost the file."""
    with pytest.raises(ValueError, match=r"two entries|negative|does not fit"):
        write_snapshot(disk, PATH, entries)
    assert disk.stat(PATH) is None


def test_decode_snapshot_entry_above_the_name_is_refused(disk: SimulatedDisk) -> None:
    """A snapshot under a wrong name would hide batches from the replay."""
    write_snapshot(disk, PATH, ENTRIES)
    assert ENTRIES == read_snapshot(disk, PATH, end_offset=5072)
    for end_offset, slot in ((5071, 56), (5060, 10)):
        with pytest.raises(CorruptStateError, match=f"must be < {end_offset}") as caught:
            read_snapshot(disk, PATH, end_offset=end_offset)
        assert slot == caught.value.position


def test_read_snapshot_missing_is_none_and_disk_error_is_raised(disk: SimulatedDisk) -> None:
    """The loader may do without a damaged file, not without a disk."""
    assert read_snapshot(disk, PATH, end_offset=END) is None
    write_snapshot(disk, PATH, ENTRIES)
    disk.fail_at(1, only=frozenset({"pread"}))
    with pytest.raises(LogStorageError, match="reading failed"):
        read_snapshot(disk, PATH, end_offset=END)
    disk.capacity_bytes = 0
    with pytest.raises(DiskFullError, match="writing the producer snapshot failed"):
        write_snapshot(disk, PATH, [])
    assert ENTRIES == read_snapshot(disk, PATH, end_offset=END)


def test_read_snapshot_too_large_is_not_read(tmp_path: Path) -> None:
    """A sparse terabyte must not be taken into memory."""
    path = tmp_path / PATH.name
    with path.open("xb") as file:
        file.truncate(2**40)
    with pytest.raises(CorruptStateError, match="size must be <="):
        read_snapshot(PosixFileSystem(), path, end_offset=END)


@pytest.mark.parametrize("durable", [True, False])
def test_write_snapshot_crash_at_any_call_leaves_old_new_or_refused(
    disk: SimulatedDisk, durable: bool
) -> None:
    """Of a durable write old or new, whole; without syncs the checksum finds what is neither."""
    before, after = [entry(number) for number in range(40)], ENTRIES
    write_snapshot(disk, PATH, before)
    start = disk.crash()
    in_brokers_order = read_snapshot(start, PATH, end_offset=END)
    for number in range(1, 30):
        attempt = start.crash()
        attempt.crash_at(number)
        ended = True
        try:
            write_snapshot(attempt, PATH, after, durable=durable)
        except PowerCut:
            ended = False
        for choice, state in attempt.crash_states(40, seed=number):
            try:
                found = read_snapshot(state, PATH, end_offset=END)
            except CorruptStateError:
                assert not durable, choice
                continue
            assert found == after or (found == in_brokers_order and not (ended and durable)), choice
        if ended:
            break
    assert (6 if durable else 4) == number


@st.composite
def snapshots(draw: st.DrawFn) -> list[ProducerSnapshotEntry]:
    """Return entries of different producers, in any order."""
    ids = draw(st.lists(st.integers(0, 2**63 - 1) | st.integers(0, 99), max_size=40, unique=True))
    entries = []
    for producer_id in ids:
        last_offset = draw(st.integers(-1, 2**63 - 2))
        entries.append(
            ProducerSnapshotEntry(
                producer_id,
                draw(st.integers(-1, 2**15 - 1)),
                draw(st.integers(-1, 2**31 - 1)),
                last_offset,
                draw(st.integers(0, max(0, min(last_offset, 2**31 - 1)))),
                draw(st.integers(-(2**63), 2**63 - 1)),
                draw(st.integers(-1, 2**31 - 1)),
                draw(st.integers(-1, 2**63 - 2)),
            )
        )
    return entries


@settings(max_examples=100)
@given(snapshots())
def test_snapshot_any_entries_are_decoded(entries: list[ProducerSnapshotEntry]) -> None:
    """And their bytes are a fixed point: what is read is written the same."""
    data = encode_snapshot(entries)
    found = decode_snapshot(data, end_offset=2**63 - 1)
    assert sorted(entries) == sorted(found)
    assert data == encode_snapshot(found)
    shuffled = random.Random(len(data)).sample(entries, len(entries))
    assert sorted(entries) == sorted(decode_snapshot(encode_snapshot(shuffled)))


@settings(max_examples=200)
@given(st.binary(max_size=150))
def test_decode_snapshot_any_bytes_are_entries_or_refused(covered: bytes) -> None:
    """Nothing but the typed error comes out."""
    try:
        decode_snapshot(with_checksum(covered))
    except CorruptStateError as error:
        assert error.position is not None
