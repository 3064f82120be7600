"""A log against its model, through anything that may happen to it in any order."""

from __future__ import annotations

import gc

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

from kafkalog import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, OffsetOutOfRangeError
from tests.support.crash_rig import PLACES, LogSetup, Rig, small_config
from tests.support.machine_runs import run_lengths
from tests.support.manual_time import START_MS
from tests.support.model import observe, record_fact
from tests.support.simulated_disk import CrashChoice, PowerCut

CODECS = ("producer", "gzip", "snappy", "lz4", "zstd")
KINDS = ("nothing", "all", "names", "contents", "zeros", "random", "random", "prefix", "torn")
OFFSETS = st.integers(0, 60)


def _when_old(rig: Rig, serial: int) -> int:
    """Return a time at which what the rig made before its record `serial` is too old."""
    return START_MS + rig.log.config.retention_ms + 10 * serial


class LogMachine(RuleBasedStateMachine):
    """
    Everything a log can be asked, compared with a list of records.

    After a crash the model continues from the records of the log, once they are checked as legal.
    """

    rig: Rig

    @initialize(place=st.sampled_from(PLACES), codec=st.sampled_from(CODECS))
    def create(self, place: LogSetup, codec: str) -> None:
        config = small_config(compression_type=codec, preallocate=place.config.preallocate)
        self.rig = Rig(LogSetup(place.name, place.directory, config))
        self.rig.open()

    # Writing.

    @rule(count=st.integers(0, 12), size=st.integers(0, 180), durable=st.booleans())
    def append(self, count: int, size: int, durable: bool) -> None:
        self.rig.append(count, size, durable=durable)

    @rule()
    def flush(self) -> None:
        self.rig.flush()
        assert self.rig.log.log_end_offset == self.rig.log.durable_offset

    @rule()
    def roll(self) -> None:
        self.rig.roll()

    @rule(duration_ms=st.sampled_from((0, 1000, 120_000)))
    def work(self, duration_ms: int) -> None:
        self.rig.work(duration_ms)
        assert not self.rig.scheduler.errors

    @rule(offset=OFFSETS)
    def truncate(self, offset: int) -> None:
        self.rig.truncate_to(offset)

    @rule(offset=OFFSETS)
    def restart(self, offset: int) -> None:
        self.rig.restart_at(offset)

    @rule(offset=OFFSETS)
    def delete(self, offset: int) -> None:
        if offset > self.rig.model.end_offset:
            with pytest.raises(OffsetOutOfRangeError):
                self.rig.log.delete_records(offset)
        else:
            self.rig.delete_before(offset)

    @rule(offset=OFFSETS)
    def retain(self, offset: int) -> None:
        self.rig.retain(_when_old(self.rig, offset))

    # Looking.

    @rule(offset=OFFSETS, max_bytes=st.sampled_from((0, 100, 1000, 1 << 20)))
    def read(self, offset: int, max_bytes: int) -> None:
        model, log = self.rig.model, self.rig.log
        if not model.start_offset <= offset <= model.end_offset:
            with pytest.raises(OffsetOutOfRangeError) as caught:
                log.read(offset, max_bytes=max_bytes)
            assert (model.start_offset, model.end_offset) == (
                caught.value.log_start_offset,
                caught.value.log_end_offset,
            )
            return
        got = [record_fact(record) for record in log.read(offset, max_bytes=max_bytes).records()]
        expected = model.served(offset)
        assert expected[: len(got)] == got
        assert bool(expected) == bool(got)

    @rule(bounds=st.tuples(OFFSETS, OFFSETS).map(sorted))
    def read_range(self, bounds: list[int]) -> None:
        model = self.rig.model
        start, end = bounds
        if model.start_offset <= start <= model.end_offset:
            got = [record_fact(record) for record in self.rig.log.records(start, end)]
            assert model.served(start, end) == got

    @rule(timestamp_ms=st.integers(START_MS - 5, START_MS + 1500))
    def look_up_time(self, timestamp_ms: int) -> None:
        expected = self.rig.model.first_at(timestamp_ms)
        found = self.rig.log.offset_for_timestamp(timestamp_ms)
        if expected is None:
            assert found is None
        else:
            assert found is not None
            assert (expected.timestamp_ms, expected.offset) == (found.timestamp_ms, found.offset)

    @rule()
    def look_up_ends(self) -> None:
        for name, offset in (
            (EARLIEST_TIMESTAMP, self.rig.model.start_offset),
            (LATEST_TIMESTAMP, self.rig.model.end_offset),
        ):
            found = self.rig.log.offset_for_timestamp(name)
            assert found is not None
            assert offset == found.offset

    @rule()
    def look_from_outside(self) -> None:
        reader = Rig(self.rig.place, self.rig.disk)
        with reader.open(read_only=True) as log:
            seen = observe(log)
        assert self.rig.model.served() == list(seen.records)
        self.rig.model.verify_losses(seen.corrupt_ranges)

    # Ending.

    @rule()
    def close_and_reopen(self) -> None:
        self.rig.close()
        report = self.rig.open().recovery_report
        assert report.clean
        assert not report.found_damage
        assert self.rig.model.end_offset == self.rig.log.durable_offset

    @rule(kind=st.sampled_from(KINDS), number=st.integers(0, 40), seed=st.integers(0, 2**32 - 1))
    def crash(self, kind: str, number: int, seed: int) -> None:
        self._lose_power(CrashChoice(kind, number, seed))

    @rule(
        call=st.integers(1, 12),
        operation=st.sampled_from(
            ("append", "truncate", "restart", "delete", "retain", "close", "flush")
        ),
        offset=OFFSETS,
        kind=st.sampled_from(KINDS),
        seed=st.integers(0, 2**32 - 1),
    )
    def crash_within(self, call: int, operation: str, offset: int, kind: str, seed: int) -> None:
        rig = self.rig
        rig.disk.crash_at(call)
        try:
            match operation:
                case "append":
                    rig.append(8, offset * 3, durable=True)
                case "truncate":
                    rig.truncate_to(offset)
                case "restart":
                    rig.restart_at(offset)
                case "delete":
                    rig.delete_before(min(offset, rig.model.end_offset))
                case "retain":
                    rig.retain(_when_old(rig, offset))
                case "flush":
                    rig.roll()
                    rig.flush()
                case _:
                    rig.close()
        except PowerCut:
            pass
        self._lose_power(CrashChoice(kind, call, seed))

    def _lose_power(self, choice: CrashChoice) -> None:
        old = self.rig
        old.note_durable()
        disk = old.disk.crash(choice)
        old.release()
        gc.collect()
        self.rig = Rig(old.place, disk, old.model)
        self.rig.go_on_from(old)
        log = self.rig.open()
        seen = observe(log)
        self.rig.model.verify(seen)
        self.rig.model.continue_from(seen)
        if seen.corrupt_ranges:
            # Damage between unsynced segments: legal, and the end of what a model can follow.
            self.rig.restart_at(seen.end_offset)

    def teardown(self) -> None:
        if hasattr(self, "rig"):
            self.rig.release()

    @precondition(lambda self: hasattr(self, "rig"))
    @invariant()
    def agrees_with_the_model(self) -> None:
        model, log = self.rig.model, self.rig.log
        assert (model.start_offset, model.end_offset) == (log.log_start_offset, log.log_end_offset)
        assert log.durable_offset == log.durable_offset <= log.log_end_offset
        assert model.served() == [record_fact(record) for record in log.records()]
        model.verify_losses((each.first_offset, each.next_offset) for each in log.corrupt_ranges())


@pytest.mark.sample
def test_log_machine_agrees_with_its_model() -> None:
    """Append, read, look up, roll, flush, truncate, delete, close, crash, reopen."""
    run_state_machine_as_test(LogMachine, settings=run_lengths(60, 25))


@pytest.mark.slow
def test_log_machine_long_runs_agree_with_its_model() -> None:
    """More and longer runs."""
    run_state_machine_as_test(LogMachine, settings=run_lengths(120, 40))
