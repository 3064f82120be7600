"""Tests of the simulated disk: data lost or kept in a crash, and faults at the n-th call."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog.files.filesystem import FileHandle
from tests.support.simulated_disk import SYNCING, CrashChoice, Killed, PowerCut, SimulatedDisk

DATA = Path("/data")
FILE = DATA / "file"


@pytest.fixture
def disk() -> SimulatedDisk:
    """Return a disk with a durable, empty directory."""
    disk = SimulatedDisk()
    disk.make_durable(DATA)
    return disk


def contents(disk: SimulatedDisk, limit: int = 300) -> set[bytes | None]:
    """Return every content that crashes leave in FILE; None if the name is gone."""
    return {state.snapshot().get(str(FILE)) for _, state in disk.crash_states(limit)}


def put(disk: SimulatedDisk, path: Path, data: bytes) -> None:
    """Make a file that is durable under its name."""
    handle = disk.open(path, create=True)
    handle.pwrite(data, 0)
    handle.sync()
    disk.sync_directory(path.parent)


def test_synced_file_and_name_survive_every_crash(disk: SimulatedDisk) -> None:
    """Synced data, name included, always survives."""
    put(disk, FILE, b"whole")
    assert {b"whole"} == contents(disk)
    assert [] == disk.unsynced()


def test_synced_file_without_directory_sync_may_lose_its_name(disk: SimulatedDisk) -> None:
    """The sync of a file does not cover its name; with the name, all its bytes are there."""
    disk.open(FILE, create=True).pwrite(b"whole", 0)
    disk.open(FILE, create=True).sync()
    assert {None, b"whole"} == contents(disk)


def test_name_synced_without_contents_may_be_short_zero_or_whole(disk: SimulatedDisk) -> None:
    """The directory's sync keeps the name; length and bytes are lost independently."""
    handle = disk.open(FILE, create=True)
    disk.sync_directory(DATA)
    handle.pwrite(b"abc", 0)
    assert {b"", b"\0\0\0", b"abc"} == contents(disk)


def test_append_of_two_sectors_is_torn_at_the_sector(disk: SimulatedDisk) -> None:
    """A write over a sector border is kept in part, in either order, with either length."""
    put(disk, FILE, b"")
    disk.open(FILE, write=True).pwrite(b"a" * 512 + b"b" * 8, 0)
    first, second = b"a" * 512, b"b" * 8
    expected = {
        b"",
        first,
        bytes(512),
        first + second,
        first + bytes(8),
        bytes(512) + second,
        bytes(520),
    }
    assert expected == contents(disk)


def test_two_writes_in_one_sector_never_survive_in_the_wrong_order(disk: SimulatedDisk) -> None:
    """A sector is a state of the page cache: the second write includes the first."""
    put(disk, FILE, b"........")
    handle = disk.open(FILE, write=True)
    handle.pwrite(b"11", 0)
    handle.pwrite(b"22", 4)
    assert {b"........", b"11......", b"11..22.."} == contents(disk)


def test_writes_to_two_files_survive_in_any_order(disk: SimulatedDisk) -> None:
    """Only the later write, to another file, may survive."""
    put(disk, DATA / "a", b"-")
    put(disk, DATA / "b", b"-")
    disk.open(DATA / "a", write=True).pwrite(b"1", 0)
    disk.open(DATA / "b", write=True).pwrite(b"2", 0)
    found = {
        (state.snapshot()["/data/a"], state.snapshot()["/data/b"])
        for _, state in disk.crash_states(100)
    }
    assert {(b"-", b"-"), (b"1", b"-"), (b"-", b"2"), (b"1", b"2")} == found


def test_truncation_may_be_lost(disk: SimulatedDisk) -> None:
    """Both lengths are possible; truncated bytes may read as zeros if they come back."""
    put(disk, FILE, b"abcdef")
    disk.open(FILE, write=True).truncate(3)
    assert {b"abc", b"abcdef", b"abc\0\0\0"} == contents(disk)


def test_rename_is_lost_or_kept_as_a_whole(disk: SimulatedDisk) -> None:
    """Never both names, never none."""
    put(disk, FILE, b"old")
    put(disk, DATA / "new", b"new")
    disk.rename(DATA / "new", FILE)
    found = {frozenset(state.snapshot().items()) for _, state in disk.crash_states(100)}
    assert {
        frozenset({("/data", None), ("/data/file", b"old"), ("/data/new", b"new")}),
        frozenset({("/data", None), ("/data/file", b"new")}),
    } == found


