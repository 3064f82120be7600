"""A log on a simulated disk with its model, and the search through its crashes.

`Rig` does the same thing to a log and to a `LogModel`. `explore` runs a scenario again and again,
lets the power go at its first, second, third ... changing call, and reopens what each of a number
of legal crash states left: read-only, for writing, in order after that, after a second crash, and
after a crash that interrupts the opening itself.

Thread-safety: none; background tasks run when the rig runs them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import kafkalog
from kafkalog import Clock, LogConfig, Record
from kafkalog.errors import DiskFullError, KafkaLogError
from tests.support.manual_time import START_MS, ManualClock, ManualScheduler
from tests.support.model import Doubt, LogModel, RecordFact, Seen, observe, record_fact
from tests.support.shares import calls
from tests.support.simulated_disk import CrashChoice, PowerCut, SimulatedDisk

__all__ = [
    "ALONE",
    "INSIDE",
    "MANAGER_CALL_STEP",
    "MANY_STATES",
    "PLACES",
    "Crash",
    "LogSetup",
    "Rig",
    "Scenario",
    "crashes",
    "explore",
    "small_config",
    "verify_once",
    "verify_reopening",
    "with_zeros_ahead",
]

# Crash states of each moment; the quick run takes 3 of them, the slow one the others. 30 take a
# core 20 minutes.
GATE_STATES = 6
MANY_STATES = int(os.environ.get("KAFKALOG_CRASH_STATES", GATE_STATES))
# Every third state is crashed once more while it is opened; each one where more are asked for.
DOUBLE_CRASH_STEP = 3 if MANY_STATES <= GATE_STATES else 1
# Of many states every third moment is taken by a run.
MOMENT_STEP = 3
# Of a manager's calls, which are many hundred, every sixth one is the last, or fails.
MANAGER_CALL_STEP = 6
# More changing calls than an opening makes where there is little to recover.
OPENING_CALLS = 24
META_PROPERTIES = b"version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\nnode.id=1\n"


@dataclass(frozen=True, slots=True)
class LogSetup:
    """The paths and the configuration of a log."""

    name: str
    directory: Path
    config: LogConfig

    def new_disk(self, clock: Clock | None = None) -> SimulatedDisk:
        """Return a disk with what surrounds the partition."""
        disk = SimulatedDisk(clock=clock)
        disk.make_durable(self.directory.parent)
        if self.directory.parent.name == "data":
            handle = disk.open(self.directory.parent / "meta.properties", create=True)
            handle.pwrite(META_PROPERTIES, 0)
            handle.close()
        disk.make_durable()
        return disk


def small_config(**changes: object) -> LogConfig:
    """Return settings under which a few records fill a segment and its indexes."""
    settings: dict[str, object] = {
        "segment_bytes": 600,
        "index_interval_bytes": 100,
        "segment_index_bytes": 64,
        "batch_bytes": 200,
        "message_timestamp_after_max_ms": 2**62,
    }
    return LogConfig(**(settings | changes))  # type: ignore[arg-type]


def with_zeros_ahead(config: LogConfig) -> LogConfig:
    """Return settings under which a segment is as large as it may become, and zeros lie ahead."""
    return config.replace(preallocate=True, preallocate_zero_bytes=250)


ALONE = LogSetup("alone", Path("/alone/orders-0"), small_config())
INSIDE = LogSetup(
    "inside",
    Path("/data/orders-0"),
    with_zeros_ahead(small_config()),
)
PLACES = (ALONE, INSIDE)


class Rig:
    """
    A log and its model.

    Attributes:
        disk, place, model: those of the constructor.
        scheduler: runs the log's background tasks when `work` is called.
        log: the open log; None while it is closed.
        serial: number of records made so far.
    """

    def __init__(
        self, place: LogSetup, disk: SimulatedDisk | None = None, model: LogModel | None = None
    ) -> None:
        self.place = place
        self.disk = place.new_disk() if disk is None else disk
        self.model = LogModel() if model is None else model
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.opened: kafkalog.Log | None = None
        self.serial = 0

    @property
    def log(self) -> kafkalog.Log:
        """The open log."""
        assert self.opened is not None
        return self.opened

    def open(self, *, read_only: bool = False) -> kafkalog.Log:
        """Open the log."""
        log = kafkalog.open_log(
            self.place.directory,
            config=self.place.config,
            read_only=read_only,
            clock=self.clock,
            scheduler=self.scheduler,
            filesystem=self.disk,
        )
        self.opened = log
        return log

    def records(self, count: int, size: int = 20) -> list[Record]:
        """Return records that no other append of this rig has."""
        made = []
        for _ in range(count):
            self.serial += 1
            body = b"%d." % self.serial
            made.append(
                Record(
                    key=b"key %d" % (self.serial % 5),
                    value=body + bytes(97 + self.serial % 26 for _ in range(size)),
                    timestamp_ms=START_MS + 10 * self.serial,
                    headers=[("serial", body)] if self.serial % 3 == 0 else (),
                )
            )
        return made

    def append(self, count: int = 1, size: int = 20, *, durable: bool = False) -> None:
        """Append records; in doubt until the call returns, gone where it raises a typed error."""
        records = self.records(count, size)
        facts = tuple(
            RecordFact(offset, r.timestamp_ms, r.key, r.value, tuple(r.headers))
            for offset, r in enumerate(records, start=self.log.log_end_offset)
        )
        doubt = self._begin(Doubt("append", records=facts))
        try:
            self.log.append(records, wait="durable" if durable else "written")
        except KafkaLogError:
            # Refused: none of it is kept. If it is in the log nevertheless, only the wait failed.
            if self.log.log_end_offset > self.model.end_offset:
                self.model.append(facts)
                self.model.doubts.remove(doubt)
            elif not self.is_offline:
                self.model.doubts.remove(doubt)
            raise
        self.model.doubts.remove(doubt)
        self.model.append(facts)
        # An append of nothing waits for nothing.
        if durable and facts:
            self.model.became_durable(self.model.end_offset)

    @property
    def is_offline(self) -> bool:
        """True if the log refuses writes after a failure."""
        return self.log.offline_error is not None

    def flush(self) -> None:
        """Flush; afterwards all is durable."""
        self.log.flush()
        self.model.became_durable(self.model.end_offset)

    def roll(self) -> None:
        """Roll."""
        self.log.roll()

    def work(self, duration_ms: int = 0) -> None:
        """Run the background tasks that are due."""
        self.scheduler.advance(duration_ms)

    def truncate_to(self, offset: int) -> None:
        """Truncate, in doubt until it returns; the batch that holds `offset` goes as a whole."""
        if offset >= self.model.end_offset:
            assert self.log.truncate_to(offset) == self.model.end_offset
            return
        if offset < self.model.start_offset:
            doubt = self._begin(Doubt("restart", offset))
            self.log.truncate_to(offset)
            self.model.restart_at(offset)
        else:
            held = next(iter(self.log.batches(offset)), None)
            base = offset if held is None else min(held.header.base_offset, offset)
            doubt = self._begin(Doubt("truncate", base))
            self.log.truncate_to(offset)
            self.model.truncate_to(offset, base)
        self.model.doubts.remove(doubt)

    def restart_at(self, offset: int) -> None:
        """Truncate fully, in doubt until it returns."""
        doubt = self._begin(Doubt("restart", offset))
        self.log.truncate_fully_and_start_at(offset)
        self.model.doubts.remove(doubt)
        self.model.restart_at(offset)

    def delete_before(self, offset: int) -> None:
        """Move the log start, in doubt until it returns; where a disk is full, to a segment."""
        bases = {segment.base_offset for segment in self.log.segments()}
        doubt = self._begin(Doubt("delete", offset))
        try:
            self.log.delete_records(offset)
        except DiskFullError:
            reached = self.log.log_start_offset
            assert reached in bases | {self.model.start_offset, offset}
            self._begin(Doubt("delete", reached))
            raise
        self.model.doubts.remove(doubt)
        self.model.delete_before(offset)

    def retain(self, now_ms: int) -> int:
        """Apply retention, in doubt until it returns; return how many segments left."""
        explained = self.log.explain_retention(now_ms=now_ms)
        ends = [each.segment.end_offset for each in explained if each.is_due]
        start_offset = max([*ends, self.model.start_offset])
        active_base, waiting = self.log.segments()[-1].base_offset, self.disk.faults_waiting
        doubt = self._begin(Doubt("delete", start_offset))
        deletions = self.log.apply_retention(now_ms=now_ms)
        if self.disk.faults_waiting < waiting and self.log.log_start_offset == active_base:
            # No space to roll: the other segments were deleted to free some.
            start_offset = active_base
        self.model.doubts.remove(doubt)
        self.model.delete_before(start_offset)
        return len(deletions)

    def close(self) -> None:
        """Close in order; afterwards all is durable."""
        self.log.close()
        self.opened = None
        self.model.became_durable(self.model.end_offset)

    def release(self) -> None:
        """Close in any state, so that nothing of this rig is left in the process."""
        self.disk.clear_faults()
        log, self.opened = self.opened, None
        if log is not None:
            with contextlib.suppress(PowerCut, KafkaLogError):
                log.close()

    def go_on_from(self, other: Rig) -> None:
        """Make records that `other` has not made."""
        self.serial = other.serial

    def note_durable(self) -> None:
        """Record the durable offset that the log reports, at the moment of a crash."""
        cutting = any(doubt.kind in ("truncate", "restart") for doubt in self.model.doubts)
        if self.opened is not None and not cutting:
            self.model.became_durable(self.opened.durable_offset)

    def _begin(self, doubt: Doubt) -> Doubt:
        self.model.doubts.append(doubt)
        return doubt


class Scenario:
    """A scenario to crash in: `prepare` leaves files on the disk, `run` is interrupted."""

    def prepare(self, rig: Rig) -> None:
        """Bring the log to where the scenario begins."""

    def run(self, rig: Rig) -> None:
        """Do what is to be interrupted."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Crash:
    """
    One state that a crash in the middle of a scenario may leave.

    Attributes:
        number: the changing call at which the power went.
        rig: the log and its model at that moment.
        choice: what survived.
        disk: as the next start finds it.
    """

    number: int
    rig: Rig
    choice: CrashChoice
    disk: SimulatedDisk

    def failure_context(self) -> contextlib.AbstractContextManager[None]:
        """Return a context that adds the crash to a failure inside."""
        moment = f"{self.rig.place.name}, crash at call {self.number}, {self.choice}"
        return _with_moment(moment, self.rig.disk)

    @contextlib.contextmanager
    def reopened(self) -> Iterator[Rig]:
        """Open the remaining files; a failure inside names its crash."""
        with self.failure_context():
            rig = Rig(self.rig.place, self.disk)
            rig.open()
            yield rig
            rig.release()


