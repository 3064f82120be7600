"""The file of durable offsets: what a reader believes, and for how long."""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalog import KafkaLogError, LogManager, ManagerConfig, Record, open_log
from kafkalog._core.crc32c import value as crc32c
from kafkalog.files.locking import DirectoryLock, acquire_directory_lock
from kafkalog.files.names import DURABLE_OFFSETS
from kafkalog.files.posix import PosixFileSystem
from kafkalog.log.local_log import LocalLog
from kafkalog.state.durable_offsets import (
    DurableOffset,
    DurableOffsets,
    DurableOffsetsReader,
    partition_digest,
    remove_durable_offsets,
)
from kafkalog.testing.faults import Faults
from kafkalog.testing.faulty_disk import DiskCall, DiskFault, FaultyDisk
from kafkalog.testing.faulty_filesystem import FaultyFileSystem

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="locks have holders on Linux")

DISK = PosixFileSystem()


class CountingDisk(FaultyDisk):
    """A disk that counts the writes of each file."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: Counter[str] = Counter()

    def check(self, call: DiskCall, path: Path) -> None:
        """Count a call."""
        self.writes[path.name] += call == "write"
        super().check(call, path)


class Rig:
    """A locked directory with partitions, their publication, and a reader."""

    def __init__(self, directory: Path, lock: DirectoryLock) -> None:
        self.directory = directory
        self.lock = lock
        self.path = directory / DURABLE_OFFSETS
        self.writer = DurableOffsets(DISK, directory)
        self.reader = DurableOffsetsReader(DISK, directory)

    def make(self, name: str) -> bytes:
        """Make a partition directory; return its key."""
        (self.directory / name).mkdir()
        return self.key(name)

    def key(self, name: str) -> bytes:
        """Return the key of a partition directory."""
        facts = DISK.stat(self.directory / name)
        assert facts is not None
        return partition_digest(self.directory / name, facts)

    def publish(self, name: str, offset: int, *, is_lowered: bool = False) -> None:
        """Publish an offset."""
        self.writer.publish(self.directory / name, offset, is_lowered=is_lowered)

    def offset(self, key: bytes) -> int | None:
        """Return the offset that a new look finds."""
        self.reader.refresh()
        found = self.reader.get(key)
        return None if found is None else found.offset


@pytest.fixture(name="rig")
def fixture_rig(tmp_path: Path) -> Rig:
    """Return a rig."""
    return Rig(tmp_path, acquire_directory_lock(DISK, tmp_path, exclusive=True))


def test_published_offsets_are_read(rig: Rig) -> None:
    """Each refresh returns the partitions that have changed since."""
    first, second = rig.make("a-0"), rig.make("b-0")
    assert frozenset() == rig.reader.refresh()
    rig.publish("a-0", 5)
    assert rig.reader.refresh() is None
    assert rig.reader.is_published
    assert DurableOffset(5, 1) == rig.reader.get(first)
    rig.publish("b-0", 7)
    assert {second} == rig.reader.refresh()
    rig.publish("a-0", 6)
    rig.publish("b-0", 8)
    assert {first, second} == rig.reader.refresh()
    assert set() == rig.reader.refresh()
    assert (6, 8) == (rig.offset(first), rig.offset(second))


def test_many_partitions_have_slots(rig: Rig) -> None:
    """Slots are compared in blocks; a change in the last block is found."""
    keys = [rig.make(f"a-{number}") for number in range(200)]
    for number in range(200):
        rig.publish(f"a-{number}", number)
    rig.reader.refresh()
    assert list(range(200)) == [rig.offset(key) for key in keys]
    rig.publish("a-199", 1_000)
    assert {keys[199]} == rig.reader.refresh()
    assert 64 * 201 == rig.path.stat().st_size


def test_rise_keeps_and_truncation_changes_the_generation(rig: Rig) -> None:
    """A reader that read below an offset finds out that it was lowered in between."""
    key = rig.make("a-0")
    rig.publish("a-0", 5)
    rig.reader.refresh()
    before = rig.reader.get(key)
    assert before is not None
    rig.publish("a-0", 9)
    assert rig.reader.is_unchanged(key, before)
    rig.publish("a-0", 3, is_lowered=True)
    rig.publish("a-0", 9)
    assert not rig.reader.is_unchanged(key, before)
    assert 9 == rig.offset(key)


def test_truncation_of_an_unpublished_log_publishes_nothing(rig: Rig) -> None:
    """Its recovery point is lowered, which readers use."""
    rig.make("a-0")
    rig.publish("a-0", 3, is_lowered=True)
    assert not rig.path.exists()


@pytest.mark.parametrize("seed", range(4))
def test_offsets_of_a_commit_are_written_together(rig: Rig, seed: int) -> None:
    """Afterwards a reader has all of them; a truncation within it is written at once."""
    choice = random.Random(seed)
    keys = {f"t-{number}": rig.make(f"t-{number}") for number in range(200)}
    expected = dict.fromkeys(keys, 1)
    for name in keys:
        rig.publish(name, 1)
    rig.writer.remove("t-7")
    del expected["t-7"]
    before = rig.path.read_bytes()
    with rig.writer.published_together():
        for name in choice.sample(sorted(expected), 90):
            expected[name] = choice.randint(2, 2**40)
            rig.publish(name, expected[name])
        assert before == rig.path.read_bytes()
        lowered = choice.choice(sorted(expected))
        expected[lowered] = 0
        rig.publish(lowered, 0, is_lowered=True)
        assert 0 == rig.offset(keys[lowered])
        other = threading.Thread(target=lambda: rig.publish("t-9", 99))
        other.start()
        other.join()
        expected["t-9"] = 99
        assert 99 == rig.offset(keys["t-9"])
    assert expected == {name: rig.offset(keys[name]) for name in expected}
    assert rig.offset(keys["t-7"]) is None


def test_commit_of_many_logs_is_one_write_for_followers(tmp_path: Path) -> None:
    """A follower wakes once."""
    disk = CountingDisk()
    config = ManagerConfig(journal_enable=True, journal_bytes=1 << 20)
    with LogManager([tmp_path], config, filesystem=FaultyFileSystem(disk, DISK)) as manager:
        manager.create_topic("t", 20)
        for _ in range(2):
            for partition in range(20):
                manager.log("t", partition).append([Record(value=b"a")])
            disk.writes.clear()
            manager.flush()
        assert 1 == disk.writes[DURABLE_OFFSETS]


def test_removed_partition_has_no_offset_and_its_slot_is_used_again(rig: Rig) -> None:
    """Another incarnation of the name has another generation, also in the same directory."""
    key, other = rig.make("a-0"), rig.make("b-0")
    rig.publish("a-0", 5)
    rig.publish("b-0", 6)
    rig.reader.refresh()
    before = rig.reader.get(key)
    assert before is not None
    rig.writer.remove("a-0")
    rig.writer.remove("a-0")
    assert not rig.reader.is_unchanged(key, before)
    assert {key} == rig.reader.refresh()
    assert rig.reader.get(key) is None
    rig.publish("a-0", 1)
    assert not rig.reader.is_unchanged(key, before)
    assert (1, 6) == (rig.offset(key), rig.offset(other))
    assert 64 * 3 == rig.path.stat().st_size


def test_directory_of_the_same_name_has_another_key(rig: Rig) -> None:
    """The key has the inode."""
    key = rig.make("a-0")
    (rig.directory / "a-0").rename(rig.directory / "old")
    assert key != rig.make("a-0")


def test_closed_writer_leaves_no_file(rig: Rig) -> None:
    """A later publication does nothing; the reader finds out."""
    key = rig.make("a-0")
    rig.publish("a-0", 5)
    rig.reader.refresh()
    before = rig.reader.get(key)
    assert before is not None
    rig.writer.close()
    rig.writer.close()
    assert not rig.path.exists()
    assert not rig.reader.is_unchanged(key, before)
    assert rig.offset(key) is None
    rig.publish("a-0", 6)
    rig.writer.remove("a-0")
    assert not rig.path.exists()


def test_other_writer_in_the_same_process_is_another_file(rig: Rig) -> None:
    """Offsets of the earlier one count no longer, although its file is still open."""
    key = rig.make("a-0")
    rig.publish("a-0", 5)
    rig.reader.refresh()
    before = rig.reader.get(key)
    assert before is not None
    rig.writer.close()
    rig.writer = DurableOffsets(DISK, rig.directory)
    rig.publish("a-0", 2)
    assert not rig.reader.is_unchanged(key, before)
    assert rig.reader.refresh() is None
    assert 2 == rig.offset(key)


def test_without_the_lock_nothing_is_published(tmp_path: Path) -> None:
    """No reader could find out when the writer ends."""
    writer = DurableOffsets(DISK, tmp_path)
    (tmp_path / "a-0").mkdir()
    writer.publish(tmp_path / "a-0", 5)
    assert not (tmp_path / DURABLE_OFFSETS).exists()


def test_released_lock_ends_the_belief(rig: Rig) -> None:
    """As after a kill of the writer; the file is still there."""
    key = rig.make("a-0")
    rig.publish("a-0", 5)
    assert 5 == rig.offset(key)
    before = rig.reader.get(key)
    assert before is not None
    rig.lock.release()
    assert not rig.reader.is_unchanged(key, before)
    assert rig.offset(key) is None
    assert rig.path.exists()


HOLDER = """
import sys
from pathlib import Path
from kafkalog.files.locking import acquire_directory_lock
from kafkalog.files.posix import PosixFileSystem
lock = acquire_directory_lock(PosixFileSystem(), Path(sys.argv[1]), exclusive=True)
print("locked", flush=True)
sys.stdin.read()
"""


def test_other_owner_of_the_lock_ends_the_belief(rig: Rig) -> None:
    """A file that a killed writer left is not that of a broker which has the directory now."""
    key = rig.make("a-0")
    rig.publish("a-0", 5)
    assert 5 == rig.offset(key)
    rig.lock.release()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(rig.directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert b"locked\n" == process.stdout.readline()
        assert rig.offset(key) is None
        process.communicate()


def test_copy_of_the_file_is_not_believed(rig: Rig) -> None:
    """It has another inode."""
    key = rig.make("a-0")
    rig.publish("a-0", 5)
    copy = rig.directory / "copy"
    shutil.copy(rig.path, copy)
    copy.replace(rig.path)
    assert rig.offset(key) is None


def test_file_of_another_boot_is_not_believed(rig: Rig) -> None:
    """After a power cut the page cache is another one."""
    key = rig.make("a-0")
    rig.publish("a-0", 5)
    disk = FaultyDisk()
    filesystem = FaultyFileSystem(disk, DISK)
    reader = DurableOffsetsReader(filesystem, rig.directory)
    reader.refresh()
    # The writer of the file did not know this boot.
    assert filesystem.cache_id(rig.directory) != DISK.cache_id(rig.directory)
    assert reader.get(key) is None
    assert not reader.is_published


def flip(position: int) -> Callable[[bytearray], None]:
    """Return a damage of one byte."""

    def damage(content: bytearray) -> None:
        content[position] ^= 1

    return damage


def cut(size: int) -> Callable[[bytearray], None]:
    """Return a damage that shortens the file."""

    def damage(content: bytearray) -> None:
        del content[size:]

    return damage


@pytest.mark.parametrize(
    "damage", [*(flip(at) for at in range(0, 128, 5)), cut(0), cut(63), cut(127)]
)
def test_damage_is_no_offset(rig: Rig, damage: Callable[[bytearray], None]) -> None:
    """Header and slots have checksums; a whole slot after the damage is read."""
    key = rig.make("a-0")
    rig.publish("a-0", 5)
    content = bytearray(rig.path.read_bytes())
    damage(content)
    with rig.path.open("r+b") as file:
        file.write(content)
        file.truncate(len(content))
    assert rig.offset(key) is None
    rig.publish("a-0", 6)
    assert rig.offset(key) in (None, 6)


def test_header_of_another_version_is_not_believed(rig: Rig) -> None:
    """Also with a right checksum."""
    key = rig.make("a-0")
    rig.publish("a-0", 5)
    content = bytearray(rig.path.read_bytes())
    content[8] = 2
    content[60:64] = crc32c(bytes(content[:60])).to_bytes(4, "big")
    with rig.path.open("r+b") as file:
        file.write(content)
    assert rig.offset(key) is None


@pytest.mark.parametrize("lowers", [False, True])
def test_failed_write_ends_the_publication(tmp_path: Path, lowers: bool) -> None:
    """An offset that cannot be lowered must not stay: the file is removed."""
    disk = FaultyDisk()
    filesystem = FaultyFileSystem(disk, DISK)
    (tmp_path / "a-0").mkdir()
    with acquire_directory_lock(filesystem, tmp_path, exclusive=True):
        writer = DurableOffsets(filesystem, tmp_path)
        writer.publish(tmp_path / "a-0", 5)
        assert (tmp_path / DURABLE_OFFSETS).exists()
        disk.add(
            DiskFault(frozenset({"write"}), lambda path: path.name == DURABLE_OFFSETS, errno.ENOSPC)
        )
        writer.publish(tmp_path / "a-0", 4, is_lowered=lowers)
        assert not (tmp_path / DURABLE_OFFSETS).exists()
        writer.publish(tmp_path / "a-0", 9)
        assert not (tmp_path / DURABLE_OFFSETS).exists()


def test_full_disk_publishes_nothing_and_fails_no_flush(tmp_path: Path) -> None:
    """The flush of the log succeeds."""
    disk = FaultyDisk()
    filesystem = FaultyFileSystem(disk, DISK)
    disk.add(
        DiskFault(frozenset({"create"}), lambda path: path.name == DURABLE_OFFSETS, errno.ENOSPC)
    )
    with LogManager([tmp_path], filesystem=filesystem) as manager:
        manager.create_topic("a")
        log = manager.log("a")
        log.append([Record(value=b"1")], wait="durable")
        assert 1 == log.durable_offset
        assert not (tmp_path / DURABLE_OFFSETS).exists()


def test_manager_publishes_syncs_truncations_and_deletions(tmp_path: Path) -> None:
    """Nothing before the first sync, and nothing after an orderly close."""
    reader = DurableOffsetsReader(DISK, tmp_path)
    with LogManager([tmp_path]) as manager:
        manager.create_topic("a", 2)
        logs = [manager.log("a", number) for number in range(2)]
        for log in logs:
            log.append([Record(value=b"%d" % number) for number in range(5)])
        assert not (tmp_path / DURABLE_OFFSETS).exists()
        logs[0].flush()
        manager.flush()
        reader.refresh()
        keys = []
        for log in logs:
            facts = DISK.stat(log.directory)
            assert facts is not None
            keys.append(partition_digest(log.directory, facts))
        assert [5, 5] == [_offset(reader, key) for key in keys]
        logs[0].truncate_to(2)
        logs[1].truncate_fully_and_start_at(1)
        reader.refresh()
        # The only batch of the first log reached the offset, and was removed as a whole.
        assert [0, 1] == [_offset(reader, key) for key in keys]
        manager.delete_topic("a")
        reader.refresh()
        assert [None, None] == [_offset(reader, key) for key in keys]
    assert not (tmp_path / DURABLE_OFFSETS).exists()
    reader.close()


def test_sync_that_outlives_its_partition_publishes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another topic of the name has the slot by then: nothing above its end is on the disk."""
    synced, created = threading.Event(), threading.Event()
    reader = DurableOffsetsReader(DISK, tmp_path)
    with LogManager([tmp_path]) as manager:
        manager.create_topic("a")
        log = manager.log("a")
        log.append([Record(value=b"old")] * 100)
        sync = LocalLog.sync

        def sync_slowly(self: LocalLog, synced_offset: int) -> int:
            reached = sync(self, synced_offset)
            if self.snapshot.end_offset == 100:
                synced.set()
                created.wait()
            return reached

        monkeypatch.setattr(LocalLog, "sync", sync_slowly)
        flush = threading.Thread(target=log.flush)
        flush.start()
        synced.wait()
        manager.delete_topic("a")
        manager.create_topic("a")
        manager.log("a").append([Record(value=b"new")], wait="durable")
        created.set()
        flush.join()
        reader.refresh()
        facts = DISK.stat(log.directory)
        assert facts is not None
        assert 1 == _offset(reader, partition_digest(log.directory, facts))
    reader.close()


