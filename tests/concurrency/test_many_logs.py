"""Many threads, many logs, few of them open: nothing is lost, doubled, or late."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

from kafkalog import LogConfig, LogManager, ManagerConfig, Record
from kafkalog.log.log import partition_of
from tests.support.descriptors import descriptors_up_to

LOGS = 60
THREADS = 4
APPENDS = 180
# The lowest limit of logs with open files: that of a process with few descriptors.
OPEN_LOGS = 16
FEW_DESCRIPTORS = 128
CONFIG = ManagerConfig(
    log=LogConfig(
        segment_bytes=4_000,
        index_interval_bytes=200,
        segment_index_bytes=240,
        message_timestamp_after_max_ms=2**62,
        open_files_max=4,
        mappings_max=4,
    )
)


def run_all(actions: list[Callable[[], None]]) -> list[BaseException]:
    """Run actions in threads, all begun at once; return what they raised."""
    failures: list[BaseException] = []
    start = threading.Barrier(len(actions))

    def run(action: Callable[[], None]) -> None:
        start.wait(timeout=30)
        try:
            action()
        except BaseException as error:  # noqa: BLE001 - raised by the test
            failures.append(error)

    threads = [threading.Thread(target=run, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    return failures


def test_many_logs_few_open_keep_the_order_of_each_thread(tmp_path: Path) -> None:
    """Writers and readers use logs while they are released and reopened."""
    with descriptors_up_to(FEW_DESCRIPTORS):
        manager = LogManager([tmp_path / "a", tmp_path / "b"], CONFIG)
    with manager:
        manager.create_topic("orders", LOGS)
        done = threading.Event()

        def write(thread: int) -> None:
            chance = Random(thread)
            for number in range(APPENDS):
                value = b"%d.%d" % (thread, number)
                log = manager.log("orders", chance.randrange(LOGS))
                log.append([Record(value=value)])
                if number % 20 == 0:
                    log.flush()

        def read() -> None:
            chance = Random(99)
            while not done.is_set():
                log = manager.log("orders", chance.randrange(LOGS))
                end = log.log_end_offset
                offsets = [record.offset for record in log.records()]
                assert list(range(len(offsets))) == offsets
                assert end <= len(offsets)

        failures: list[BaseException] = []
        reading = threading.Thread(target=lambda: failures.extend(run_all([read, read])))
        reading.start()
        failures += run_all([partial(write, thread) for thread in range(THREADS)])
        done.set()
        reading.join(timeout=120)
        assert not reading.is_alive()
        assert [] == failures
        open_count = sum(
            not partition_of(manager.log("orders", number)).idle_files.is_released
            for number in range(LOGS)
        )
        assert open_count <= OPEN_LOGS + THREADS
        seen = all_values(manager)
    for thread in range(THREADS):
        mine = sorted(
            int(value.partition(b".")[2])
            for values in seen
            for value in values
            if value.startswith(b"%d." % thread)
        )
        assert list(range(APPENDS)) == mine
    for values in seen:
        for thread in range(THREADS):
            order = [int(v.partition(b".")[2]) for v in values if v.startswith(b"%d." % thread)]
            assert sorted(order) == order
    with LogManager([tmp_path / "a", tmp_path / "b"], CONFIG) as manager:
        assert seen == all_values(manager)
        assert all(manager.log("orders", number).recovery_report.clean for number in range(LOGS))


def all_values(manager: LogManager) -> list[list[bytes]]:
    """Return the values of every log."""
    return [
        [record.value or b"" for record in manager.log("orders", number).records()]
        for number in range(LOGS)
    ]