def test_renames_of_different_names_survive_independently(disk: SimulatedDisk) -> None:
    """Only the second of two renames may survive."""
    put(disk, DATA / "a", b"1")
    put(disk, DATA / "b", b"2")
    disk.rename(DATA / "a", DATA / "c")
    disk.rename(DATA / "b", DATA / "d")
    names = {"".join(state.list(DATA)) for _, state in disk.crash_states(200)}
    assert {"ab", "ad", "bc", "cd"} == names


def test_rename_over_a_name_just_freed_needs_the_freeing(disk: SimulatedDisk) -> None:
    """A later change of one name never survives without the earlier one: no content gets lost."""
    put(disk, DATA / "live", b"old")
    put(disk, DATA / "swap", b"new")
    disk.rename(DATA / "live", DATA / "gone")
    disk.rename(DATA / "swap", DATA / "live")
    names = {" ".join(state.list(DATA)) for _, state in disk.crash_states(200)}
    assert {"live swap", "gone swap", "gone live"} == names


def test_sync_of_one_directory_does_not_cover_the_other(disk: SimulatedDisk) -> None:
    """A rename between directories is safe with either sync, other names only with their own."""
    disk.make_durable("/a", "/b")
    put(disk, Path("/a/x"), b"")
    disk.rename(Path("/a/x"), Path("/b/x"))
    disk.open(Path("/a/y"), create=True)
    disk.sync_directory(Path("/b"))
    names = {(tuple(s.list(Path("/a"))), tuple(s.list(Path("/b")))) for _, s in disk.crash_states()}
    assert {((), ("x",)), (("y",), ("x",))} == names


def test_directory_without_durable_name_loses_its_files(disk: SimulatedDisk) -> None:
    """Files in a new directory are safe only if the directory's own name is."""
    disk.make_directory(DATA / "orders-0")
    put(disk, DATA / "orders-0" / "file", b"1")
    assert {"", "orders-0"} == {" ".join(state.list(DATA)) for _, state in disk.crash_states()}
    disk.sync_directory(DATA)
    assert {b"1"} == {state.snapshot()["/data/orders-0/file"] for _, state in disk.crash_states()}


def test_unlink_may_be_lost_and_open_handles_outlive_it(disk: SimulatedDisk) -> None:
    """The name may come back; open handles can still read."""
    put(disk, FILE, b"data")
    handle = disk.open(FILE)
    disk.unlink(FILE)
    assert b"data" == handle.pread(4, 0)
    assert {None, b"data"} == contents(disk)


def test_states_are_different_and_repeatable(disk: SimulatedDisk) -> None:
    """No state comes twice; a choice gives the same state again; a seed gives the same choices."""
    for number in range(6):
        handle = disk.open(DATA / f"f{number}", create=True)
        handle.pwrite(bytes([number]) * 1500, 0)
    states = list(disk.crash_states(40, seed=7))
    prints = [state.fingerprint() for _, state in states]
    assert 40 == len(prints) == len(set(prints))
    assert prints == [disk.crash(choice).fingerprint() for choice, _ in states]
    assert [choice for choice, _ in states] == [c for c, _ in disk.crash_states(40, seed=7)]
    assert states[0][0] == CrashChoice("nothing")
    few = [state.fingerprint() for _, state in disk.crash_states(9, seed=7)]
    rest = [state.fingerprint() for _, state in disk.crash_states(40, seed=7, beyond=9)]
    assert (31, set()) == (len(rest), set(few) & set(rest))


def test_unsynced_names_operations_at_risk(disk: SimulatedDisk) -> None:
    """A failing test prints them in order."""
    handle = disk.open(FILE, create=True)
    handle.pwrite(b"abc", 5)
    handle.truncate(2)
    assert [
        "create /data/file",
        "write 3 bytes at 5 of /data/file",
        "truncate at 2 of /data/file",
    ] == [text for _, text in disk.unsynced()]


def test_crash_at_stops_before_the_call_and_after(disk: SimulatedDisk) -> None:
    """The n-th changing call has no effect, and no later call works; closing does."""
    handle = disk.open(FILE, create=True)
    disk.crash_at(2)
    handle.pwrite(b"1", 0)
    assert 1 == handle.size()
    with pytest.raises(PowerCut):
        handle.pwrite(b"2", 1)
    assert disk.is_off
    for action in (handle.size, lambda: disk.list(DATA), lambda: disk.lock(FILE)):
        with pytest.raises(PowerCut):
            action()
    handle.close()
    assert b"1" == disk.crash(CrashChoice("all")).open(FILE).pread(9, 0)