def _offset(reader: DurableOffsetsReader, key: bytes) -> int | None:
    found = reader.get(key)
    return None if found is None else found.offset


def test_failed_sync_publishes_nothing(tmp_path: Path) -> None:
    """The durable offset stays, also for other processes."""
    disk = FaultyDisk()
    filesystem = FaultyFileSystem(disk, DISK)
    faults = Faults(tmp_path, disk, DISK)
    reader = DurableOffsetsReader(filesystem, tmp_path)
    with LogManager([tmp_path], filesystem=filesystem) as manager:
        manager.create_topic("a")
        log = manager.log("a")
        log.append([Record(value=b"1")], wait="durable")
        faults.fail_next_sync("a")
        with pytest.raises(KafkaLogError):
            log.append([Record(value=b"2")], wait="durable")
        reader.refresh()
        facts = DISK.stat(log.directory)
        assert facts is not None
        assert 1 == _offset(reader, partition_digest(log.directory, facts))
    reader.close()


def test_log_without_a_manager_publishes_in_its_state_directory(tmp_path: Path) -> None:
    """A standalone log publishes next to its segments, and removes the file at its close."""
    directory = tmp_path / "a-0"
    with open_log(directory) as log:
        log.append([Record(value=b"1")], wait="durable")
        reader = DurableOffsetsReader(DISK, directory)
        reader.refresh()
        facts = DISK.stat(directory)
        assert facts is not None
        assert 1 == _offset(reader, partition_digest(directory, facts))
    assert not (directory / DURABLE_OFFSETS).exists()
    assert frozenset() != reader.refresh()
    assert not reader.is_published


@pytest.mark.parametrize("is_managed", [False, True])
def test_file_of_a_killed_writer_is_removed_at_the_next_start(
    tmp_path: Path, is_managed: bool
) -> None:
    """Also if it is damaged; a directory of the name stays, and prevents nothing."""
    place = tmp_path if is_managed else tmp_path / "a-0"
    place.mkdir(exist_ok=True)
    (place / DURABLE_OFFSETS).write_bytes(b"of another")
    if is_managed:
        LogManager([tmp_path]).close()
    else:
        open_log(place).close()
    assert not (place / DURABLE_OFFSETS).exists()
    (place / DURABLE_OFFSETS).mkdir()
    remove_durable_offsets(DISK, place)
    with open_log(tmp_path / "b-0") as log:
        log.append([Record(value=b"1")], wait="durable")
    assert (place / DURABLE_OFFSETS).is_dir()


def test_forked_child_publishes_nothing(rig: Rig) -> None:
    """The close does not remove the file of the parent, either."""
    key = rig.make("a-0")
    rig.publish("a-0", 5)
    child = os.fork()
    if not child:
        rig.publish("a-0", 9)
        rig.writer.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert 5 == rig.offset(key)
