"""A log with several producers against its model: transactions, aborts, retention, cuts, crashes.

The log is on a simulated disk. Every step compares its batches, the records of committed readers,
open transactions and the stable offset; and no leader epoch ever has two contents at one offset,
over crashes and truncations too.
"""

from __future__ import annotations

import contextlib
import gc
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kafkalog import (
    AppendInfo,
    AppendOrigin,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    KafkaLogError,
    Log,
    OutOfOrderSequenceError,
    Record,
    open_log,
)
from kafkalog.files.names import FileKind, try_parse_segment_file
from kafkalog.log.log import partition_of
from tests.support.crash_rig import PLACES, LogSetup
from tests.support.machine_runs import run_lengths
from tests.support.manual_time import START_MS, ManualClock, ManualScheduler
from tests.support.producer_batches import Produced, encoded
from tests.support.producing import committed_offsets
from tests.support.producing_model import Entry, ProducingModel, entries_of
from tests.support.simulated_disk import CrashChoice, PowerCut

PRODUCERS = st.integers(1, 3)
COUNTS = st.integers(1, 4)
OFFSETS = st.integers(0, 40)
ENDS = st.sampled_from(("commit", "abort"))
KINDS = ("nothing", "all", "names", "contents", "zeros", "random", "random", "prefix", "torn")
YEAR_MS = 365 * 86_400_000


