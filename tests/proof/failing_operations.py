"""Operations of the library in which one system call fails, and what has to hold afterwards.

Runs in a separate process with `failing_calls.c` preloaded: `python -m
tests.proof.failing_operations FOLDER SECONDS JOB...`, a job is OPERATION,FAILURE,FIRST,STEP,MOST.
It lets call FIRST fail, then FIRST + STEP and so on, until an operation passes untouched or MOST
were tried, and prints lines of JSON: for each call, each broken promise, and the end of each job.
Everything runs on this thread, so that the n-th call is the same one in every run.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import faulthandler
import json
import logging
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import kafkalog
from kafkalog import KafkaLogError, LogManager, ManagerConfig, Record
from kafkalog.cleaner.compaction import compact_log
from kafkalog.files.posix import PosixFileSystem
from kafkalog.log.conversion.single_log import convert_log
from tests.recovery.scenarios import SCENARIOS
from tests.recovery.test_fail_every_nth_io import check_open_log
from tests.support.crash_rig import LogSetup, Rig, Scenario, small_config
from tests.support.managers import SMALL_LOG, manual_manager, scheduler_of
from tests.support.manual_time import START_MS, ManualClock, ManualScheduler
from tests.support.model import observe, record_fact

__all__ = ["FAILURES", "OPERATIONS"]

WRITE, SYNC, OPEN, RENAME, REMOVE, TRUNCATE, READ, FOLDER, MAP = (1 << bit for bit in range(9))
ALL = 2 * MAP - 1
ONCE, FOREVER, SHORT, HALF = range(4)
CASE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Failure:
    """Failure of the n-th call, of the kinds in `kinds`; `is_hidden`: no caller may notice it."""

    kinds: int
    error: int
    way: int = ONCE
    is_hidden: bool = False


FAILURES: dict[str, Failure] = {
    "EIO": Failure(ALL, errno.EIO),
    "EIO-from-then-on": Failure(ALL & ~READ & ~MAP, errno.EIO, FOREVER),
    "ENOSPC-after-half": Failure(WRITE, errno.ENOSPC, HALF),
    "ENOSPC": Failure(WRITE | FOLDER | TRUNCATE | SYNC, errno.ENOSPC),
    "EDQUOT-from-then-on": Failure(WRITE | FOLDER, errno.EDQUOT, FOREVER),
    "EINTR": Failure(WRITE | READ | OPEN | SYNC, errno.EINTR, is_hidden=True),
    "short": Failure(WRITE | READ, 0, SHORT, is_hidden=True),
}


class Library:
    """The preloaded library."""

    def __init__(self, folder: Path) -> None:
        self._calls = ctypes.CDLL(None)
        self._calls.failing_watch(str(folder).encode())

    def arm(self, failure: Failure, number: int) -> None:
        """Let the n-th call from now fail."""
        self._calls.failing_arm(
            failure.kinds, ctypes.c_long(number), failure.error, int(failure.way)
        )

    def disarm(self) -> None:
        """Let all calls work."""
        self._calls.failing_arm(0, ctypes.c_long(0), 0, 0)

    def has_failed(self) -> bool:
        """Return whether the armed call came."""
        return bool(self._calls.failing_happened())


class RealDisk(PosixFileSystem):
    """The machine's disk with what the rig of the crash tests asks of a simulated one."""

    __slots__ = ("library",)

    def __init__(self, library: Library) -> None:
        super().__init__()
        self.library = library

    @property
    def faults_waiting(self) -> int:
        """Return 1 until the armed call came."""
        return int(not self.library.has_failed())

    def clear_faults(self) -> None:
        """Let all calls work."""
        self.library.disarm()

    def unsynced(self) -> list[tuple[int, str]]:
        """Return nothing: no power is cut."""
        return []


class Operation:
    """One operation: `prepare` and `check` run pause_cleaning, in `run` a call fails."""

    def __init__(self, folder: Path, library: Library) -> None:
        self.folder = folder
        self.library = library

    def prepare(self) -> None:
        """Bring a directory to where the operation begins."""

    def run(self) -> None:
        """Do what a call of fails."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise AssertionError unless what was acknowledged is there."""
        raise NotImplementedError


