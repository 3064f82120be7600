"""Space of deleted segments: no mapping or descriptor outlives the last reader."""

from __future__ import annotations

import gc
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog import Log, LogConfig, LogManager, ManagerConfig, Record
from tests.support.logs import manual_log
from tests.support.managers import manual_manager, scheduler_of
from tests.support.manual_time import ManualClock, ManualScheduler

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/maps").exists(), reason="the system does not tell what is mapped"
)


def held(directory: Path) -> list[str]:
    """Return the unlinked files below a directory that are mapped or open."""
    found = [
        line.split(maxsplit=5)[5]
        for line in Path("/proc/self/maps").read_text().splitlines()
        if str(directory) in line and line.endswith("(deleted)")
    ]
    for name in Path("/proc/self/fd").iterdir():
        try:
            target = str(name.readlink())
        except OSError:
            continue
        if str(directory) in target and target.endswith("(deleted)"):
            found.append(target)
    return found


@pytest.fixture(name="scheduler")
def fixture_scheduler() -> ManualScheduler:
    """A scheduler that runs due tasks when a test calls it."""
    return ManualScheduler(ManualClock())


@pytest.fixture(name="log")
def fixture_log(directory: Path, scheduler: ManualScheduler) -> Iterator[Log]:
    """A log of ten segments, all of which were read by every API."""
    with manual_log(
        directory, scheduler=scheduler, segment_bytes=20_000, file_delete_delay_ms=1000
    ) as log:
        fill(log)
        yield log


def fill(log: Log) -> None:
    """Append records of nine full segments and a part, and read them by every API."""
    start = log.log_end_offset
    for _ in range(37):
        log.append([Record(value=bytes(1000), timestamp_ms=number) for number in range(5)])
    for offset in range(start, log.log_end_offset, 3):
        assert log.get(offset) is not None
    list(log.records())
    list(log.scan())
    log.read(start).data  # noqa: B018
    log.offset_for_timestamp(3)


def let_pass(scheduler: ManualScheduler) -> None:
    """Let the delay of deletions pass."""
    scheduler.clock.advance(2000)
    scheduler.run_due()


def test_retention_frees_space_at_once(
    directory: Path, log: Log, scheduler: ManualScheduler
) -> None:
    """DUR-6: unlinked segments that were read before are neither mapped nor open."""
    gc.disable()
    try:
        for _ in range(3):
            log.delete_records(log.log_end_offset - 5)
            let_pass(scheduler)
            assert held(directory) == []
            assert len(log.segments()) <= 2
            fill(log)
    finally:
        gc.enable()


def test_truncation_frees_space_at_once(
    directory: Path, log: Log, scheduler: ManualScheduler
) -> None:
    """DUR-6: removed segments, and the old file of the cut segment, are released."""
    log.truncate_to(42)
    let_pass(scheduler)
    assert held(directory) == []
    log.truncate_fully_and_start_at(100)
    let_pass(scheduler)
    assert held(directory) == []


def test_reader_of_a_deleted_segment_keeps_only_what_it_reads(tmp_path: Path) -> None:
    """DUR-6: a slice of a deleted segment is read to its end; then the space is free."""
    settings = LogConfig(segment_bytes=20_000, file_delete_delay_ms=1000, retention_ms=-1)
    with manual_manager(tmp_path, config=ManagerConfig(log=settings)) as manager:
        manager.create_topic("orders")
        log = manager.log("orders")
        fill(log)
        fetched, record = log.read(0, 10_000), log.get(60)
        assert record is not None
        log.delete_records(150)
        let_pass(scheduler_of(manager))
        files = set(held(log.directory))
        assert len(files) == 2
        assert manager.health().held_bytes > 0
        assert len(list(fetched.records())) >= 5
        assert record.value == bytes(1000)
        del fetched, record
        assert held(log.directory) == []
        assert manager.health().held_bytes == 0


def test_compaction_frees_space(tmp_path: Path) -> None:
    """DUR-6: segments that were cleaned away are released, although only other ones are read."""
    config = ManagerConfig.from_properties(
        {"log.segment.bytes": "65536", "log.segment.delete.delay.ms": "0"}
    )
    chance = random.Random(6)
    with LogManager([tmp_path], config) as manager:
        manager.create_topic("t", 1, {"cleanup.policy": "compact"})
        log = manager.log("t", 0)
        for _ in range(5):
            for _ in range(20):
                log.append_lists(
                    [b"%d" % chance.randrange(50) for _ in range(50)], [bytes(200)] * 50
                )
            manager.compact("t", 0)
            assert len(list(log.records())) >= 50
        # The deleting thread may still have work; all that it has unlinked must be released.
        assert held(tmp_path) == []


@pytest.fixture(name="bounded")
def fixture_bounded(tmp_path: Path) -> Iterator[Path]:
    """A file system of 48 MB."""
    target = tmp_path / "bounded"
    target.mkdir()
    mount = shutil.which("mount")
    if os.geteuid() != 0 or mount is None:
        pytest.skip("NOT TESTED: only root can mount a file system of its own")
    command = [mount, "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(target)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("NOT TESTED: this system lets nobody mount")
    try:
        yield target
    finally:
        gc.collect()
        subprocess.run(["umount", str(target)], check=True)


def test_log_with_retention_never_fills_its_file_system(bounded: Path) -> None:
    """DUR-6: ten times its size is written, read and deleted, and the space is free again."""
    scheduler = ManualScheduler(ManualClock())
    with manual_log(
        bounded / "t-0",
        scheduler=scheduler,
        segment_bytes=1 << 20,
        retention_bytes=4 << 20,
        file_delete_delay_ms=1000,
    ) as log:
        for _ in range(480):
            first = log.append([Record(value=os.urandom(100_000)) for _ in range(10)]).first_offset
            assert log.get(first + 9) is not None
            assert len(list(log.records(max(first - 20, log.log_start_offset)))) >= 10
            log.apply_retention()
            let_pass(scheduler)
            facts = os.statvfs(bounded)
            used = (facts.f_blocks - facts.f_bfree) * facts.f_frsize
            assert used < 16 << 20
