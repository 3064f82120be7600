"""The sync journal: its result for the next opening, and its changes."""

from __future__ import annotations

import errno
import struct
from pathlib import Path

import pytest

from kafkalog._core.crc32c import value
from kafkalog.state.sync_journal import LARGE_SYNC_BYTES, SyncJournal
from tests.support.simulated_disk import SimulatedDisk

PATH = Path("/data/orders-0/.kafkalog_syncs")
FINGERPRINT = b"12345678"
SYNC = frozenset({"sync"})


@pytest.fixture
def disk() -> SimulatedDisk:
    """Return a disk with the partition directory."""
    disk = SimulatedDisk()
    disk.make_durable(PATH.parent)
    return disk


def fresh(disk: SimulatedDisk, synced_offset: int = 0) -> SyncJournal:
    """Return the note of a log that was opened with its end at `synced_offset`."""
    note = SyncJournal(disk, PATH, FINGERPRINT)
    note.record_synced(synced_offset)
    return note


def next_opening(disk: SimulatedDisk, recovery_point: int = 0) -> int | None:
    """Return the result of `begin_recovery` in the next process of this boot."""
    copy = SimulatedDisk()
    copy.make_durable(PATH.parent)
    content = disk.snapshot().get(str(PATH))
    if content is not None:
        copy.open(PATH, create=True).pwrite(content, 0)
    return SyncJournal(copy, PATH, FINGERPRINT).begin_recovery(recovery_point, errors_are_kept=True)


def test_journal_bytes_equal_the_documented_ones(disk: SimulatedDisk) -> None:
    """Another version of this library must be able to read them, or to refuse them."""
    note = fresh(disk, 0x0102030405060708)
    fields = struct.pack(
        ">8sBBH8sq8s", b"kafkalog", 2, 0, 0, FINGERPRINT, 0x0102030405060708, bytes(8)
    )
    assert fields + struct.pack(">I", value(fields)) == disk.snapshot()[str(PATH)]
    with note.attempt_sync():
        content = disk.snapshot()[str(PATH)]
        assert content is not None
        assert 1 == content[9]
        assert content == disk.crash().snapshot().get(str(PATH), content)


def test_journal_after_record_synced_is_certain(disk: SimulatedDisk) -> None:
    """No sync was tried since."""
    fresh(disk, 7)
    assert next_opening(disk) is None


def test_journal_during_attempt_all_above_the_last_sync_is_uncertain(disk: SimulatedDisk) -> None:
    """Within it, and after it failed; the note is on the disk before it begins."""
    note = fresh(disk, 7)
    with pytest.raises(OSError, match="no luck"), note.attempt_sync(9, LARGE_SYNC_BYTES):
        assert 7 == next_opening(disk)
        assert [] == [what for _, what in disk.unsynced() if "write" in what]
        raise OSError(errno.EIO, "no luck")
    assert 7 == next_opening(disk)


def test_journal_small_syncs_raise_the_offset_and_stay_trying(disk: SimulatedDisk) -> None:
    """One sync of the note is enough for all of them."""
    note = fresh(disk, 7)
    for end in (9, 12, 15):
        with note.attempt_sync(end, 100):
            pass
        assert end == next_opening(disk)
    assert 1 == disk.calls["sync"]


def test_journal_large_sync_ends_trying(disk: SimulatedDisk) -> None:
    """The next attempt must record this again, on the disk."""
    note = fresh(disk, 7)
    for number in (1, 2, 3):
        with note.attempt_sync(7 + number, LARGE_SYNC_BYTES):
            assert number == disk.calls["sync"]
        assert next_opening(disk) is None


def test_journal_large_sync_during_another_stays_trying(disk: SimulatedDisk) -> None:
    """That one may still fail."""
    note = fresh(disk, 7)
    with note.attempt_sync(9):
        with note.attempt_sync(9, LARGE_SYNC_BYTES):
            pass
        assert 9 == next_opening(disk)


def test_journal_success_after_failure_stays_uncertain(disk: SimulatedDisk) -> None:
    """The system counts the bytes of the failed sync as clean."""
    note = fresh(disk, 7)
    with (
        note.attempt_sync(9, LARGE_SYNC_BYTES),
        pytest.raises(KeyboardInterrupt),
        note.attempt_sync(),
    ):
        raise KeyboardInterrupt
    with note.attempt_sync(10, LARGE_SYNC_BYTES):
        pass
    assert 7 == next_opening(disk)


def test_journal_truncation_lowers_the_offset_durably(disk: SimulatedDisk) -> None:
    """Before the bytes are replaced; a sync of the old ones does not raise it again."""
    note = fresh(disk, 7)
    with note.attempt_sync(9):
        note.lower(5)
        assert [] == [what for _, what in disk.unsynced() if "write" in what]
        assert 5 == next_opening(disk)
    assert 5 == next_opening(disk)
    with note.attempt_sync(8):
        pass
    assert 8 == next_opening(disk)


def test_journal_truncation_above_the_offset_needs_no_sync(disk: SimulatedDisk) -> None:
    """The truncated part was uncertain before."""
    fresh(disk, 7).lower(8)
    assert 0 == disk.calls["sync"]