class OpenKilled(Scenario):
    """Opens a log whose process was killed, with a torn tail and stale files."""

    def prepare(self, rig: Rig) -> None:
        rig.open()
        rig.append(9, 90)
        rig.flush()
        rig.append(2)
        directory = rig.place.directory
        aside = directory.with_name("aside")
        shutil.copytree(directory, aside)
        rig.release()
        shutil.rmtree(directory)
        aside.rename(directory)
        last = max(directory.glob("*.log"))
        with last.open("ab") as file:
            file.write(b"\0\0\0\0\0\0\0\x0btorn")
        (directory / "00000000000000000000.log.cleaned").touch()

    def run(self, rig: Rig) -> None:
        rig.open()
        rig.append(1)
        rig.flush()
        rig.close()


class Scenarios(Operation):
    """A scenario of the crash tests on the real disk."""

    def __init__(self, folder: Path, library: Library, make: type[Scenario]) -> None:
        super().__init__(folder, library)
        self.scenario = make()

    def prepare(self) -> None:
        place = LogSetup("real", self.folder / "orders-0", small_config())
        self.disk = cast("Any", RealDisk(self.library))
        self.rig = Rig(place, self.disk)
        self.scenario.prepare(self.rig)

    def run(self) -> None:
        self.scenario.run(self.rig)

    def check(self) -> None:
        rig, log = self.rig, self.rig.opened
        if log is not None and not log.is_closed and not log.is_read_only:
            assert log.durable_offset <= log.log_end_offset
            check_open_log(rig)
        rig.release()
        again = Rig(rig.place, self.disk, rig.model.copy())
        again.go_on_from(rig)
        seen = observe(again.open())
        again.model.verify(seen)
        again.model.continue_from(seen)
        again.append(3, durable=True)
        assert again.model.served() == [record_fact(r) for r in again.log.records()]
        again.close()
        assert again.open().recovery_report.clean
        assert again.model.served() == [record_fact(r) for r in again.log.records()]
        again.close()


def quiet_log(directory: Path, **settings: Any) -> kafkalog.Log:
    """Open a log whose clock does not advance."""
    clock = ManualClock()
    config = small_config(**settings)
    return kafkalog.open_log(
        directory, config=config, clock=clock, scheduler=ManualScheduler(clock)
    )


class Compact(Operation):
    """Compaction of a log of many segments."""

    def prepare(self) -> None:
        self.latest: dict[bytes, bytes] = {}
        self.log = self._open()
        for number in range(40):
            key, value = b"key %d" % (number % 7), b"value %d" % number * 4
            self.log.append([Record(key=key, value=value, timestamp_ms=START_MS)], wait="durable")
            self.latest[key] = value

    def _open(self) -> kafkalog.Log:
        return quiet_log(self.folder / "orders-0", cleanup_policy="compact", segment_bytes=400)

    def run(self) -> None:
        compact_log(self.log, include_active=True)
        self.log.close()

    def check(self) -> None:
        with contextlib.suppress(KafkaLogError):
            self.log.close()
        for _ in range(2):
            with self._open() as log:
                assert 40 == log.log_end_offset
                assert self.latest == {r.key: r.value for r in log.records()}
                compact_log(log, include_active=True)
                assert self.latest == {r.key: r.value for r in log.records()}


class Convert(Operation):
    """Conversion of a log of format v1, into a new directory."""

    in_place = False

    def prepare(self) -> None:
        self.source = self.folder / "orders-0"
        with quiet_log(self.source, message_format_version="0.10.2") as log:
            for number in range(20):
                log.append([Record(value=b"%d" % number * 9, timestamp_ms=START_MS)])
        self.content = self._read(self.source)

    @staticmethod
    def _read(directory: Path) -> list[tuple[int, bytes | None]]:
        with kafkalog.open_log(directory, read_only=True) as log:
            return [(record.offset, record.value) for record in log.records()]

    def run(self) -> None:
        if self.in_place:
            convert_log(self.source, in_place=True)
        else:
            convert_log(self.source, self.folder / "new-0")

    def check(self) -> None:
        assert self.content == self._read(self.source)
        if self.in_place:
            with quiet_log(self.source) as log:
                assert 20 == log.log_end_offset
            convert_log(self.source, in_place=True)
            assert self.content == self._read(self.source)
        else:
            convert_log(self.source, self.folder / "other-0")
            assert self.content == self._read(self.folder / "other-0")


