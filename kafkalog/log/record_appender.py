"""One record at a time into a log: encoded at once, written together.

A record goes into the batch under construction; a full batch is closed (compressed, summed up) and
joins the others that wait; `buffer_bytes` of them are one write. So a single `append` costs at most
one batch's closing and one write of that size, whatever came before, and mostly neither.

`append` either accepts its record, or raises and has not accepted it. After an error of a write the
waiting records stay, and the next `append` that needs space, or `flush`, tries again; nothing is
written twice, and the buffer does not exceed its size and a batch. Records that could never be
written are refused by `append`.

Thread-safety: any number of threads; a lock makes one of them wait for another's write. The linger
runs on the log's scheduler and takes the same lock.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Literal

from kafkalog._core.memory_records import MemoryRecords
from kafkalog._core.record import Record
from kafkalog._core.run_builder import RunBuilder
from kafkalog._core.timestamps import to_timestamp_ms
from kafkalog.clock import Clock
from kafkalog.closing import ClosingContextManager
from kafkalog.errors import (
    InvalidRecordError,
    KafkaLogError,
    LogClosedError,
    RecordTooLargeError,
)
from kafkalog.forking import forked_error, refuse_in_children
from kafkalog.model import AppendInfo
from kafkalog.records.append_rules import AppendRules
from kafkalog.records.packing import HeaderField, pack_records
from kafkalog.records.run_packer import RunPacker, packer_of
from kafkalog.scheduler import ScheduledTask, Scheduler

__all__ = ["RecordAppender", "RecordAppenderOptions", "Wait"]

Wait = Literal["written", "durable"]

_ALWAYS: Final = 2**63 - 1

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RecordAppenderOptions:
    """Options of `Log.appender`, which describes them."""

    buffer_bytes: int
    linger_ms: int | None
    wait: Wait
    on_append: Callable[[AppendInfo], object] | None


class RecordAppender(ClosingContextManager):
    """
    Takes records one by one; made by `Log.appender`.

    Attributes:
        last_error: of the last write that a linger began, None where it went well.
    """

    def __init__(
        self,
        append_run: Callable[[MemoryRecords, Wait], AppendInfo],
        rules: Callable[[], AppendRules],
        clock: Clock,
        scheduler: Scheduler,
        options: RecordAppenderOptions,
        on_close: Callable[[RecordAppender], object],
    ) -> None:
        if options.buffer_bytes < 1:
            raise ValueError(f"buffer_bytes must be at least 1, got {options.buffer_bytes}")
        if options.linger_ms is not None and options.linger_ms < 0:
            raise ValueError(f"linger_ms must not be negative, got {options.linger_ms}")
        self.last_error: KafkaLogError | None = None
        self._append_run = append_run
        self._rules_now = rules
        self._clock = clock
        self._scheduler = scheduler
        self._buffer_bytes = options.buffer_bytes
        self._linger_ms = options.linger_ms
        self._wait = options.wait
        self._on_append = options.on_append
        self._on_close = on_close
        # Again by the same thread, where `on_append` appends.
        self._lock = threading.RLock()
        self._closed = False
        self._linger: ScheduledTask | None = None
        # The run under construction, begun with its first record; a run that could not be written.
        self._packer: RunPacker | None = None
        self._stuck: MemoryRecords | None = None
        self._builder = RunBuilder()
        self._rules = rules()
        self._limit = 0
        self._is_inherited = False
        refuse_in_children(self)

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self.pending_count} records wait"
        return f"<RecordAppender {state}>"

    @property
    def pending_count(self) -> int:
        """Records that were taken and not written yet."""
        with self._lock:
            stuck, packer = self._stuck, self._packer
            count = 0 if stuck is None else stuck.record_count
            return count if packer is None else count + packer.record_count + packer.builder.count

    @property
    def is_closed(self) -> bool:
        """True if it accepts no more records."""
        return self._closed

    def append(
        self,
        key: HeaderField,
        value: HeaderField,
        timestamp_ms: int | datetime | None = None,
        headers: Iterable[tuple[str, HeaderField]] | None = None,
    ) -> None:
        """
        Take a record.

        Args:
            key: bytes, bytearray or memoryview, or None.
            value: the same; None is a tombstone.
            timestamp_ms: milliseconds since 1970 or an aware datetime, -1 for none; the clock's
                time if None.
            headers: (str, bytes or None) pairs.

        Raises:
            LogClosedError: the appender, or its log, was closed.
            RecordTooLargeError, RecordValidationError, InvalidRecordError,
            UnsupportedForMessageFormatError: as for `Log.append`; others are not concerned.
            DiskFullError, LogOfflineError, LogStorageError: records before this one could not be
                written; they wait on, and this one was not taken.
        """
        if headers is not None and not isinstance(headers, (list, tuple)):
            headers = list(headers)
        if timestamp_ms is not None and type(timestamp_ms) is not int:
            timestamp_ms = to_timestamp_ms(timestamp_ms)
        with self._lock:
            self._ensure_open()
            if self._stuck is not None:
                self._write(self._wait)
            now_ms = self._clock.now_ms()
            packer = self._packer or self._begin(now_ms)
            time = now_ms if timestamp_ms is None else timestamp_ms
            if self._rules.has_invalid_record(now_ms, key is None, time, time):
                # Raises the error of an append of this record alone.
                record = Record(key=None if key is None else bytes(key), timestamp_ms=time)
                pack_records([record], self._rules, now_ms, timestamp_ms=-1)
            size = packer.builder.try_append(self._limit, key, value, time, headers)
            if not size:
                packer.close(now_ms)
                if packer.size_bytes + self._limit > self._buffer_bytes:
                    self._write(self._wait)
                    packer = self._begin(now_ms)
                size = packer.builder.try_append(self._limit, key, value, time, headers)
            if size > self._limit:
                _close_large(packer, now_ms)
            if self._linger_ms is not None and self._linger is None:
                self._linger = self._schedule(self._linger_ms)

    def flush(self, *, wait: Wait | None = None) -> AppendInfo | None:
        """
        Write what waits; return what it became, None where nothing did.

        Args:
            wait: as for `Log.append`; the appender's own if None.

        Raises:
            LogClosedError, DiskFullError, LogOfflineError, LogStorageError: as for `append`.
        """
        with self._lock:
            self._ensure_open()
            return self._write(self._wait if wait is None else wait)

    def close(self) -> None:
        """
        Write what waits, and take no more. Idempotent.

        Raises:
            KafkaLogError: the records that wait could not be written, and are lost with this.
        """
        with self._lock:
            if self._closed:
                return
            try:
                self._write(self._wait)
            finally:
                self._closed = True
                self._cancel_linger()
                self._on_close(self)

    def become_inherited(self) -> None:
        """Refuse to work: this process was forked, and its parent writes what waits."""
        self._lock = threading.RLock()
        self._closed = self._is_inherited = True
        self._stuck = self._packer = None

    # ---------------------------------------------------------------------------------- private

    def _ensure_open(self) -> None:
        if self._is_inherited:
            raise forked_error("the appender")
        if self._closed:
            raise LogClosedError("the appender was closed")

    def _begin(self, now_ms: int) -> RunPacker:
        """Begin another run, by the settings of this moment."""
        rules = self._rules = self._rules_now()
        self._limit = min(rules.batch_bytes, rules.max_message_bytes, self._buffer_bytes)
        # Each record is judged when it comes, and never again.
        judged = replace(rules, is_key_required=False, before_ms=_ALWAYS, after_ms=_ALWAYS)
        self._packer = packer_of(judged, now_ms, builder=self._builder)
        return self._packer

    def _write(self, wait: Wait) -> AppendInfo | None:
        """Write what could not be written before, and then the rest; return the last of it."""
        info: AppendInfo | None = None
        if self._stuck is not None:
            info = self._write_run(self._stuck, wait)
        packer = self._packer
        if packer is not None:
            if packer.builder.count:
                packer.close(self._clock.now_ms())
            run, self._packer = packer.run(), None
            if run.record_count:
                info = self._write_run(run, wait)
        return info

    def _write_run(self, run: MemoryRecords, wait: Wait) -> AppendInfo:
        self._stuck = run
        try:
            info = self._append_run(run, wait)
        except InvalidRecordError:
            # Only a wrapper of v0 that outgrew the limit when it got its offsets: it always will.
            self._stuck = None
            raise
        self._stuck = None
        self._cancel_linger()
        if self._on_append is not None:
            self._on_append(info)
        return info

    def _schedule(self, delay_ms: int) -> ScheduledTask:
        return self._scheduler.schedule("appender-linger", self._write_late, delay_ms=delay_ms)

    def _cancel_linger(self) -> None:
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None

    def _write_late(self) -> None:
        """Write what has waited long enough; after an error try again as much later."""
        with self._lock:
            self._linger = None
            if self._closed:
                return
            try:
                self._write(self._wait)
                self.last_error = None
            except KafkaLogError as error:
                self.last_error = error
                logger.warning("records of an appender wait on: %s", error)
                if not isinstance(error, LogClosedError):
                    self._linger = self._schedule(max(self._linger_ms or 0, 1))


def _close_large(packer: RunPacker, now_ms: int) -> None:
    """Close the batch of a record that is larger than a batch should be, or refuse it."""
    try:
        packer.close(now_ms)
    except RecordTooLargeError:
        packer.drop()
        raise