def test_crash_at_sync_points_counts_only_syncs(disk: SimulatedDisk) -> None:
    """Writes between the syncs are not counted."""
    handle = disk.open(FILE, create=True)
    disk.crash_at(2, only=SYNCING)
    handle.pwrite(b"1", 0)
    handle.sync()
    handle.pwrite(b"2", 0)
    with pytest.raises(PowerCut):
        disk.sync_directory(DATA)


def test_fail_at_fails_once_without_effect(disk: SimulatedDisk) -> None:
    """The n-th call raises the errno; the one after it works."""
    handle = disk.open(FILE, create=True)
    disk.fail_at(2, errno.EIO)
    handle.pwrite(b"1", 0)
    assert 1 == disk.faults_waiting
    with pytest.raises(OSError, match="Input/output error") as caught:
        handle.pwrite(b"2", 1)
    assert errno.EIO == caught.value.errno
    assert b"1" == handle.pread(9, 0)
    assert 0 == disk.faults_waiting


def test_fail_at_with_short_write_writes_a_part(disk: SimulatedDisk) -> None:
    """The file holds the part of the failed write."""
    handle = disk.open(FILE, create=True)
    disk.fail_at(1, errno.ENOSPC, only=frozenset({"pwritev"}), short_write_bytes=3)
    with pytest.raises(OSError, match="No space") as caught:
        handle.pwritev([b"ab", b"cd"], 0)
    assert errno.ENOSPC == caught.value.errno
    assert b"abc" == handle.pread(9, 0)


def test_sync_after_a_failed_sync_keeps_nothing(disk: SimulatedDisk) -> None:
    """A retried sync succeeds and keeps nothing, though all readers see the bytes."""
    put(disk, FILE, b"old")
    handle = disk.open(FILE, write=True)
    handle.pwrite(b"new", 0)
    fail_one_sync(disk, handle)
    assert b"new" in contents(disk)
    handle.sync()
    again = disk.open(FILE, write=True)
    again.sync()
    assert b"new" == again.pread(9, 0) == bytes(again.map(3))
    assert {b"old"} == contents(disk)


def test_sectors_written_again_after_a_failed_sync_become_durable(disk: SimulatedDisk) -> None:
    """With their cached content; their neighbours and the length after them do not."""
    disk.keeps_unwritten = False
    put(disk, FILE, b"")
    handle = disk.open(FILE, write=True)
    handle.pwrite(b"a" * 512 + b"b" * 512 + b"c" * 512, 0)
    fail_one_sync(disk, handle)
    handle.pwrite(b"b", 700)
    handle.sync()
    assert {bytes(512) + b"b" * 512} == contents(disk)
    handle.pwrite(handle.pread(1536, 0), 0)
    handle.sync()
    assert {b"a" * 512 + b"b" * 512 + b"c" * 512} == contents(disk)


def test_block_whose_first_write_failed_stays_unwritten(disk: SimulatedDisk) -> None:
    """DUR-2: its sectors, also those written later; others, and those written before, do not."""
    put(disk, FILE, b"old")
    handle = disk.open(FILE, write=True)
    handle.pwrite(b"A" * 4096 + b"a" * 10, 0)
    fail_one_sync(disk, handle)
    handle.pwrite(b"A" * 4096 + b"a" * 600, 0)
    handle.sync()
    handle.pwrite(b"b" * 4096, 8192)
    handle.sync()
    assert not disk.is_stored(FILE, 0)
    assert disk.is_stored(FILE, 8192)
    assert {b"A" * 4096 + bytes(4096) + b"b" * 4096} == contents(disk)


@pytest.mark.parametrize("way", ["truncation", "eviction", "another file"])
def test_block_stays_unwritten_until_it_is_replaced(disk: SimulatedDisk, way: str) -> None:
    """Any operation that frees the block, or its page, ends the state."""
    put(disk, FILE, b"")
    handle = disk.open(FILE, write=True)
    handle.pwrite(b"a" * 100, 0)
    fail_one_sync(disk, handle)
    if way == "truncation":
        handle.truncate(0)
    elif way == "eviction":
        disk.evict(FILE)
        assert bytes(100) == handle.pread(100, 0)
    else:
        disk.unlink(FILE)
        handle = disk.open(FILE, create=True)
        disk.sync_directory(DATA)
    handle.pwrite(b"a" * 100, 0)
    handle.sync()
    assert disk.is_stored(FILE, 0)
    assert {b"a" * 100} == contents(disk)


