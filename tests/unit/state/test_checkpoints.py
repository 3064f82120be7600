"""The text checkpoints: Kafka's bytes, strict reading, updates that keep what others wrote."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog.errors import CorruptStateError, DiskFullError, LogStorageError
from kafkalog.files.names import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    is_topic_name,
)
from kafkalog.files.posix import PosixFileSystem
from kafkalog.model import TopicPartition
from kafkalog.state.checkpoints import EpochEntry, LeaderEpochCheckpoint, OffsetCheckpoint
from tests.support.disk_faults import Fault
from tests.support.golden import DATA_SETS, data_directory
from tests.support.simulated_disk import PowerCut, SimulatedDisk

DATA = Path("/data")
PATH = DATA / "recovery-point-offset-checkpoint"
EU0, EU1, US0 = (TopicPartition(*pair) for pair in (("eu", 0), ("eu", 1), ("us", 0)))
OFFSETS = bytes.fromhex(
    "30 0a 32 0a 6f 72 64 65 72 73 2d 65 75 20 30 20 35 31 30 30 0a"
    "6f 72 64 65 72 73 2d 65 75 20 31 20 30 0a"
)
EPOCHS = bytes.fromhex("30 0a 32 0a 30 20 30 0a 33 20 35 30 31 30 0a")


@pytest.fixture
def disk() -> SimulatedDisk:
    """Return a disk with a durable, empty data directory."""
    disk = SimulatedDisk()
    disk.make_durable(DATA)
    return disk


def offsets_with(disk: SimulatedDisk, content: bytes) -> OffsetCheckpoint:
    """Return the checkpoint of a file with that content."""
    disk.open(PATH, create=True).pwrite(content, 0)
    return OffsetCheckpoint(disk, PATH)


def epochs_with(disk: SimulatedDisk, content: bytes) -> LeaderEpochCheckpoint:
    """Return the leader epoch checkpoint of a file with that content."""
    disk.open(PATH, create=True).pwrite(content, 0)
    return LeaderEpochCheckpoint(disk, PATH)


def test_offset_checkpoint_bytes_equal_those_of_kafka(disk: SimulatedDisk) -> None:
    """The specification's bytes, read and written."""
    expected = {TopicPartition("orders-eu", 0): 5100, TopicPartition("orders-eu", 1): 0}
    checkpoint = offsets_with(disk, OFFSETS)
    assert expected == checkpoint.read()
    checkpoint.write({})
    assert b"0\n0\n" == disk.snapshot()[str(PATH)]
    checkpoint.write(expected)
    assert OFFSETS == disk.snapshot()[str(PATH)]


def test_epoch_checkpoint_bytes_equal_those_of_kafka(disk: SimulatedDisk) -> None:
    """The specification's bytes, read and written."""
    expected = [EpochEntry(0, 0), EpochEntry(3, 5010)]
    checkpoint = epochs_with(disk, EPOCHS)
    assert expected == checkpoint.read()
    checkpoint.write([])
    checkpoint.write(expected)
    assert EPOCHS == disk.snapshot()[str(PATH)]
    assert PATH == checkpoint.path
    assert str(PATH) in repr(checkpoint)


@pytest.mark.parametrize("data_set", DATA_SETS)
def test_checkpoint_of_broker_is_written_back_byte_for_byte(data_set: str, tmp_path: Path) -> None:
    """Every checkpoint of the golden directories, order of entries included."""
    filesystem = PosixFileSystem()
    target = tmp_path / "copy"
    source = data_directory(data_set)
    count = 0
    for name in (
        RECOVERY_POINT_CHECKPOINT,
        LOG_START_OFFSET_CHECKPOINT,
        HIGH_WATERMARK_CHECKPOINT,
        CLEANER_OFFSET_CHECKPOINT,
    ):
        offsets = OffsetCheckpoint(filesystem, source / name).read()
        OffsetCheckpoint(filesystem, target).write(offsets)
        assert (source / name).read_bytes() == target.read_bytes()
        count += len(offsets)
    for path in source.glob(f"*/{LEADER_EPOCH_CHECKPOINT}"):
        entries = LeaderEpochCheckpoint(filesystem, path).read()
        LeaderEpochCheckpoint(filesystem, target).write(entries)
        assert path.read_bytes() == target.read_bytes()
        count += len(entries)
    assert count > 10


