"""Logs that are worth a cleaning, and the cleaning of one on a simulated disk, step by step.

`fill` writes what a compacted log is made of: keys again and again, tombstones, transactions that
are committed and aborted, plain and compressed batches. A `Scene` is such a log with a clean part,
whose tombstones have had their time, and a dirty part after it; each copies a log that is made
once, so that a test can take hundreds.

Thread-safety: none.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from kafkalog import AppendOrigin, CleanerConfig, Codec, KafkaLogError, Log, LogConfig, open_log
from kafkalog.cleaner.cleaning import Cleaner, CleaningResult
from kafkalog.cleaner.selection import CleanableRange
from tests.support.compaction_rules import Served, Tombstones, verify_compacted
from tests.support.crash_rig import LogSetup
from tests.support.keyed_batches import keyed_batch, marker
from tests.support.manual_time import ManualClock, ManualScheduler
from tests.support.simulated_disk import CrashChoice, PowerCut, SimulatedDisk

__all__ = ["RETENTION_MS", "Scene", "fill"]

RETENTION_MS = 60_000
CODECS = (Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.NONE, Codec.ZSTD)


def fill(
    log: Log,
    now_ms: Callable[[], int],
    *,
    batch_count: int,
    seed: int,
    first_key: int = 0,
    key_count: int = 8,
    value_bytes: int = 20,
    codecs: tuple[Codec, ...] = CODECS,
) -> None:
    """Append batches of several producers, and end their transactions."""
    random = Random(seed)
    # Others in every fill: of those before, the last batches stay, emptied.
    one, two = 2 * seed + 1, 2 * seed + 2
    sequences = {one: 0, two: 0}
    opened: set[int] = set()

    def end(producer_id: int) -> None:
        data = marker(producer_id, 0, now_ms(), abort=random.random() < 0.4)
        log.append_batches(data, origin=AppendOrigin.COORDINATOR)

    for number in range(batch_count):
        records = [
            (
                b"key %d" % random.randrange(first_key, first_key + key_count),
                None if random.random() < 0.2 else random.randbytes(value_bytes),
            )
            for _ in range(random.randint(1, 3))
        ]
        codec = codecs[number % len(codecs)]
        producer_id = random.choice((-1, -1, one, two))
        if producer_id < 0:
            log.append_batches(keyed_batch(records, now_ms(), codec=codec))
            continue
        data = keyed_batch(
            records,
            now_ms(),
            codec=codec,
            producer_id=producer_id,
            sequence=sequences[producer_id],
            transactional=True,
        )
        log.append_batches(data, origin=AppendOrigin.CLIENT)
        sequences[producer_id] += len(records)
        opened.add(producer_id)
        if random.random() < 0.5:
            end(producer_id)
            opened.discard(producer_id)
    for producer_id in sorted(opened):
        end(producer_id)


@dataclass
class Scene:
    """
    A log to be cleaned.

    Attributes:
        before: the records at the start; `seen`: the records at the last check.
        first_dirty: where the clean part ends; `end_offset`: where the active segment begins.
        first_seen: the time at which a cleaning set the horizon of clean tombstones.
    """

    place: LogSetup
    disk: SimulatedDisk
    clock: ManualClock
    first_dirty: int
    first_seen: dict[int, int]
    log: Log = field(init=False)
    end_offset: int = field(init=False)
    before: Served = field(init=False)
    seen: Served = field(init=False)

    def __post_init__(self) -> None:
        self.scheduler = ManualScheduler(self.clock)
        self.log = _opened(self.place, self.disk, self.scheduler)
        self.before = self.seen = Served.of(self.log)
        self._segments = self.log.segments()
        self.end_offset = self._segments[-1].base_offset

    @classmethod
    def made(cls, place: LogSetup) -> Scene:
        """Return a new one; the disk counts its calls from the opening on."""
        pristine, now_ms, first_dirty, first_seen = _pristine(place.name, place)
        scene = cls(
            place,
            pristine.crash(CrashChoice("nothing")),
            ManualClock(now_ms),
            first_dirty,
            dict(first_seen),
        )
        scene.disk.calls.clear()
        return scene

    def reopened(self, disk: SimulatedDisk) -> Scene:
        """Return this one as the next process finds it on a disk."""
        scene = Scene(self.place, disk, self.clock, self.first_dirty, self.first_seen)
        scene.before = self.before
        return scene

    @property
    def span(self) -> CleanableRange:
        """All that is not clean, and sealed."""
        return CleanableRange(self.first_dirty, self.end_offset)

    def clean(self, *, entries: int = 400, identity: str = "md5") -> CleaningResult:
        """Clean it, and look at each check."""
        return self.cleaner(entries, identity).clean(self.log, self.span, check=self.look)

    def cleaner(self, entries: int = 400, identity: str = "md5") -> Cleaner:
        """Return a cleaner on this clock."""
        config = CleanerConfig(hash_algorithm=identity, io_buffer_load_factor=1.0)
        return Cleaner(config, memory_bytes=24 * entries, clock=self.clock)

    def look(self) -> None:
        """See what is served, where the segments are others; what was gone must stay so."""
        segments = self.log.segments()
        if segments == self._segments:
            return
        self._segments = segments
        now = Served.of(self.log)
        self.verify(now)
        self.seen = now

    def verify(self, now: Served) -> None:
        """Hold what is served against what was at first, and what was seen since."""
        tombstones = Tombstones(
            self.clock.now_ms(), RETENTION_MS, self.first_seen, {}, self.first_dirty
        )
        verify_compacted(self.before, now, end_offset=self.end_offset, tombstones=tombstones)
        returned = now.offsets - self.seen.offsets
        assert not returned, f"offsets {sorted(returned)} were gone, and are there again"

    def release(self) -> None:
        """Close in whatever state."""
        self.disk.clear_faults()
        with contextlib.suppress(PowerCut, KafkaLogError):
            self.log.close()


def compacted_config(place: LogSetup) -> LogConfig:
    """Return settings under which a few batches fill a segment, and many segments a group."""
    return place.config.replace(
        segment_bytes=900,
        segment_index_bytes=256,
        batch_bytes=800,
        cleanup_policy=("compact",),
        delete_retention_ms=RETENTION_MS,
    )


def _opened(place: LogSetup, disk: SimulatedDisk, scheduler: ManualScheduler) -> Log:
    return open_log(
        place.directory,
        config=compacted_config(place),
        clock=scheduler.clock,
        scheduler=scheduler,
        filesystem=disk,
    )


@functools.cache
def _pristine(name: str, place: LogSetup) -> tuple[SimulatedDisk, int, int, dict[int, int]]:
    """Return a disk with a log that was cleaned and filled again, its time, and what was clean."""
    clock = ManualClock()
    disk = place.new_disk(clock)
    scheduler = ManualScheduler(clock)
    with _opened(place, disk, scheduler) as log:
        fill(log, clock.now_ms, batch_count=14, seed=1)
        log.roll()
        cleaner = Cleaner(CleanerConfig(), memory_bytes=24 * 400, clock=clock)
        first_dirty = cleaner.clean(log, CleanableRange(0, log.log_end_offset)).end_offset
        first_seen = {
            fact.offset: clock.now_ms()
            for fact in Served.of(log).records
            if fact.value is None and fact.offset < first_dirty
        }
        scheduler.advance(RETENTION_MS)
        fill(log, clock.now_ms, batch_count=14, seed=2, first_key=3)
        log.roll()
        fill(log, clock.now_ms, batch_count=2, seed=3, first_key=3)
        log.flush()
        scheduler.advance(RETENTION_MS)
    disk.make_durable()
    return disk, clock.now_ms(), first_dirty, first_seen