def test_disk_below_an_uncontrolled_cache_is_never_verified(
    disk: SimulatedDisk,
) -> None:
    """As a network file system: the content of its disk is unknown."""
    put(disk, FILE, b"x")
    assert disk.is_stored(FILE, 0)
    disk.reads_past_cache = False
    assert not disk.is_stored(FILE, 0)


def test_structure_survives_a_failed_sync_as_pending(disk: SimulatedDisk) -> None:
    """New lengths and names stay at risk until a sync succeeds, and are durable then."""
    put(disk, FILE, b"old")
    handle = disk.open(FILE, write=True)
    handle.truncate(2)
    fail_one_sync(disk, handle)
    assert {b"old", b"ol"} <= contents(disk)
    handle.sync()
    assert {b"ol"} == contents(disk)
    disk.unlink(FILE)
    disk.fail_at(1, only=frozenset({"sync_directory"}))
    with pytest.raises(OSError, match="Input/output"):
        disk.sync_directory(DATA)
    assert FILE.name in disk.crash().list(DATA)
    disk.sync_directory(DATA)
    assert FILE.name not in disk.crash().list(DATA)


def fail_one_sync(disk: SimulatedDisk, handle: FileHandle) -> None:
    """Let a sync of a file fail."""
    disk.fail_at(1, only=frozenset({"sync"}))
    with pytest.raises(OSError, match="Input/output"):
        handle.sync()


def test_full_disk_writes_the_part_that_fits(disk: SimulatedDisk) -> None:
    """Space counts in sectors that were written; holes take none; unlinking frees space."""
    disk.capacity_bytes = 1024
    handle = disk.open(FILE, create=True)
    handle.truncate(1 << 20)
    handle.pwrite(b"x" * 512, 512)
    with pytest.raises(OSError, match="No space") as caught:
        handle.pwrite(b"y" * 1024, 4096)
    assert errno.ENOSPC == caught.value.errno
    assert b"y" * 512 + bytes(512) == handle.pread(1024, 4096)
    handle.pwrite(b"z" * 512, 512)
    disk.unlink(FILE)
    disk.open(DATA / "other", create=True).pwrite(b"w" * 1024, 0)


def test_truncating_below_a_live_mapping_is_an_assertion(disk: SimulatedDisk) -> None:
    """On a machine the readers would die; without a view it is allowed."""
    put(disk, FILE, b"0123456789")
    handle = disk.open(FILE, write=True)
    view = handle.map(8)[2:4]
    handle.truncate(8)
    with pytest.raises(AssertionError, match="SIGBUS"):
        handle.truncate(7)
    assert b"23" == bytes(view)
    del view
    handle.truncate(7)


def test_locks_are_gone_after_a_crash(disk: SimulatedDisk) -> None:
    """A crash leaves the lock file at most, not the lock."""
    lock = disk.lock(DATA / ".lock")
    assert lock is not None
    assert disk.lock(DATA / ".lock") is None
    assert disk.crash(CrashChoice("all")).lock(DATA / ".lock") is not None


def test_history_has_the_order_of_calls(disk: SimulatedDisk) -> None:
    """Tests of protocols check it: written, synced, renamed, directory synced."""
    disk.history = []
    put(disk, FILE, b"x")
    assert [("create", str(FILE)), ("pwrite", str(FILE)), ("sync", str(FILE)),
            ("sync_directory", str(DATA))] == disk.history  # fmt: skip
    assert 4 == disk.mutation_count == disk.call_count


def written(disk: SimulatedDisk) -> FileHandle:
    """Return a file with two durable bytes and two at risk."""
    put(disk, FILE, b"ab")
    handle = disk.open(FILE, write=True)
    handle.pwrite(b"cd", 2)
    return handle


def test_failed_write_back_is_reported_once_to_the_first_sync(disk: SimulatedDisk) -> None:
    """Also through a handle opened later; the next sync succeeds and writes nothing."""
    written(disk)
    disk.fail_write_back(FILE)
    assert b"abcd" == disk.snapshot()[str(FILE)]
    late = disk.open(FILE, write=True)
    with pytest.raises(OSError, match="error"):
        late.sync()
    disk.open(FILE, write=True).sync()
    assert b"ab" == disk.crash().snapshot()[str(FILE)]
    late.pwrite(b"cd", 2)
    late.sync()
    assert b"abcd" == disk.crash().snapshot()[str(FILE)]


def test_failed_write_back_waited_for_is_not_reported_again(disk: SimulatedDisk) -> None:
    """The call that drops bytes raises, and the sync after it does not: their bytes are lost."""
    handle = written(disk)
    disk.fail_write_back(FILE)
    handle.begin_write_back(0, 4)
    with pytest.raises(OSError, match="error"):
        handle.drop_cache(0, 4)
    handle.sync()
    assert b"ab" == disk.crash().snapshot()[str(FILE)]