@pytest.mark.parametrize("content", [None, b"", b"0", b"0\n", b"0\n0", b"0\n0\n"])
def test_checkpoint_missing_or_empty_has_no_entries(
    disk: SimulatedDisk, content: bytes | None
) -> None:
    """Brokers make an empty file; some stop after the version."""
    if content is None:
        assert {} == OffsetCheckpoint(disk, PATH).read()
        assert [] == LeaderEpochCheckpoint(disk, PATH).read()
    else:
        assert {} == offsets_with(disk, content).read()
        assert [] == epochs_with(disk, content).read()


@pytest.mark.parametrize(
    "content",
    [b"0\n1\neu 0 7", b"0\r\n1\r\neu 0 7\r\n", b"0\n1\neu\t0   7 \n", b"0\n2\neu 0 5\neu 0 7\n"],
)
def test_offset_checkpoint_other_line_ends_and_blanks_are_read(
    disk: SimulatedDisk, content: bytes
) -> None:
    """A broker reads them so too: any blanks, the last of two entries."""
    assert {EU0: 7} == offsets_with(disk, content).read()


BAD_HEADS = [
    (b"\n", "line 1"),
    (b"x\n", "line 1"),
    (b"1\n0\n", "line 1: version must be 0, got 1"),
    (b"-0\n0\n", "line 1"),
    (b"0\nx\n", "line 2"),
    (b"0\n\n", "line 2"),
    (b"0\n-1\n", "line 2"),
    (b"0\n2147483648\n", "line 2"),
    (b"\0\0\0\0", "line 1"),
    (b"0\n1\n", "line 2: entry count must be 0, .*got 1"),
]


@pytest.mark.parametrize(
    ("content", "match"),
    [
        *BAD_HEADS,
        (b"0\n1\neu 0 1\neu 1 1\n", "line 2: entry count must be 2, .*got 1"),
        (b"0\n2\neu 0 1\n", "line 2: entry count must be 1, .*got 2"),
        (b"0\n1\neu 0 1\n\n", "line 2"),
        (b"0\n1\n\n", "line 3: .*got 0 fields"),
        (b"0\n1\neu 0\n", "line 3: .*got 2 fields"),
        (b"0\n1\neu 0 1 2\n", "line 3: .*got 4 fields"),
        (b"0\n2\neu 0 1\neu x 1\n", "line 4: partition must be 0 to .*got 'x'"),
        (b"0\n1\neu 2147483648 1\n", "line 3"),
        (b"0\n1\neu -1 1\n", "line 3"),
        (b"0\n1\neu 0 -1\n", "line 3: offset must be 0 to .*got '-1'"),
        (b"0\n1\neu 0 9223372036854775808\n", "line 3"),
        (b"0\n1\neu 0 1e3\n", "line 3"),
        (b"0\n1\neu 0 1_0\n", "line 3"),
        ("0\n1\neu 0 \u0661\n".encode(), "line 3"),
        (b"0\n1\n../x 0 1\n", "line 3: invalid topic name '../x'"),
        (b"0\n1\n\xff 0 1\n", "line 3"),
        (b"0\n1\neu 0 " + b"9" * 5000 + b"\n", "line 3"),
        (b"0\n1\neu 0 1\0\0\0\0", "line 3"),
    ],
)
def test_offset_checkpoint_damaged_raises_with_file_and_line(
    disk: SimulatedDisk, content: bytes, match: str
) -> None:
    """A file that a broker would not have written is refused as a whole."""
    with pytest.raises(CorruptStateError, match=match) as caught:
        offsets_with(disk, content).read()
    assert str(PATH) == caught.value.path
    assert str(caught.value).startswith(f"{PATH}: ")
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("content", "match"),
    [
        *BAD_HEADS,
        (b"0\n1\n0 0 0\n", "line 3: .*got 3 fields"),
        (b"0\n1\n-1 0\n", "line 3"),
        (b"0\n1\n2147483648 0\n", "line 3"),
        (b"0\n2\n1 5\n1 6\n", "line 4: epoch 1 from offset 6 follows"),
        (b"0\n2\n1 5\n2 5\n", "line 4"),
        (b"0\n2\n2 5\n1 9\n", "line 4"),
    ],
)
def test_epoch_checkpoint_damaged_raises_with_file_and_line(
    disk: SimulatedDisk, content: bytes, match: str
) -> None:
    """Epochs and their offsets rise, or the file is no truth about the log."""
    with pytest.raises(CorruptStateError, match=match):
        epochs_with(disk, content).read()