class ConvertInPlace(Convert):
    """The same in place."""

    in_place = True


class Managed(Operation):
    """A manager of two data directories with a topic of records that were durable."""

    def prepare(self) -> None:
        self.directories = [self.folder / name for name in "ab"]
        for directory in self.directories:
            directory.mkdir()
        self.durable: dict[tuple[str, int], list[bytes]] = {}
        self.may_be_gone: set[str] = set()
        self.must_be_there: set[str] = set()
        self.manager = self._open()
        self.create("t")
        for partition in (0, 1):
            self.append("t", partition, 3)
        self.begin()

    def begin(self) -> None:
        """Prepare what this operation needs besides."""

    def _open(self) -> LogManager:
        return manual_manager(*self.directories)

    def create(self, topic: str) -> None:
        """Create a topic, which is there once the call returned."""
        self.manager.create_topic(topic, 2)
        self.must_be_there.add(topic)

    def append(self, topic: str, partition: int, count: int) -> None:
        """Append records and wait until they are durable."""
        values = self.durable.setdefault((topic, partition), [])
        for _ in range(count):
            value = b"%s-%d-%d" % (topic.encode(), partition, len(values))
            self.manager.log(topic, partition).append([Record(value=value)], wait="durable")
            values.append(value)

    def let_time_pass(self, duration_ms: int) -> None:
        """Run the background tasks of so much time."""
        scheduler_of(self.manager).advance(duration_ms)

    def values(self, topic: str, partition: int) -> list[bytes]:
        """Return what readers of committed records see."""
        log = self.manager.log(topic, partition)
        return [record.value or b"" for record in log.records(isolation="read_committed")]

    def check(self) -> None:
        with contextlib.suppress(KafkaLogError):
            self.manager.close()
        for _ in range(2):
            self.manager = self._open()
            topics = set(self.manager.topics())
            assert self.must_be_there - self.may_be_gone <= topics, topics
            for (topic, partition), values in self.durable.items():
                if topic in topics and partition in self.manager.topics()[topic]:
                    found = self.values(topic, partition)
                    # One more may be there: it was appended, only the waiting failed.
                    assert values == found[: len(values)], (topic, partition, values, found)
                else:
                    assert topic in self.may_be_gone, f"{topic}-{partition} is gone"
            self.check_more()
            self.manager.close()

    def check_more(self) -> None:
        """Check what this operation promises besides."""


class CreateTopics(Managed):
    """Topics made, and filled."""

    def run(self) -> None:
        self.create("u")
        self.append("u", 1, 2)
        self.create("v")


class DeleteTopics(Managed):
    """A topic deleted; once the call returned, it stays so."""

    is_gone = False

    def run(self) -> None:
        self.may_be_gone.add("t")
        self.manager.delete_topic("t")
        self.is_gone = True
        self.let_time_pass(120_000)

    def check_more(self) -> None:
        assert not (self.is_gone and "t" in self.manager.topics())


class Checkpoints(Managed):
    """Appends, and the tasks of two minutes: flushes, checkpoints, retention."""

    def run(self) -> None:
        for _ in range(3):
            self.append("t", 0, 4)
            self.let_time_pass(40_000)
        self.append("t", 1, 1)


class CloseAndStart(Managed):
    """A clean stop, a start, and another stop."""

    def run(self) -> None:
        self.manager.close()
        self.manager = self._open()
        self.append("t", 0, 1)
        self.manager.close()