def crashes(scenario: Scenario, place: LogSetup, *, limit: int, beyond: int = 0) -> Iterator[Crash]:
    """
    Crash a scenario at each changing call; yield up to `limit` states of each crash.

    Without those that a limit of `beyond` gives, which another test takes; with it a share of the
    calls is taken (`shares`).
    """
    for number in calls(2000, MOMENT_STEP) if beyond else range(1, 2000):
        rig = Rig(place)
        scenario.prepare(rig)
        rig.disk.crash_at(number)
        finished = False
        with contextlib.suppress(PowerCut):
            scenario.run(rig)
            finished = True
        rig.note_durable()
        for choice, disk in rig.disk.crash_states(limit, seed=number, beyond=beyond):
            yield Crash(number, rig, choice, disk)
        rig.release()
        if finished:
            return
    raise AssertionError("the scenario does not end")


def explore(scenario: Scenario, place: LogSetup, *, limit: int, beyond: int = 0) -> tuple[int, int]:
    """
    Crash a scenario at each changing call, and reopen up to `limit` states of each crash.

    Arguments as for `crashes`.

    Returns:
        How many moments of crash there were, and how many states, those that came again too.
    """
    moments = states = 0
    seen: set[tuple[bytes, str]] = set()
    for crash in crashes(scenario, place, limit=limit, beyond=beyond):
        moments = crash.number
        states += 1
        with crash.failure_context():
            second = None
            if (moments + states) % DOUBLE_CRASH_STEP == 0:
                second = _crash_while_opening(place, crash.disk.crash(), seed=moments + states)
            verify_once(place, crash.disk, crash.rig.model, seen, indexes_written=True)
            if second is not None:
                with _with_moment("and crashed while it was opened", second):
                    verify_once(place, second, crash.rig.model, seen, indexes_written=True)
    return moments, states