def test_checkpoint_too_large_is_not_read(disk: SimulatedDisk) -> None:
    """A sparse terabyte must not be taken into memory."""
    disk.open(PATH, create=True).truncate(128 * 1024 * 1024 + 1)
    with pytest.raises(CorruptStateError, match="size must be <="):
        OffsetCheckpoint(disk, PATH).read()
    assert 0 == disk.calls["pread"]


def test_checkpoint_disk_error_is_a_storage_error(disk: SimulatedDisk) -> None:
    """The loader may do without a damaged file, not without a disk."""
    checkpoint = offsets_with(disk, OFFSETS)
    disk.fail_at(1, only=frozenset({"pread"}))
    with pytest.raises(LogStorageError, match="reading failed"):
        checkpoint.read()
    disk.capacity_bytes = 0
    with pytest.raises(DiskFullError, match="replacing the checkpoint failed"):
        checkpoint.write({EU0: 1})
    assert OFFSETS == disk.snapshot()[str(PATH)]


def test_update_keeps_other_entries(disk: SimulatedDisk) -> None:
    """Set, remove, keep; what changes nothing is not written."""
    checkpoint = OffsetCheckpoint(disk, PATH)
    checkpoint.write({EU0: 5, EU1: 6})
    checkpoint.update({EU0: 7, US0: 1, EU1: None})
    assert {EU0: 7, US0: 1} == checkpoint.read()
    writes = disk.calls["pwrite"]
    checkpoint.update({EU0: 7, EU1: None})
    checkpoint.update({})
    assert writes == disk.calls["pwrite"]


def test_update_of_damaged_file_replaces_it(disk: SimulatedDisk) -> None:
    """A file that cannot be read has no entries."""
    checkpoint = offsets_with(disk, b"garbage")
    checkpoint.update({EU0: 7})
    assert {EU0: 7} == checkpoint.read()


class InterruptedDisk(SimulatedDisk):
    """A disk on which the first read of content gives another thread its turn."""

    turn: Callable[[], None] | None = None

    def enter_call(self, name: str, path: Path | str) -> Fault | None:
        fault = super().enter_call(name, path)
        if name == "open" and self.turn is not None:
            turn, self.turn = self.turn, None
            self._guard.release()
            try:
                turn()
            finally:
                self._guard.acquire()
        return fault


def test_update_during_another_update_is_not_lost() -> None:
    """Logs of one directory close at the same time, each with a separate object."""
    disk = InterruptedDisk()
    disk.make_durable(DATA)
    OffsetCheckpoint(disk, PATH).write({EU0: 1, EU1: 1})
    second = threading.Thread(target=lambda: OffsetCheckpoint(disk, PATH).update({EU1: 2}))

    def run_second() -> None:
        # It has to wait for the first update, so this does not wait for its end.
        second.start()
        second.join(0.1)

    disk.turn = run_second
    OffsetCheckpoint(disk, PATH).update({EU0: 2})
    second.join(60)
    assert {EU0: 2, EU1: 2} == OffsetCheckpoint(disk, PATH).read()