class ProducingLogMachine(RuleBasedStateMachine):
    """All that producers, coordinators and replicas do to a log, and what becomes of it."""

    log: Log

    @initialize(place=st.sampled_from(PLACES), segment_bytes=st.sampled_from((300, 600)))
    def create(self, place: LogSetup, segment_bytes: int) -> None:
        self.place = place
        self.config = place.config.replace(segment_bytes=segment_bytes)
        self.disk = place.new_disk()
        self.model = ProducingModel()
        self.serial = 0
        self.begun: list[Entry] = []
        self.open()

    def open(self) -> None:
        """Open the log."""
        self.scheduler = ManualScheduler(ManualClock())
        self.log = self.opened(read_only=False)

    def opened(self, *, read_only: bool) -> Log:
        """Return the log, opened."""
        return open_log(
            self.place.directory,
            config=self.config,
            read_only=read_only,
            clock=self.scheduler.clock,
            scheduler=self.scheduler,
            filesystem=self.disk,
        )

    # Appends. Entries are in `begun` until the append returns: a crash may leave them or not.

    def time(self) -> int:
        """Return a time that no other batch has."""
        self.serial += 1
        return START_MS + self.serial

    def sent(self, batches: list[Produced], **arguments: Any) -> AppendInfo:
        """Append what the log has to take; the model follows."""
        offset = self.log.log_end_offset
        data = encoded(batches, offset)
        for batch in batches:
            count = 1 if batch.ends else batch.count
            is_sequenced = batch.producer_id >= 0 and not batch.ends
            self.begun.append(
                Entry(
                    offset,
                    offset + count - 1,
                    batch.timestamp_ms,
                    batch.producer_id,
                    batch.epoch if batch.producer_id >= 0 else -1,
                    batch.sequence if is_sequenced else -1,
                    batch.transactional or batch.ends is not None,
                    batch.ends,
                )
            )
            offset += count
        if arguments.get("origin") is not AppendOrigin.REPLICATION:
            data = encoded(batches)
        info = self.log.append_batches(data, **arguments)
        assert not info.is_duplicate
        self.over()
        return info

    def over(self) -> None:
        """Take what was begun into the model."""
        for entry in self.begun:
            self.model.append(entry)
        self.begun = []

    def following(self, producer_id: int, count: int, transactional: bool) -> Produced:
        """Return the batch that a producer sends next."""
        found = self.model.of(producer_id)
        last = self.model.last_data(producer_id)
        return Produced(
            producer_id,
            found[-1].epoch if found else 0,
            last.next_sequence if last else 0,
            count,
            transactional or producer_id in self.model.open(),
            timestamp_ms=self.time(),
        )

    def send_next(self, producer_id: int, count: int, transactional: bool) -> None:
        """Send a producer's next batch, under a new epoch if the producer may have expired."""
        batch = self.following(producer_id, count, transactional)
        try:
            self.sent([batch], origin=AppendOrigin.CLIENT)
        except OutOfOrderSequenceError:
            # As with a broker: a marker was left of the producer, and no batch.
            assert not self.model.knows(producer_id)
            self.begun = []
            self.send_in_epoch(producer_id, batch.epoch + 1, batch.transactional)

    def send_in_epoch(self, producer_id: int, epoch: int, transactional: bool) -> None:
        """Send a producer's first batch of an epoch."""
        time = self.time()
        batch = Produced(producer_id, epoch, 0, 1, transactional, timestamp_ms=time)
        self.sent([batch], origin=AppendOrigin.CLIENT)

    def mark(self, producer_id: int, ends: str, epoch_rise: int) -> None:
        """Append a marker."""
        found = self.model.of(producer_id)
        epoch = (found[-1].epoch if found else 0) + epoch_rise
        marker = Produced(producer_id, epoch, ends=ends, timestamp_ms=self.time())
        self.sent([marker], origin=AppendOrigin.COORDINATOR)

    def append_plain(self, count: int, wait: Any) -> None:
        """Append records without a producer; one batch."""
        time, offset = self.time(), self.log.log_end_offset
        self.begun = [Entry(offset, offset + count - 1, time)]
        self.log.append([Record(value=b"", timestamp_ms=time)] * count, wait=wait)
        self.over()

    @rule(count=COUNTS, wait=st.sampled_from(("written", "durable")))
    def append(self, count: int, wait: str) -> None:
        self.append_plain(count, wait)

    @rule(
        sends=st.lists(st.tuples(PRODUCERS, COUNTS, st.booleans()), min_size=1, max_size=4),
        ends=st.none() | ENDS,
    )
    def send(self, sends: list[tuple[int, int, bool]], ends: str | None) -> None:
        """Several batches, and perhaps a marker for the first of them."""
        for producer_id, count, transactional in sends:
            self.send_next(producer_id, count, transactional)
        if ends is not None:
            self.mark(sends[0][0], ends, 0)

    @rule(producer_id=PRODUCERS, transactional=st.booleans())
    def begin_epoch(self, producer_id: int, transactional: bool) -> None:
        found = self.model.of(producer_id)
        if found:
            is_open = producer_id in self.model.open()
            self.send_in_epoch(producer_id, found[-1].epoch + 1, transactional or is_open)

    @rule(producer_id=PRODUCERS, ends=ENDS, epoch_rise=st.sampled_from((0, 0, 1)))
    def end(self, producer_id: int, ends: str, epoch_rise: int) -> None:
        self.mark(producer_id, ends, epoch_rise)

    @rule(producer_id=PRODUCERS)
    def abort(self, producer_id: int) -> None:
        found = self.model.of(producer_id)
        if producer_id not in self.model.open():
            with pytest.raises(InvalidTxnStateError):
                self.log.abort_transaction(producer_id)
            return
        info = self.log.abort_transaction(producer_id)
        offset, time = info.first_offset, info.max_timestamp_ms
        self.model.append(
            Entry(offset, offset, time, producer_id, found[-1].epoch, -1, True, "abort")
        )

    @rule(
        parts=st.lists(
            st.tuples(PRODUCERS, COUNTS, st.booleans(), st.none() | ENDS), min_size=1, max_size=6
        )
    )
    def replicate(self, parts: list[tuple[int, int, bool, str | None]]) -> None:
        """Batches of several producers in one append, with their own offsets, over segments."""
        batches: list[Produced] = []
        opened = set(self.model.open())
        for producer_id, count, transactional, ends in parts:
            before = [each for each in batches if each.producer_id == producer_id]
            base = self.following(producer_id, count, transactional)
            data = [each for each in before if not each.ends]
            sequence = data[-1].sequence + data[-1].count if data else base.sequence
            transactional = transactional or producer_id in opened
            (opened.add if transactional and not ends else opened.discard)(producer_id)
            batches.append(
                Produced(
                    producer_id,
                    base.epoch,
                    sequence,
                    count,
                    transactional and not ends,
                    ends,
                    timestamp_ms=base.timestamp_ms,
                )
            )
        self.sent(batches, assign_offsets=False, origin=AppendOrigin.REPLICATION)

    # Refused batches and duplicates.

    @rule(producer_id=PRODUCERS, gap=st.integers(1, 9))
    def send_what_is_refused(self, producer_id: int, gap: int) -> None:
        """Refused batches and duplicates change nothing."""
        self.send_again(producer_id)
        self.send_with_a_gap(producer_id, gap)
        self.send_in_an_old_epoch(producer_id)
        self.send_outside_of_an_open_transaction(producer_id)

    def send_again(self, producer_id: int) -> None:
        entry = self.model.last_data(producer_id)
        if entry is None or not self.model.knows(producer_id):
            return
        count = entry.last_offset - entry.first_offset + 1
        again = Produced(
            producer_id, entry.epoch, entry.sequence, count, entry.transactional, timestamp_ms=1
        )
        info = self.log.append_batches(encoded([again]), origin=AppendOrigin.CLIENT)
        assert (entry.first_offset, entry.last_offset) == (info.first_offset, info.last_offset)
        assert info.is_duplicate

    def send_with_a_gap(self, producer_id: int, gap: int) -> None:
        if self.model.knows(producer_id):
            batch = self.following(producer_id, 1, False)
            wrong = Produced(
                producer_id,
                batch.epoch,
                batch.sequence + gap,
                1,
                batch.transactional,
                timestamp_ms=1,
            )
            with pytest.raises(OutOfOrderSequenceError):
                self.log.append_batches(encoded([wrong]), origin=AppendOrigin.CLIENT)

    def send_in_an_old_epoch(self, producer_id: int) -> None:
        if self.model.knows(producer_id):
            batch = self.following(producer_id, 1, False)
            if batch.epoch > 0:
                old = Produced(producer_id, batch.epoch - 1, 0, 1, timestamp_ms=1)
                with pytest.raises(InvalidProducerEpochError):
                    self.log.append_batches(encoded([old]), origin=AppendOrigin.CLIENT)

    def send_outside_of_an_open_transaction(self, producer_id: int) -> None:
        if producer_id in self.model.open():
            batch = self.following(producer_id, 1, True)
            plain = Produced(producer_id, batch.epoch, batch.sequence, 1, timestamp_ms=1)
            with pytest.raises((InvalidTxnStateError, OutOfOrderSequenceError)):
                self.log.append_batches(encoded([plain]), origin=AppendOrigin.CLIENT)

    # Changes of the log.

    @rule(offset=st.none() | OFFSETS)
    def set_high_watermark(self, offset: int | None) -> None:
        self.model.set_high_watermark(offset)
        assert self.model.readable_offset == self.log.set_high_watermark(offset)

    @rule(rolls=st.booleans(), flushes=st.booleans(), duration_ms=st.sampled_from((0, 120_000)))
    def work(self, rolls: bool, flushes: bool, duration_ms: int) -> None:
        """Background work, perhaps with something to do."""
        if rolls:
            self.log.roll()
        if flushes:
            self.log.flush()
        self.scheduler.advance(duration_ms)
        assert not self.scheduler.errors

    def cut(self, offset: int) -> int:
        """Truncate; return where."""
        model = self.model
        offset = max(model.start_offset, min(offset, model.end_offset))
        # The snapshots decide if a transaction whose batches are removed is open again after a
        # truncation.
        if any(each.first_offset < model.start_offset for each in model.entries):
            offset = max(offset, self.known_end())
        self.set_high_watermark(None)
        self.log.truncate_to(offset)
        return offset

    def known_end(self) -> int:
        """Return the end of the last marker of a transaction that began below the log start."""
        end, opened = self.model.start_offset, dict[int, int]()
        for each in self.model.entries:
            if (
                each.ends
                and opened.pop(each.producer_id, each.first_offset) < self.model.start_offset
            ):
                end = max(end, each.last_offset + 1)
            elif each.transactional and not each.ends:
                opened.setdefault(each.producer_id, each.first_offset)
        return end

    @rule(offset=OFFSETS)
    def truncate(self, offset: int) -> None:
        self.model.cut(self.cut(offset))

    @rule(offset=OFFSETS)
    def restart(self, offset: int) -> None:
        self.log.truncate_fully_and_start_at(offset)
        self.model.restart(offset)

    @rule(offset=OFFSETS)
    def delete(self, offset: int) -> None:
        # A crash must not take the marker of a transaction whose batches went.
        self.log.flush()
        offset = min(offset, self.model.last_stable_offset)
        self.model.start_offset = max(self.model.start_offset, offset)
        assert self.model.start_offset == self.log.delete_records(offset)

    @rule()
    def retain(self) -> None:
        self.log.flush()
        limit = self.model.last_stable_offset
        self.log.apply_retention(now_ms=START_MS + YEAR_MS, limit_offset=limit)
        assert self.model.start_offset <= self.log.log_start_offset <= limit
        self.model.start_offset = self.log.log_start_offset

    # Reads.

    @rule()
    def look_from_outside(self) -> None:
        with self.opened(read_only=True) as reader:
            # A read-only log has no high watermark.
            model = replace(self.model, high_watermark=None, waiting=[])
            assert model.committed() == committed_offsets(reader)
            assert model.last_stable_offset == reader.last_stable_offset
            assert model.present() == entries_of(reader)

    # Ending.

    @rule(
        kind=st.sampled_from((None, FileKind.TRANSACTION_INDEX, FileKind.SNAPSHOT)),
        keep=st.booleans(),
        cut=st.booleans(),
    )
    def close_and_reopen(self, kind: FileKind | None, keep: bool, cut: bool) -> None:
        """In order; or with lost or truncated files that are rebuilt from the batches."""
        self.log.close()
        names = map(try_parse_segment_file, self.disk.list(self.place.directory))
        paths = [
            self.place.directory / name
            for name, parsed in zip(self.disk.list(self.place.directory), names, strict=True)
            if parsed is not None and parsed.kind is kind
        ]
        for path in paths[1:] if keep else paths:
            handle = self.disk.open(path, write=True)
            # A log without any snapshot that was closed in order is assumed to have no producer.
            if cut or kind is FileKind.SNAPSHOT:
                handle.truncate(handle.size() // 2)
                handle.close()
            else:
                handle.close()
                self.disk.unlink(path)
        self.open()
        self.model.high_watermark, self.model.waiting = None, []
        assert self.log.recovery_report.clean

    @rule(kind=st.sampled_from(KINDS), number=st.integers(0, 40), seed=st.integers(0, 2**32 - 1))
    def crash(self, kind: str, number: int, seed: int) -> None:
        self.lose_power(CrashChoice(kind, number, seed), self.log.durable_offset)

    @rule(
        call=st.integers(1, 14),
        operation=st.sampled_from(
            ("plain", "send", "mark", "replicate", "truncate", "delete", "retain", "close", "roll")
        ),
        offset=OFFSETS,
        producer_id=PRODUCERS,
        kind=st.sampled_from(KINDS),
        seed=st.integers(0, 2**32 - 1),
    )
    def crash_within(
        self, call: int, operation: str, offset: int, producer_id: int, kind: str, seed: int
    ) -> None:
        if operation in ("delete", "retain"):
            self.log.flush()
        self.disk.crash_at(call)
        cut_at: int | None = None
        try:
            match operation:
                case "plain":
                    self.append_plain(3, "durable")
                case "send":
                    self.send_next(producer_id, 2, True)
                case "mark":
                    self.mark(producer_id, "abort", 0)
                case "replicate":
                    self.replicate([(n, 2, True, e) for n in (1, 2) for e in (None, "abort")])
                case "truncate":
                    cut_at = offset
                    cut_at = self.cut(offset)
                case "delete":
                    self.delete(offset)
                case "retain":
                    self.retain()
                case "close":
                    self.log.close()
                case _:
                    self.log.roll()
                    self.scheduler.advance(0)
        except PowerCut:
            pass
        floor = self.log.durable_offset
        if cut_at is not None:
            # A batch that straddles the target goes as a whole.
            straddling = [e.first_offset for e in self.model.entries if e.last_offset >= cut_at]
            floor = min([floor, cut_at, *straddling])
        self.lose_power(CrashChoice(kind, call, seed), floor)

    def lose_power(self, choice: CrashChoice, floor: int) -> None:
        """Continue with the disk after a crash."""
        disk = self.disk.crash(choice)
        self.release_log()
        gc.collect()
        self.disk = disk
        self.open()
        begun, self.begun = self.begun, []
        if self.log.corrupt_ranges():
            # Damage between unsynced segments: legal, and the end of what a model can follow.
            offset = self.log.log_end_offset
            self.log.truncate_fully_and_start_at(offset)
            self.model.restart(offset)
            self.model.high_watermark = None
            return
        self.model = self.model.survivors(self.log, begun, floor=floor)

    def release_log(self) -> None:
        """Close the log and free its objects in this process."""
        self.disk.clear_faults()
        with contextlib.suppress(PowerCut, KafkaLogError):
            self.log.close()

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.release_log()

    @precondition(lambda self: hasattr(self, "log"))
    @invariant()
    def agrees_with_the_model(self) -> None:
        model, log = self.model, self.log
        assert (model.start_offset, model.end_offset) == (log.log_start_offset, log.log_end_offset)
        readable = [e for e in model.present() if e.first_offset < model.readable_offset]
        assert readable == entries_of(log)
        assert model.first_unstable_offset == partition_of(log).view.first_unstable_offset
        assert (model.readable_offset, model.last_stable_offset) == (
            log.high_watermark,
            log.last_stable_offset,
        )
        assert model.committed() == committed_offsets(log)
        opened = {each.producer_id: each.first_offset for each in log.list_transactions()}
        assert model.open() == opened
        model.note_contents(log)


@pytest.mark.sample
def test_producing_log_machine_agrees_with_its_model() -> None:
    """Send, send again, end, abort, replicate, cut, delete, lose files, crash, reopen."""
    run_state_machine_as_test(ProducingLogMachine, settings=run_lengths(50, 25))


@pytest.mark.slow
def test_producing_log_machine_long_runs_agree_with_its_model() -> None:
    """More and longer runs."""
    run_state_machine_as_test(ProducingLogMachine, settings=run_lengths(80, 50))