def test_journal_lower_failed_keeps_the_offset(disk: SimulatedDisk) -> None:
    """The truncation is refused, and the next one has to try again."""
    note = fresh(disk, 7)
    for _attempt in (1, 2):
        disk.fail_at(1, only=SYNC)
        disk.fail_at(1, errno.EROFS, only=frozenset({"unlink"}))
        with pytest.raises(OSError, match="Read-only"):
            note.lower(5)
    note.lower(5)
    assert 5 == next_opening(disk)


@pytest.mark.parametrize("call", ["create", "pwrite", "sync"])
def test_journal_write_failed_removes_the_file_durably(disk: SimulatedDisk, call: str) -> None:
    """The old content would claim too much; the journal is removed."""
    note = SyncJournal(disk, PATH, FINGERPRINT)
    if call != "create":
        fresh(disk)
        disk.make_durable()
    disk.fail_at(1, errno.ENOSPC, only=frozenset({call}))
    note.begin_recovery(3, errors_are_kept=True)
    assert disk.crash().stat(PATH) is None
    assert 3 == next_opening(disk, 3)
    note.record_synced(9)
    with note.attempt_sync(10, LARGE_SYNC_BYTES):
        pass
    note.lower(2)
    assert disk.stat(PATH) is None
    note.remove()


def test_journal_hint_failed_is_ignored(disk: SimulatedDisk) -> None:
    """The state before declares more bytes uncertain."""
    note = fresh(disk, 7)
    with note.attempt_sync(9):
        disk.fail_at(1, errno.EIO, only=frozenset({"pwrite"}))
    assert 7 == next_opening(disk)


@pytest.mark.parametrize(
    ("kept", "recovery_point", "expected"), [(True, 3, None), (False, 3, 7), (False, 8, 8)]
)
def test_journal_errors_not_kept_all_above_the_last_sync_is_uncertain(
    disk: SimulatedDisk, kept: bool, recovery_point: int, expected: int | None
) -> None:
    """The higher one of the two offsets that were on the disk for certain."""
    fresh(disk, 7)
    note = SyncJournal(disk, PATH, FINGERPRINT)
    assert expected == note.begin_recovery(recovery_point, errors_are_kept=kept)


def test_journal_recovery_is_trying_until_record_synced(disk: SimulatedDisk) -> None:
    """Its first sync may report an error."""
    fresh(disk, 7)
    note = SyncJournal(disk, PATH, FINGERPRINT)
    assert note.begin_recovery(3, errors_are_kept=True) is None
    assert 7 == next_opening(disk)
    assert 1 == disk.calls["sync"]
    note.record_synced(9)
    assert next_opening(disk) is None


@pytest.mark.parametrize("position", range(40))
def test_journal_any_changed_byte_is_invalid(disk: SimulatedDisk, position: int) -> None:
    """Also that of the traces, which its checksum covers."""
    fresh(disk, 7)
    handle = disk.open(PATH, write=True)
    handle.pwrite(bytes([handle.pread(1, position)[0] ^ 1]), position)
    assert 3 == next_opening(disk, 3)


def test_journal_other_fingerprint_is_invalid(disk: SimulatedDisk) -> None:
    """It was whole, but not of the last writer."""
    fresh(disk, 7)
    note = SyncJournal(disk, PATH, b"87654321")
    assert 3 == note.begin_recovery(3, errors_are_kept=True)


@pytest.mark.parametrize("size", [0, 32, 39, 41])
def test_journal_other_size_is_invalid(disk: SimulatedDisk, size: int) -> None:
    """Short, or longer than any note is."""
    fresh(disk, 7)
    disk.open(PATH, write=True).truncate(size)
    assert 3 == next_opening(disk, 3)


def test_journal_unreadable_is_invalid(disk: SimulatedDisk) -> None:
    """A disk that does not report is no reason for trust."""
    fresh(disk, 7)
    disk.fail_at(1, only=frozenset({"pread"}))
    assert 3 == SyncJournal(disk, PATH, FINGERPRINT).begin_recovery(3, errors_are_kept=True)


def test_journal_removed_is_not_written_again(disk: SimulatedDisk) -> None:
    """Also where it was removed before, and when the log is still used a little."""
    note = fresh(disk, 7)
    disk.unlink(PATH)
    note.remove()
    note.record_synced(8)
    assert disk.stat(PATH) is None
    assert "none" in repr(note)


def test_journal_missing_producers_are_kept_over_openings(disk: SimulatedDisk) -> None:
    """On the disk at once, byte by byte as documented, and over every opening in between."""
    note = fresh(disk, 7)
    note.mark_producers_uncertain()
    assert [] == disk.unsynced()
    content = disk.snapshot()[str(PATH)]
    assert content is not None
    assert 2 == content[9]
    for _ in range(2):
        again = SyncJournal(disk, PATH, FINGERPRINT)
        assert 7 == again.begin_recovery(0, errors_are_kept=True)
        assert again.lacks_producers
        again.record_synced(7)
    again.mark_producers_certain()
    again.record_synced(9)
    last = SyncJournal(disk, PATH, FINGERPRINT)
    assert last.begin_recovery(0, errors_are_kept=True) is None
    assert not last.lacks_producers
