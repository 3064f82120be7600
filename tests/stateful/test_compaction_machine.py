"""The four guarantees of log compaction, with cleanings between and during other operations.

A reader in the head sees every record; order stays; offsets are permanent; a reader from the start
ends with the final state, and has read every tombstone within `delete.retention.ms`. The log is on
a simulated disk: appends in three formats and four codecs, transactions, cuts, crashes, failing
calls, cleanings with maps of every size and identity, readers in the middle of a log.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import hypothesis.strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kafkalog import (
    AppendOrigin,
    CleanerConfig,
    Codec,
    KafkaLogError,
    Log,
    LogCleaningAbortedError,
    OutOfOrderSequenceError,
    Record,
    open_log,
)
from kafkalog.cleaner.cleaning import Cleaner, CleaningResult
from kafkalog.cleaner.selection import CleanableRange
from tests.support.compaction_rules import (
    Served,
    Tombstones,
    state_of,
    verify_compacted,
    verify_finished,
)
from tests.support.crash_rig import PLACES, LogSetup
from tests.support.keyed_batches import Fields, keyed_batch, marker
from tests.support.machine_runs import run_lengths
from tests.support.manual_time import ManualClock, ManualScheduler
from tests.support.reference_messages import Message, encode_set
from tests.support.simulated_disk import CrashChoice, PowerCut

# Minutes of it: KAFKALOG_COMPACTION_RUNS=5000.
RUNS = int(os.environ.get("KAFKALOG_COMPACTION_RUNS", "20"))
ROOMY = 24 * 400
KEYS = st.sampled_from((b"a", b"b", b"c", b"d", b"e", b"f" * 30))
VALUES = st.sampled_from((None, None, b"", b"1", b"22", b"3" * 60))
RECORDS = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=4)
CODECS = st.sampled_from((Codec.NONE, Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD))
KINDS = ("nothing", "all", "names", "contents", "zeros", "random", "random", "prefix", "torn")


@dataclass
class Sent:
    """A producer of transactions: what it sent, and what it has open."""

    epoch: int = 0
    sequence: int = 0
    open: list[int] = field(default_factory=list)
    batches: list[tuple[int, int, bytes]] = field(default_factory=list)


@dataclass
class Follower:
    """A reader of committed records, somewhere between the start and the head."""

    start_ms: int
    records: Iterator[Record] | None
    position: int = 0
    state: dict[bytes, bytes] = field(default_factory=dict)

    def step(self, log: Log, count: int) -> bool:
        """Read so many records; return whether it has reached the head."""
        for _ in range(count):
            if self.records is None:
                self.records = log.records(self.position, isolation="read_committed")
            record = next(self.records, None)
            if record is None:
                self.records = None
                return True
            assert record.offset >= self.position
            self.position = record.offset + 1
            if record.key is None:
                continue
            if record.value is None:
                self.state.pop(record.key, None)
            else:
                self.state[record.key] = record.value
        return False


class CompactionMachine(RuleBasedStateMachine):
    """A compacted log, and all that may become of it."""

    log: Log

    @initialize(
        place=st.sampled_from(PLACES),
        segment_bytes=st.sampled_from((400, 700)),
        retention_ms=st.sampled_from((0, 1000, 1000)),
    )
    def create(self, place: LogSetup, segment_bytes: int, retention_ms: int) -> None:
        self.clock = ManualClock()
        self.retention_ms = retention_ms
        self.config = place.config.replace(
            segment_bytes=segment_bytes,
            batch_bytes=1000,
            cleanup_policy=("compact",),
            delete_retention_ms=retention_ms,
        )
        self.place, self.disk = place, place.new_disk(self.clock)
        self.producers = {number: Sent() for number in (1, 2)}
        self.markers: dict[int, int] = {}
        self.followers: list[Follower] = []
        self.first_dirty = 0
        self.may_be_seen: dict[int, int] = {}
        self.must_be_seen: dict[int, int] = {}
        self.old_tombstones: set[bytes] = set()
        self.cleaners: dict[tuple[int, str], Cleaner] = {}
        self.open()
        self.served = Served.of(self.log)

    def open(self) -> None:
        """Open the log."""
        self.scheduler = ManualScheduler(self.clock)
        self.log = open_log(
            self.place.directory,
            config=self.config,
            clock=self.clock,
            scheduler=self.scheduler,
            filesystem=self.disk,
        )

    # Appends.

    def appended(self, records: list[Fields], *, is_decided: bool) -> None:
        """Take what was appended into what is served; all else must be as before."""
        before, self.served = self.served, Served.of(self.log)
        count = len(before.records)
        assert before.records == self.served.records[:count]
        assert records == [(fact.key, fact.value) for fact in self.served.records[count:]]
        if is_decided and before.stable_offset == before.end_offset:
            assert self.served.stable_offset == self.served.end_offset

    @rule(records=RECORDS, codec=CODECS)
    def append(self, records: list[Fields], codec: Codec) -> None:
        self.log.append_batches(keyed_batch(records, self.clock.now_ms(), codec=codec))
        self.appended(records, is_decided=True)

    @rule(batches=st.lists(st.tuples(RECORDS, CODECS), min_size=2, max_size=7))
    def append_many(self, batches: list[tuple[list[Fields], Codec]]) -> None:
        """Batches that fill a segment, or two."""
        for records, codec in batches:
            self.append(records, codec)

    @rule(
        records=st.lists(st.tuples(st.none() | KEYS, VALUES), min_size=1, max_size=3),
        magic=st.integers(0, 1),
        codec=st.sampled_from((Codec.NONE, Codec.GZIP)),
    )
    def append_old(self, records: list[Fields], magic: int, codec: Codec) -> None:
        """Messages of an old broker, which may lack a key."""
        offset = self.log.log_end_offset
        messages = [
            Message(offset + number, magic, 0, self.clock.now_ms() if magic else -1, key, value)
            for number, (key, value) in enumerate(records)
        ]
        data = encode_set(messages, codec=int(codec))
        self.log.append_batches(data, assign_offsets=False, origin=AppendOrigin.REPLICATION)
        self.appended(records, is_decided=True)
        self.old_tombstones |= {key for key, value in records if key and value is None}

    @rule(number=st.integers(1, 2), records=RECORDS, codec=CODECS)
    def send(self, number: int, records: list[Fields], codec: Codec) -> None:
        """A producer's next batch in its transaction."""
        self.send_next(number, records, codec)

    def send_next(self, number: int, records: list[Fields], codec: Codec) -> None:
        producer = self.producers[number]
        data = keyed_batch(
            records,
            self.clock.now_ms(),
            codec=codec,
            producer_id=number,
            epoch=producer.epoch,
            sequence=producer.sequence,
            transactional=True,
        )
        try:
            info = self.log.append_batches(data, origin=AppendOrigin.CLIENT)
        except OutOfOrderSequenceError:
            assert not self.must_be_known(producer), "a compaction forgot a producer"
            producer.epoch, producer.sequence, producer.batches = producer.epoch + 1, 0, []
            self.send_next(number, records, codec)
            return
        assert not info.is_duplicate
        producer.sequence += len(records)
        offsets = range(info.first_offset, info.last_offset + 1)
        producer.open += offsets
        producer.batches.append((info.first_offset, info.last_offset, data))
        self.appended(records, is_decided=False)

    def must_be_known(self, producer: Sent) -> bool:
        """Return whether the log has the last batch of a producer, emptied or not."""
        return bool(producer.batches) and producer.batches[-1][0] >= self.log.log_start_offset

    @rule(number=st.integers(1, 2))
    def send_again(self, number: int) -> None:
        """The last batch a second time: known, though its records may have been cleaned away."""
        producer = self.producers[number]
        if self.must_be_known(producer):
            first, last, data = producer.batches[-1]
            info = self.log.append_batches(data, origin=AppendOrigin.CLIENT)
            assert (first, last, True) == (info.first_offset, info.last_offset, info.is_duplicate)

    @rule(number=st.integers(1, 2), abort=st.booleans())
    def end(self, number: int, abort: bool) -> None:
        producer = self.producers[number]
        data = marker(number, producer.epoch, self.clock.now_ms(), abort=abort)
        info = self.log.append_batches(data, origin=AppendOrigin.COORDINATOR)
        self.markers.update(dict.fromkeys(producer.open, info.first_offset))
        offsets, producer.open = set(producer.open), []
        self.appended([], is_decided=False)
        assert not abort or not offsets & self.served.committed

    # Cleaning.

    @rule(
        entries=st.sampled_from((2, 3, 5, 400, 400)),
        identity=st.sampled_from(("md5", "siphash", "exact")),
        reads=st.integers(0, 3),
    )
    def clean(self, entries: int, identity: str, reads: int) -> None:
        """To its end, with followers that read during the cleaning."""
        self.cleaned(entries, identity, lambda: self.follow(reads))

    @rule(
        rolls=st.booleans(),
        entries=st.sampled_from((2, 400)),
        duration_ms=st.sampled_from((0, 500, 1000)),
    )
    def clean_all(self, rolls: bool, entries: int, duration_ms: int) -> None:
        """All of the log, or all that is sealed, some time after what came before."""
        if rolls:
            self.log.roll()
        self.scheduler.advance(duration_ms)
        self.cleaned(entries, "md5", lambda: None)

    def span(self) -> CleanableRange:
        """Return what may be cleaned, worked out from what the log serves."""
        active = self.log.segments()[-1].base_offset
        self.first_dirty = max(self.first_dirty, self.log.log_start_offset)
        return CleanableRange(
            self.first_dirty, max(self.first_dirty, min(active, self.log.last_stable_offset))
        )

    def cleaned(
        self, entries: int, identity: str, check: Callable[[], object]
    ) -> CleaningResult | None:
        """Clean; verify the served records at each check, and at the end."""
        cleaner = self.cleaners.setdefault(
            (entries, identity),
            Cleaner(
                CleanerConfig(hash_algorithm=identity, io_buffer_load_factor=1.0),
                memory_bytes=24 * entries,
                clock=self.clock,
            ),
        )
        span = self.span()
        if span.first_dirty == span.first_uncleanable:
            return None
        before = self.served
        segments = self.log.segments()
        bases = [segment.base_offset for segment in segments]

        def look() -> None:
            nonlocal segments
            if segments != self.log.segments():
                segments = self.log.segments()
                self.judge(before, span.first_uncleanable)
            check()

        try:
            result = cleaner.clean(self.log, span, check=look)
        except BaseException:
            # An interrupted cleaning may have set delete horizons.
            self.note_seen(before, span.first_uncleanable, is_sure=False)
            raise
        self.judge(before, span.first_uncleanable)
        assert span.first_dirty <= result.end_offset <= span.first_uncleanable
        # Whole segments are cleaned: one of which a part is not decided yet may wait.
        whole = max(base for base in bases if base <= span.first_uncleanable)
        if entries >= 400 and result.passes:
            assert result.end_offset >= whole
            self.verify_finished(result.end_offset)
        # If the map was full, its last batch may get no delete horizon.
        self.note_seen(before, result.end_offset, is_sure=entries >= 400)
        assert result.end_offset > span.first_dirty or whole <= span.first_dirty, "no progress"
        self.first_dirty = result.end_offset
        return result

    def tombstones(self) -> Tombstones:
        """Return the known state of tombstones."""
        return Tombstones(
            self.clock.now_ms(),
            self.retention_ms,
            self.may_be_seen,
            self.must_be_seen,
            self.first_dirty,
        )

    def judge(self, before: Served, end_offset: int) -> None:
        """Hold what is served now against what was before, and against the last look."""
        now = Served.of(self.log)
        tombstones = self.tombstones()
        verify_compacted(before, now, end_offset=end_offset, tombstones=tombstones)
        verify_compacted(self.served, now, end_offset=end_offset, tombstones=tombstones)
        self.served = now

    def verify_finished(self, end_offset: int) -> None:
        verify_finished(self.served, end_offset=end_offset, tombstones=self.tombstones())

    def note_seen(self, before: Served, end_offset: int, *, is_sure: bool) -> None:
        """Record the tombstones that a cleaning has read."""
        for fact in before.records:
            if fact.value is None and fact.offset < end_offset:
                self.may_be_seen.setdefault(fact.offset, self.clock.now_ms())
                if is_sure and fact.offset not in before.old:
                    self.must_be_seen.setdefault(fact.offset, self.clock.now_ms())

    # Cleanings that come to no end.

    @rule(number=st.integers(1, 6), entries=st.sampled_from((3, 400)))
    def abort_cleaning(self, number: int, entries: int) -> None:
        left = number

        def check() -> None:
            nonlocal left
            left -= 1
            if not left:
                raise LogCleaningAbortedError("enough")

        with contextlib.suppress(LogCleaningAbortedError):
            self.cleaned(entries, "siphash", check)
        assert not [name for name in self.disk.list(self.place.directory) if "cleaned" in name]

    @rule(
        number=st.integers(1, 120),
        error_number=st.sampled_from((errno.EIO, errno.ENOSPC)),
        entries=st.sampled_from((3, 400)),
    )
    def fail_in_cleaning(self, number: int, error_number: int, entries: int) -> None:
        """A call of the disk fails: nothing is lost, and another cleaning does what is left."""
        self.disk.fail_at(number, error_number)
        before = self.served
        with contextlib.suppress(KafkaLogError):
            self.cleaned(entries, "md5", lambda: None)
        self.disk.clear_faults()
        self.come_back(before, lost_from=None)

    @rule(
        number=st.integers(1, 60),
        kind=st.sampled_from(KINDS),
        seed=st.integers(0, 1000),
        flushes=st.booleans(),
        entries=st.sampled_from((3, 400)),
    )
    def crash_in_cleaning(
        self, number: int, kind: str, seed: int, flushes: bool, entries: int
    ) -> None:
        """The power goes; segments that were never synced may be among those that are cleaned."""
        if flushes:
            self.log.flush()
        self.disk.crash_at(number)
        with contextlib.suppress(PowerCut):
            self.cleaned(entries, "exact", lambda: None)
        self.lose_power(CrashChoice(kind, number, seed))

    @rule(kind=st.sampled_from(KINDS), seed=st.integers(0, 1000))
    def crash(self, kind: str, seed: int) -> None:
        self.lose_power(CrashChoice(kind, seed % 40, seed))

    @rule()
    def reopen(self) -> None:
        self.log.close()
        self.come_back(self.served, lost_from=None)

    def lose_power(self, choice: CrashChoice) -> None:
        """Continue with the files that a crash leaves."""
        floor = self.log.durable_offset
        disk = self.disk.crash(choice)
        before = self.served
        self.release_log()
        self.disk = disk
        self.come_back(before, lost_from=floor)

    def release_log(self) -> None:
        """Close the log and free its objects in this process."""
        self.disk.clear_faults()
        self.followers.clear()
        with contextlib.suppress(PowerCut, KafkaLogError):
            self.log.close()
        gc.collect()

    def come_back(self, before: Served, *, lost_from: int | None) -> None:
        """Reopen the log, compare it with what was served, and continue with it."""
        self.release_log()
        self.open()
        corrupt_ranges = self.log.corrupt_ranges()
        if corrupt_ranges and lost_from is not None:
            # Damage between unsynced segments: legal, and the end of what a model can follow.
            assert min(corrupt_range.first_offset for corrupt_range in corrupt_ranges) >= lost_from
            self.restart()
            return
        now = Served.of(self.log)
        end_offset = max(self.first_dirty, before.stable_offset)
        verify_compacted(
            before, now, end_offset=end_offset, tombstones=self.tombstones(), lost_from=lost_from
        )
        if lost_from is not None:
            assert lost_from <= now.end_offset
            lost = {fact.offset for fact in before.records} - now.offsets
            if any(lost_from <= each < now.end_offset for each in lost):
                self.restart()
                return
            self.cut_model(now.end_offset)
        self.served = now
        leftovers = [name for name in self.disk.list(self.place.directory) if "cleaned" in name]
        assert not leftovers

    # Changes of the log.

    @rule(duration_ms=st.sampled_from((1, 500, 1000)))
    def work(self, duration_ms: int) -> None:
        self.scheduler.advance(duration_ms)
        assert not self.scheduler.errors

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(back=st.integers(0, 8))
    def truncate(self, back: int) -> None:
        """Cut the end off, cleaned segments too."""
        self.followers.clear()
        # A batch that straddles the target is found by a read.
        target = max(self.log.log_start_offset, self.log.log_end_offset - back)
        held = next(iter(self.log.batches(target)), None) if back else None
        offsets = [] if held is None else [record.offset for record in held.records()]
        base = min([target, *offsets])
        self.log.truncate_to(target)
        kept = tuple(fact for fact in self.served.records if fact.offset < base)
        self.cut_model(base)
        self.served = Served.of(self.log)
        assert kept == self.served.records

    def cut_model(self, end_offset: int) -> None:
        """Remove the state from an offset on."""
        self.first_dirty = min(self.first_dirty, end_offset)
        for seen in (self.may_be_seen, self.must_be_seen):
            for offset in [offset for offset in seen if offset >= end_offset]:
                del seen[offset]
        self.resume_producers(end_offset)

    def resume_producers(self, end_offset: int) -> None:
        """Continue producers after their last batch in the log, with reopened transactions."""
        opened = {each.producer_id for each in self.log.list_transactions()}
        for number, producer in self.producers.items():
            reopened = [
                offset
                for first, last, _ in producer.batches
                for offset in range(first, last + 1)
                if self.markers.get(offset, end_offset) >= end_offset
            ]
            producer.open = reopened if number in opened else []
            # Under a new epoch, so that the batches left of the old one do not matter.
            producer.epoch, producer.sequence, producer.batches = producer.epoch + 1, 0, []

    def restart(self) -> None:
        """Restart with an empty log: a model cannot follow a hole between unsynced segments."""
        offset = self.log.log_end_offset
        self.log.truncate_fully_and_start_at(offset)
        self.followers.clear()
        self.cut_model(0)
        self.first_dirty = offset
        self.served = Served.of(self.log)

    @rule(share=st.floats(0, 1))
    def delete(self, share: float) -> None:
        start, end = self.log.log_start_offset, self.log.last_stable_offset
        self.log.flush()
        self.followers.clear()
        offset = start + int(share * (end - start) / 2)
        assert offset == self.log.delete_records(offset)
        before, self.served = self.served, Served.of(self.log)
        assert tuple(f for f in before.records if f.offset >= offset) == self.served.records

    # Followers.

    @rule()
    def begin_to_follow(self) -> None:
        start = self.log.log_start_offset
        self.followers.append(Follower(self.clock.now_ms(), None, start))

    @rule(count=st.integers(1, 9))
    def follow(self, count: int) -> None:
        """A follower that reaches the head in time has the final state."""
        for follower in self.followers[:]:
            if not follower.step(self.log, count):
                continue
            self.followers.remove(follower)
            if self.clock.now_ms() - follower.start_ms < self.retention_ms:
                expected = state_of(self.served, without=self.old_tombstones)
                reached = {
                    key: value
                    for key, value in follower.state.items()
                    if key not in self.old_tombstones
                }
                assert expected == reached

    @precondition(lambda self: hasattr(self, "log"))
    @invariant()
    def serves_what_it_served(self) -> None:
        """Order, offsets, the head: nothing changes by itself."""
        assert self.served == Served.of(self.log)

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.release_log()


def test_compaction_machine_keeps_the_guarantees_of_readers() -> None:
    """Append, send, end, clean, abort, fail, crash, cut, delete, follow."""
    run_state_machine_as_test(CompactionMachine, settings=run_lengths(RUNS, 25))
