"""Readers up to a high watermark while a leader and a follower append and truncate (PAR-21, 11)."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from kafkalog import KafkaLogError, Log, OffsetOutOfRangeError, Record
from tests.support.logs import manual_log

STEPS = 400


def value_of(offset: int, term: int) -> bytes:
    """Return the value of a record, from its offset and term."""
    return b"%d:%d" % (offset, term)


class Reader(threading.Thread):
    """Reads again and again from some offset to the end that it is shown, until stopped."""

    def __init__(self, log: Log, committed: list[int]) -> None:
        super().__init__()
        self.log = log
        self.committed = committed
        self.stop = threading.Event()
        self.error: BaseException | None = None
        self.rounds = 0
        self.began = threading.Event()

    def run(self) -> None:
        try:
            while not self.stop.is_set():
                self.read()
                self.rounds += 1
                self.began.set()
        except BaseException as error:  # noqa: BLE001 - raised by the test
            self.error = error
            self.began.set()

    def read(self) -> None:
        """One round: records below the committed offset of before never change."""
        stable = self.committed[0]
        start = max(0, stable - 50)
        try:
            found = [(each.offset, each.value or b"") for each in self.log.records(start)]
        except OffsetOutOfRangeError:
            return
        offsets = [offset for offset, _value in found]
        assert offsets == list(range(start, start + len(offsets)))
        assert len(offsets) >= stable - start
        for offset, value in found[: stable - start]:
            assert b"%d" % offset == value.split(b":")[0]


@pytest.mark.parametrize("seed", [1, 2])
def test_high_watermark_readers_during_truncation_see_committed_records(
    tmp_path: Path, seed: int
) -> None:
    """No reader sees a record change, a hole, or an end below what was committed."""
    random_steps = random.Random(seed)
    with (
        manual_log(tmp_path / "leader-0", segment_bytes=1500) as leader,
        manual_log(tmp_path / "follower-0", segment_bytes=900) as follower,
    ):
        logs, committed = (leader, follower), [0]
        for log in logs:
            log.set_high_watermark(0)
        readers = [Reader(log, committed) for log in logs]
        for reader in readers:
            reader.start()
            reader.began.wait()
        try:
            for term in range(STEPS):
                step(logs, committed, random_steps, term)
        finally:
            for reader in readers:
                reader.stop.set()
            for reader in readers:
                reader.join()
        for reader in readers:
            if reader.error is not None:
                raise reader.error
        assert all(reader.rounds for reader in readers)
        end = committed[0]
        assert list(leader.records(end=end)) == list(follower.records(end=end))


def step(logs: tuple[Log, Log], committed: list[int], chooser: random.Random, term: int) -> None:
    """Append, copy, commit, or truncate to the high watermark."""
    leader, follower = logs
    what = chooser.choice(["append", "append", "copy", "commit", "truncate"])
    if what == "append":
        first = leader.log_end_offset
        count = chooser.randint(1, 5)
        leader.append([Record(value=value_of(first + each, term)) for each in range(count)])
    elif what == "copy" and follower.log_end_offset < leader.log_end_offset:
        fetched = leader.read(follower.log_end_offset, isolation="log_end")
        try:
            follower.append_batches(bytes(fetched.data), assign_offsets=False)
        except KafkaLogError:
            # The slice began within a batch that the follower has.
            follower.truncate_to(committed[0])
    elif what == "commit":
        limit = min(leader.log_end_offset, follower.log_end_offset)
        for log in logs:
            log.set_high_watermark(limit)
        committed[0] = limit
    elif what == "truncate":
        for log in logs:
            log.truncate_to(committed[0])