def verify_once(
    place: LogSetup,
    disk: SimulatedDisk,
    model: LogModel,
    seen: set[tuple[bytes, str]],
    *,
    indexes_written: bool = False,
) -> None:
    """
    Reopen a disk, unless one was that was the same to the byte, and promised the same.

    Nearly half of all states are: a crash one call later mostly leaves what one before it may.
    """
    state = disk.fingerprint(), repr(model)
    if state not in seen:
        seen.add(state)
        verify_reopening(place, disk, model, indexes_written=indexes_written)


def _crash_while_opening(place: LogSetup, disk: SimulatedDisk, *, seed: int) -> SimulatedDisk:
    """Open what a crash left, cut the power at some call of it, and return what that left."""
    random = Random(seed)
    rig = Rig(place, disk)
    disk.crash_at(random.randint(1, OPENING_CALLS))
    with contextlib.suppress(PowerCut):
        rig.open()
    states = [state for _, state in disk.crash_states(8, seed=seed)]
    rig.release()
    return random.choice(states)


@contextlib.contextmanager
def _with_moment(moment: str, disk: SimulatedDisk) -> Iterator[None]:
    """Add the crash to a failure."""
    try:
        yield
    except (AssertionError, KafkaLogError, OSError, ValueError) as error:
        unsynced = "\n".join(f"  {number} {what}" for number, what in disk.unsynced())
        error.add_note(f"{moment}\nunsynced at the crash:\n{unsynced}")
        raise