class Transactions(Managed):
    """Transactions over two partitions: committed once the call returned, and never in part."""

    def _open(self) -> LogManager:
        # Time continues here: what cannot be delivered is tried again, and given up, by the clock.
        return LogManager(self.directories, ManagerConfig(log=SMALL_LOG))

    def begin(self) -> None:
        self.committed: list[bytes] = []
        self.aborted: list[bytes] = []
        self.tried: list[bytes] = []

    def run(self) -> None:
        producer = self.manager.producer(transactional_id="app", delivery_timeout_ms=2000)
        with contextlib.closing(producer):
            for number in range(3):
                name = b"transaction %d" % number
                self.tried.append(name)
                producer.begin_transaction()
                for partition in (0, 1):
                    producer.send("t", name, partition=partition)
                if number == 1:
                    self.aborted.append(name)
                    producer.abort_transaction()
                else:
                    producer.commit_transaction()
                    self.committed.append(name)

    def check_more(self) -> None:
        # The next producer of this name ends what the last one left.
        with contextlib.closing(self.manager.producer(transactional_id="app")):
            pass
        seen = [self.values("t", partition) for partition in (0, 1)]
        for name in self.tried:
            counts = {found.count(name) for found in seen}
            assert len(counts) == 1, f"{name!r} is there in part: {seen}"
            assert counts <= {0, 1}, f"{name!r} is there twice: {seen}"
        assert all(name in seen[0] for name in self.committed), (self.committed, seen)
        assert not any(name in seen[0] for name in self.aborted), (self.aborted, seen)


def on_a_log(make: type[Scenario]) -> Callable[[Path, Library], Operation]:
    """Return what makes an operation of a scenario."""
    return lambda folder, library: Scenarios(folder, library, make)


OPERATIONS: dict[str, Callable[[Path, Library], Operation]] = {
    **{name: on_a_log(make) for name, make in (SCENARIOS | {"open_torn": OpenKilled}).items()},
    "compact": Compact,
    "convert": Convert,
    "convert-in-place": ConvertInPlace,
    "create-topics": CreateTopics,
    "delete-topics": DeleteTopics,
    "checkpoints": Checkpoints,
    "close-and-start": CloseAndStart,
    "transactions": Transactions,
}


def perform(folder: Path, library: Library, name: str, failure: Failure, number: int) -> str | None:
    """Let one call fail; return what was broken, empty for nothing, None where no call failed."""
    operation = OPERATIONS[name](folder, library)
    library.disarm()
    raised: BaseException | None = None
    moment = "before"
    try:
        operation.prepare()
        moment = "in the operation"
        library.arm(failure, number)
        try:
            operation.run()
        except KafkaLogError as error:
            raised = error
        failed = library.has_failed()
        library.disarm()
        moment = "afterwards"
        if raised is not None and (failure.is_hidden or not failed):
            trace = "".join(traceback.format_exception(raised))
            return f"an error without a cause\n{trace}"
        operation.check()
        if not failed:
            return None
    except Exception:  # noqa: BLE001 - whatever it is breaks a promise
        library.disarm()
        return f"{moment}; the operation raised {raised!r}\n{traceback.format_exc()}"
    return ""


@contextlib.contextmanager
def watchdog() -> Iterator[None]:
    """End the process with a trace where a case takes too long."""
    faulthandler.dump_traceback_later(CASE_SECONDS, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def tell(**facts: object) -> None:
    """Print a line of JSON."""
    print(json.dumps(facts), flush=True)


def do_job(folder: Path, library: Library, job: str, until: float) -> None:
    """Let call after call of one operation fail."""
    name, way, *numbers = job.split(",")
    number, step, most = map(int, numbers)
    count, ended = 0, False
    while not ended and count < most and time.monotonic() < until:
        case = folder / f"{name}-{way}-{number}"
        case.mkdir()
        tell(job=job, case=number)
        with watchdog():
            found = perform(case, library, name, FAILURES[way], number)
        ended = found is None
        count += not ended
        if found:
            tell(job=job, number=number, broken=found, folder=str(case))
        else:
            shutil.rmtree(case, ignore_errors=True)
        number += step
    tell(job=job, count=count, ended=ended)


def main() -> None:
    """Do the jobs until they are done or the time has passed."""
    folder, seconds, jobs = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
    until = time.monotonic() + seconds
    logging.disable(logging.CRITICAL)
    library = Library(folder)
    for job in jobs:
        if time.monotonic() < until:
            do_job(folder, library, job, until)
    tell(done=True)


if __name__ == "__main__":
    main()