def test_system_without_error_memory_reports_no_write_back(disk: SimulatedDisk) -> None:
    """Even the first sync succeeds."""
    handle = written(disk)
    disk.errors_are_kept = False
    disk.fail_write_back(FILE)
    handle.sync()
    assert b"ab" == disk.crash().snapshot()[str(FILE)]


def test_write_back_that_succeeds_equals_a_sync_of_the_bytes(disk: SimulatedDisk) -> None:
    """It returns no result."""
    written(disk)
    disk.write_back(FILE)
    assert b"abcd" == disk.crash().snapshot()[str(FILE)]


def test_evicted_pages_are_read_from_the_disk_and_lose_the_error(
    disk: SimulatedDisk,
) -> None:
    """Dirty pages and the length stay; mappings show the same; a sync finds no error."""
    handle = written(disk)
    mapped = handle.map(4)
    disk.fail_write_back(FILE)
    handle.pwrite(b"e", 600)
    disk.evict(FILE)
    expected = b"ab".ljust(600, b"\0") + b"e"
    assert expected == handle.pread(1000, 0)
    assert b"ab\0\0" == bytes(mapped)
    handle.sync()
    assert expected == disk.crash().snapshot()[str(FILE)]


def test_next_process_has_the_cache_and_the_last_process_is_stopped(
    disk: SimulatedDisk,
) -> None:
    """A kill loses no byte, and releases the locks; unsynced data is still at risk."""
    handle = written(disk)
    disk.lock(DATA / ".lock")
    after = disk.killed()
    with pytest.raises(PowerCut):
        handle.pwrite(b"x", 0)
    assert b"abcd" == after.open(FILE).pread(9, 0)
    assert after.lock(DATA / ".lock") is not None
    assert b"ab" == after.crash().snapshot()[str(FILE)]
    after.open(FILE, write=True).sync()
    assert b"abcd" == after.crash().snapshot()[str(FILE)]


def test_process_killed_in_a_failing_sync_has_consumed_the_error(
    disk: SimulatedDisk,
) -> None:
    """The next process gets no error."""
    handle = written(disk)
    disk.fail_at(1, only=frozenset({"sync"}), kills=True, suffix=".other")
    disk.fail_at(1, only=frozenset({"sync"}), kills=True, suffix="file")
    with pytest.raises(Killed):
        handle.sync()
    after = disk.killed()
    after.open(FILE, write=True).sync()
    assert b"abcd" == after.snapshot()[str(FILE)]
    assert b"ab" == after.crash().snapshot()[str(FILE)]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 3000), st.binary(min_size=1, max_size=1200)),
        st.tuples(st.just("truncate"), st.integers(0, 3000), st.just(b"")),
        st.tuples(st.just("sync"), st.just(0), st.just(b"")),
    ),
    max_size=12,
)


@settings(max_examples=60)
@given(steps=STEPS, seed=st.integers(0, 2**32 - 1))
def test_every_surviving_sector_has_a_state_of_its_history(
    steps: list[tuple[str, int, bytes]], seed: int
) -> None:
    """After any operations each sector, and the length, is from the unsynced history."""
    disk = SimulatedDisk()
    disk.make_durable(DATA)
    put(disk, FILE, b"")
    handle = disk.open(FILE, write=True)
    model = bytearray()
    moments = [b""]
    for name, position, data in steps:
        if name == "write":
            model += bytes(max(0, position - len(model)))
            model[position : position + len(data)] = data
            handle.pwrite(data, position)
        elif name == "truncate":
            model += bytes(max(0, position - len(model)))
            del model[position:]
            handle.truncate(position)
        else:
            handle.sync()
            moments.clear()
        moments.append(bytes(model))
    assert bytes(model) == handle.pread(1 << 20, 0)
    assert moments[0] == disk.crash().snapshot()[str(FILE)]
    assert moments[-1] == disk.crash(CrashChoice("all")).snapshot()[str(FILE)]
    for choice, state in disk.crash_states(25, seed):
        image = state.snapshot()[str(FILE)] or b""
        assert min(map(len, moments)) <= len(image) <= max(map(len, moments)), choice
        for start in range(0, len(image), 512):
            sector = image[start : start + 512]
            possible = [m[start : start + len(sector)].ljust(len(sector), b"\0") for m in moments]
            assert sector in possible, (choice, start)