def verify_reopening(
    place: LogSetup, disk: SimulatedDisk, model: LogModel, *, indexes_written: bool = False
) -> None:
    """
    Reopen a disk after a crash: legal, the same read-only, fit for use, clean afterwards.

    `indexes_written` means that no call failed before: a clean close left whole index files.
    """
    rig = Rig(place, disk, model.copy())
    rig.serial = 1_000_000
    before = disk.fingerprint()
    read_only_seen = None
    with contextlib.suppress(kafkalog.NotALogError):
        with rig.open(read_only=True) as reader:
            read_only_seen = observe(reader)
        assert before == disk.fingerprint()
    log = rig.open()
    seen = observe(log)
    rig.model.verify(seen)
    if read_only_seen is not None:
        assert seen.records == read_only_seen.records
        assert (seen.start_offset, seen.end_offset) == read_only_seen[:2]
    assert log.durable_offset <= log.log_end_offset
    _verify_raising(log, seen.records)
    _verify_look_ups(log, seen)
    if indexes_written and log.recovery_report.clean:
        _verify_index_files(log)
    rig.model.continue_from(seen)
    rig.append(2, durable=True)
    rig.append(3, 120)
    assert rig.model.served() == [record_fact(r) for r in log.records(on_corrupt="skip")]
    _verify_second_crash(place, disk.crash(CrashChoice("nothing")), rig.model)
    rig.close()
    log = rig.open()
    assert log.recovery_report.clean
    assert not log.recovery_report.found_damage
    assert rig.model.served() == [record_fact(r) for r in log.records(on_corrupt="skip")]
    assert log.log_end_offset == log.durable_offset == rig.model.end_offset
    rig.release()


def _verify_raising(log: kafkalog.Log, records: Sequence[RecordFact]) -> None:
    """Reading with on_corrupt="raise" returns all, or the records before the corruption."""
    got: list[RecordFact] = []
    try:
        got.extend(record_fact(record) for record in log.records())
    except kafkalog.CorruptRecordError:
        first = min(corrupt_range.first_offset for corrupt_range in log.corrupt_ranges())
        assert [fact for fact in records if fact.offset < first] == got
    else:
        assert list(records) == got


def _verify_look_ups(log: kafkalog.Log, seen: Seen) -> None:
    """For any indexes after a crash, look-ups find the records that a full read finds."""
    if seen.corrupt_ranges:
        return
    latest = -1
    for number, fact in enumerate(seen.records):
        rises, latest = fact.timestamp_ms > latest, max(latest, fact.timestamp_ms)
        if number % 3 and fact is not seen.records[-1]:
            continue
        record = log.get(fact.offset)
        assert record is not None
        assert fact == record_fact(record)
        found = log.offset_for_timestamp(fact.timestamp_ms)
        assert found is not None
        assert not rises or fact.offset == found.offset
    assert log.offset_for_timestamp(latest + 1) is None


def _verify_index_files(log: kafkalog.Log) -> None:
    """If the marker of a clean shutdown is there, a broker trusts the indexes."""
    assert not log.recovery_report.rebuilt
    for segment in log.segments()[:-1]:
        for index in (segment.offset_index, segment.time_index):
            assert len(index.view) >= 0
            assert not index.was_rebuilt, index.path


def _verify_second_crash(place: LogSetup, disk: SimulatedDisk, model: LogModel) -> None:
    rig = Rig(place, disk)
    log = rig.open()
    seen = observe(log)
    kept = [fact for fact in model.served() if fact.offset < model.durable_offset]
    assert kept == list(seen.records[: len(kept)])
    assert list(seen.records) == model.served()[: len(seen.records)]
    rig.release()