@pytest.mark.parametrize(
    "entry", [(("a b", 0), 1), (("a", -1), 1), (("a", 0), -1), (("a", 0), 2**63)]
)
def test_offset_checkpoint_invalid_entry_is_not_written(
    disk: SimulatedDisk, entry: tuple[tuple[str, int], int]
) -> None:
    """The caller's mistake must not cost the file."""
    checkpoint = offsets_with(disk, OFFSETS)
    with pytest.raises(ValueError, match="an entry must have a topic name"):
        checkpoint.update({TopicPartition(*entry[0]): entry[1]})
    assert OFFSETS == disk.snapshot()[str(PATH)]


@pytest.mark.parametrize(
    "entries", [[(-1, 0)], [(0, -1)], [(2**31, 0)], [(1, 5), (1, 6)], [(1, 5), (2, 5)]]
)
def test_epoch_checkpoint_invalid_entry_is_not_written(
    disk: SimulatedDisk, entries: list[tuple[int, int]]
) -> None:
    """Nothing is written for entries that are out of range or do not rise."""
    checkpoint = LeaderEpochCheckpoint(disk, PATH)
    with pytest.raises(ValueError, match=r"an entry must have|entries must rise"):
        checkpoint.write([EpochEntry(*entry) for entry in entries])
    assert disk.stat(PATH) is None


def test_update_crash_at_any_call_keeps_other_entries(
    disk: SimulatedDisk,
) -> None:
    """Old or new, never a mixture and never a damaged file."""
    OffsetCheckpoint(disk, PATH).write({EU0: 1, EU1: 2})
    start = disk.crash()
    number = 0
    while True:
        number += 1
        attempt = start.crash()
        attempt.crash_at(number)
        try:
            OffsetCheckpoint(attempt, PATH).update({EU0: 9})
        except PowerCut:
            for choice, state in attempt.crash_states(40, seed=number):
                found = OffsetCheckpoint(state, PATH).read()
                assert found in ({EU0: 1, EU1: 2}, {EU0: 9, EU1: 2}), choice
        else:
            assert {EU0: 9, EU1: 2} == OffsetCheckpoint(attempt.crash(), PATH).read()
            break
    assert 6 == number


TOPICS = st.from_regex(r"[A-Za-z0-9._-]{1,20}", fullmatch=True).filter(is_topic_name)


@settings(max_examples=100)
@given(
    st.dictionaries(
        st.builds(TopicPartition, TOPICS, st.integers(0, 2**31 - 1)),
        st.integers(0, 2**63 - 1),
        max_size=8,
    )
)
def test_offset_checkpoint_any_entries_are_read_back(offsets: dict[TopicPartition, int]) -> None:
    """Written and read is the same, order included."""
    disk = SimulatedDisk()
    disk.make_durable(DATA)
    checkpoint = OffsetCheckpoint(disk, PATH)
    checkpoint.write(offsets)
    assert list(offsets.items()) == list(checkpoint.read().items())


@settings(max_examples=200)
@given(st.one_of(st.binary(max_size=60), st.text("0123456789 eu\n-\t", max_size=60)))
def test_checkpoint_any_bytes_are_read_or_refused(content: bytes | str) -> None:
    """No other exception, and what is read can be written."""
    disk = SimulatedDisk()
    disk.make_durable(DATA)
    data = content.encode() if isinstance(content, str) else content
    for checkpoint in (offsets_with(disk, data), epochs_with(disk, data)):
        try:
            found = checkpoint.read()
        except CorruptStateError as error:
            assert str(PATH) in str(error)
        else:
            checkpoint.write(found)  # type: ignore[arg-type]
            assert found == checkpoint.read()
            disk.unlink(PATH)
            disk.open(PATH, create=True).pwrite(data, 0)
