"""A sink on a simulated disk, with what should be in its logs, and the moments of its commits.

Every row has a unique text, so that the logs show afterwards which rows are lost and
which are doubled. A `MomentDisk` keeps, before each changing call, what a crash there may leave:
one run of a commit gives the disks of all its crashes.

Thread-safety: none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kafkalog import LogConfig, LogManager, Record
from kafkalog._core.batch import BatchColumns, scan_batches
from kafkalog._core.status import STATUS_CODES
from kafkalog.records.append_rules import AppendRules
from kafkalog.records.batch_view import BatchView
from kafkalog.records.packing import pack_records
from kafkalog.spark.txn.model import StagedFile, TransactionId
from kafkalog.spark.txn.transaction import CommitReport, SinkOptions, SinkTransaction
from tests.support.manual_time import START_MS, ManualClock, ManualScheduler
from tests.support.simulated_disk import MUTATING, SimulatedDisk

__all__ = ["DATA", "TOPIC", "MomentDisk", "SinkRig", "new_disk"]

DATA = Path("/data")
TOPIC = "rows"
# Some twenty rows are large enough to be a segment; some forty fill its index.
SETTINGS = {
    "segment.bytes": "16384",
    "segment.index.bytes": "120",
    "index.interval.bytes": "200",
}
RULES = AppendRules.of(LogConfig(batch_bytes=160))


def new_disk() -> SimulatedDisk:
    """Return a disk with the topic, which has two partitions."""
    disk = SimulatedDisk()
    disk.make_durable(DATA)
    with manager_of(disk) as manager:
        manager.create_topic(TOPIC, 2, SETTINGS)
    return disk


def manager_of(disk: SimulatedDisk) -> LogManager:
    """Return an embedded writer's manager."""
    clock = ManualClock()
    return LogManager([DATA], clock=clock, scheduler=ManualScheduler(clock), filesystem=disk)


