"""Every form of an append, as the workloads use them: what is asked, then what was acknowledged."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pyarrow as pa

from kafkalog import AppendInfo, Log, Record
from kafkalog.log.log import partition_of
from tests.proof.contents import Content, Spec, content
from tests.proof.plain_log import encode_batch
from tests.proof.shared_events import SharedEvents

__all__ = ["FORMS", "OLD_FORMS", "Appending", "SharedLock", "raw_batch"]

FORMS = ("records", "lists", "columns", "batches", "raw", "file", "appender", "follower")
OLD_FORMS = ("records", "lists", "columns", "batches", "appender")
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class SharedLock:
    """Many may hold it, or one alone."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._holders = 0
        self._is_wanted_alone = False

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Hold it together with others."""
        with self._condition:
            while self._is_wanted_alone:
                self._condition.wait()
            self._holders += 1
        try:
            yield
        finally:
            with self._condition:
                self._holders -= 1
                self._condition.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold it alone; from one thread at a time."""
        with self._condition:
            self._is_wanted_alone = True
            while self._holders:
                self._condition.wait()
        try:
            yield
        finally:
            with self._condition:
                self._is_wanted_alone = False
                self._condition.notify_all()


class Appending:
    """Appends to one log, recorded in the shared events."""

    def __init__(
        self,
        shared: SharedEvents,
        numbers: Iterator[int],
        stream: int,
        spec: Spec,
        incoming: Path,
    ) -> None:
        self.stream = stream
        self.spec = spec
        self.shared = shared
        self._numbers = numbers
        self._incoming = incoming
        self.firsts: list[int] = []

    def append(self, log: Log, form: str, random: Random) -> None:
        """Append some records in one form."""
        count = random.choice((1, 1, 2, 5, 20))
        wait = random.choice(("written", "written", "durable"))
        if form == "appender":
            self._by_appender(log, count, wait)
            self._count(log, form)
            return
        number = self._ask(count)
        contents = [content(self.spec, self.stream, number, index) for index in range(count)]
        make = getattr(self, f"_{form}")
        info = make(log, contents, number, wait, random)
        self.acknowledged(number, info, durable=wait == "durable" or form == "file")
        self._count(log, form)

    def acknowledged(self, number: int, info: AppendInfo, *, durable: bool) -> None:
        """Note the answer."""
        self.shared.add("ack", self.stream, number, info.first_offset, durable)
        self.firsts.append(info.first_offset)

    def _count(self, log: Log, form: str) -> None:
        self.shared.add("form", form, self.spec.magic, log.config.compression_type)

    def _ask(self, count: int) -> int:
        number = next(self._numbers)
        self.shared.add("ask", self.stream, number, count)
        return number

    def _records(
        self, log: Log, contents: Sequence[Content], number: int, wait: str, random: Random
    ) -> AppendInfo:
        records = [
            Record(key=each.key, value=each.value, headers=each.headers) for each in contents
        ]
        return log.append(records, wait=wait)  # type: ignore[arg-type]

    def _lists(
        self, log: Log, contents: Sequence[Content], number: int, wait: str, random: Random
    ) -> AppendInfo:
        keys = [each.key for each in contents] if self.spec.keys else None
        headers = [each.headers for each in contents] if self.spec.magic == 2 else None
        values = [each.value for each in contents]
        return log.append_lists(keys, values, headers=headers, wait=wait)  # type: ignore[arg-type]

    def _columns(
        self, log: Log, contents: Sequence[Content], number: int, wait: str, random: Random
    ) -> AppendInfo:
        columns = {
            "key": pa.array([each.key for each in contents], pa.binary()),
            "value": pa.array([each.value for each in contents], pa.binary()),
        }
        if self.spec.magic == 2:
            listed = [
                [{"key": name, "value": held} for name, held in each.headers] for each in contents
            ]
            columns["headers"] = pa.array(listed, _HEADERS)
        return log.append_columns(pa.record_batch(columns), wait=wait)  # type: ignore[arg-type]

    def _batches(
        self, log: Log, contents: Sequence[Content], number: int, wait: str, random: Random
    ) -> AppendInfo:
        return log.append_batches(raw_batch(contents), wait=wait)  # type: ignore[arg-type]

    def _raw(
        self, log: Log, contents: Sequence[Content], number: int, wait: str, random: Random
    ) -> AppendInfo:
        """Append as a new idempotent producer."""
        producer = 1 << 40 | number
        self.shared.add("produced", self.stream, number, producer, 0)
        data = raw_batch(contents, producer_id=producer)
        return log.append_batches(data, wait=wait)  # type: ignore[arg-type]

    def _file(
        self, log: Log, contents: Sequence[Content], number: int, wait: str, random: Random
    ) -> AppendInfo:
        path = self._incoming / f"incoming-{self.stream}-{number}"
        path.write_bytes(raw_batch(contents))
        return partition_of(log).appender.ingest(path)

    def _follower(
        self, log: Log, contents: Sequence[Content], number: int, wait: str, random: Random
    ) -> AppendInfo:
        """Append as a follower, with offsets and a leader epoch of a leader; alone."""
        base, epoch = log.log_end_offset, max(log.leader_epoch, 0) + random.randrange(2)
        data = raw_batch(contents, base_offset=base, leader_epoch=epoch)
        return log.append_batches(data, assign_offsets=False, wait=wait)  # type: ignore[arg-type]

    def _by_appender(self, log: Log, count: int, wait: str) -> None:
        numbers = [self._ask(1) for _ in range(count)]
        left = iter(numbers)

        def on_append(info: AppendInfo) -> None:
            durable = wait == "durable"
            for offset in range(info.first_offset, info.last_offset + 1):
                self.shared.add("ack", self.stream, next(left), offset, durable)

        with log.appender(
            buffer_bytes=2000,
            linger_ms=1,
            wait=wait,  # type: ignore[arg-type]
            on_append=on_append,
        ) as appender:
            for number in numbers:
                each = content(self.spec, self.stream, number, 0)
                appender.append(each.key, each.value, headers=each.headers)


def raw_batch(
    contents: Sequence[Content],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
) -> bytes:
    """Return a batch of format 2 that this library did not encode."""
    return encode_batch(
        [(each.key, each.value, each.headers) for each in contents],
        base_offset=base_offset,
        # Producers are forgotten a day after their last timestamp.
        timestamp=int(time.time() * 1000),
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
    )


def numbers_from(first: int) -> Iterator[int]:
    """Return numbers for operations, from any thread."""
    return itertools.count(first)


Work = Callable[[], None]