class MomentDisk(SimulatedDisk):
    """
    A disk that keeps what crashes before each changing call may leave.

    Attributes:
        states: disks, one for each different state; empty until `watch`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.states: list[SimulatedDisk] = []
        self._seen: set[bytes] = set()
        self._limit = 0

    @classmethod
    def of(cls, disk: SimulatedDisk) -> MomentDisk:
        """Return a disk like another one, all of which is durable."""
        made = cls()
        copy = disk.crash()
        made._root, made._files, made._sequence = copy._root, copy._files, copy._sequence
        return made

    def watch(self, limit: int) -> None:
        """Keep up to so many states of each moment from now on."""
        self._limit = limit

    def enter_call(self, name: str, path: Path | str):  # type: ignore[no-untyped-def]
        if self._limit and name in MUTATING:
            self.keep()
        return super().enter_call(name, path)

    def keep(self) -> None:
        """Keep what a crash at this moment may leave."""
        limit, self._limit = self._limit, 0
        for _choice, disk in self.crash_states(limit, seed=len(self.states)):
            fingerprint = disk.fingerprint()
            if fingerprint not in self._seen:
                self._seen.add(fingerprint)
                self.states.append(disk)
        self._limit = limit


class SinkRig:
    """
    A sink, and what it should have written.

    Attributes:
        disk: the disk.
        clock: its time.
        expected: texts of the rows that must be there, with how often; by partition.
    """

    def __init__(
        self, disk: SimulatedDisk, expected: dict[int, Counter[str]] | None = None
    ) -> None:
        self.disk = disk
        self.clock = ManualClock()
        self.expected = {0: Counter[str](), 1: Counter[str]()} if expected is None else expected

    def on(self, disk: SimulatedDisk) -> SinkRig:
        """Return the same with another disk: the next process."""
        expected = {number: Counter(texts) for number, texts in self.expected.items()}
        return SinkRig(disk, expected)

    def transaction(self, version: int, app: str = "query") -> SinkTransaction:
        """Return a transaction of a query."""
        return SinkTransaction(
            DATA,
            TransactionId.of_query(app, version),
            SinkOptions(orphan_age_ms=10**15, pause=lambda _seconds: self.clock.advance(1000)),
            filesystem=self.disk,
            clock=self.clock,
        )

    def stage(
        self, version: int, rows: Sequence[tuple[int, int]], *, app: str = "query", attempt: int = 0
    ) -> list[StagedFile]:
        """Stage rows for (partition, count) pairs, as one attempt of a task each."""
        sink = self.transaction(version, app)
        found = []
        for task, (partition, count) in enumerate(rows):
            texts = self.texts(version, task, count, app)
            file = stage_rows(sink, partition, texts, f"{task}-{attempt}")
            found.append(replace(file, task=task))
        return found

    @staticmethod
    def texts(version: int, task: int, count: int, app: str = "query") -> list[str]:
        """Return the texts of the rows of one task."""
        return [f"{app}.{version}.{task}.{row}" for row in range(count)]

    def expect(self, version: int, rows: Sequence[tuple[int, int]], *, app: str = "query") -> None:
        """Record that the rows of a transaction must be there."""
        for task, (partition, count) in enumerate(rows):
            self.expected[partition].update(self.texts(version, task, count, app))

    def commit(self, version: int, rows: Sequence[tuple[int, int]]) -> CommitReport:
        """Stage and commit; the rows must be there afterwards."""
        report = self.transaction(version).commit(self.stage(version, rows))
        self.expect(version, rows)
        return report

    def append_foreign(self, text: str) -> None:
        """Append a row by an embedded writer, without the sink."""
        with manager_of(self.disk) as manager:
            for number in (0, 1):
                manager.log(TOPIC, number).append([Record(value=text.encode())])
                self.expected[number][text] += 1

    def problems(self) -> list[str]:
        """Return what is wrong with the logs: rows lost or doubled, offsets left out, damage."""
        found = []
        for number, expected in self.expected.items():
            rows = stored_rows(self.disk, number)
            texts = Counter(text for _offset, text in rows)
            if texts != expected:
                lost, more = expected - texts, texts - expected
                found.append(f"partition {number}: lost {dict(lost)}, too many {dict(more)}")
            offsets = [offset for offset, _text in rows]
            if offsets != list(range(len(offsets))):
                found.append(f"partition {number}: offsets {offsets}")
        left = [path for path in self.disk.snapshot() if path.endswith("intent.json")]
        return found + left

    def problems_of_opening(self) -> list[str]:
        """Return what the engine finds wrong, opening what the sink left."""
        found = []
        with manager_of(self.disk) as manager:
            for number, expected in self.expected.items():
                log = manager.log(TOPIC, number)
                report = log.recovery_report
                if not report.clean or report.cut or report.corrupt_ranges or report.rebuilt:
                    found.append(f"partition {number}: {report}")
                texts = Counter((record.value or b"").decode() for record in log.records())
                if texts != expected:
                    found.append(f"partition {number}: {texts}")
        return found


def stage_rows(
    sink: SinkTransaction, partition: int, texts: Sequence[str], label: str
) -> StagedFile:
    """Stage rows for a partition, as a task does."""
    records = [
        Record(key=b"k", value=text.encode(), timestamp_ms=START_MS + row)
        for row, text in enumerate(texts)
    ]
    run = pack_records(records, RULES, START_MS)
    handle = sink.staging.create(sink.transaction, label)
    handle.pwrite(run.data, 0)
    handle.sync()
    handle.close()
    sink.staging.sync_directory_names(sink.transaction)
    sizes = [facts.size_bytes for facts in run.batches]
    return StagedFile(
        str(handle.path), TOPIC, partition, 2, len(texts), len(run.data), len(sizes), max(sizes),
        START_MS, START_MS + len(texts) - 1,
    )  # fmt: skip


def stored_rows(disk: SimulatedDisk, partition: int) -> list[tuple[int, str]]:
    """Return offset and text of each row of a partition, read without the engine's log."""
    prefix, suffix = f"{DATA}/{TOPIC}-{partition}/", ".log"
    files = {
        path: content
        for path, content in disk.snapshot().items()
        if path.startswith(prefix) and path.endswith(suffix)
    }
    found = []
    columns = BatchColumns(256)
    for path in sorted(files):
        content = files[path] or b""
        columns.clear()
        scan = scan_batches(content, columns=columns)
        assert scan.status == STATUS_CODES["OK"], f"{path}: status {scan.status}"
        starts = columns.position[: scan.count].tolist()
        for start, size in zip(starts, columns.size_bytes[: scan.count].tolist(), strict=True):
            view = BatchView(memoryview(content)[start : start + size])
            found += [(record.offset, (record.value or b"").decode()) for record in view.records()]
    return found
