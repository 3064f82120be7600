"""View of one batch: its header, and its records on demand.

A view holds its bytes (of a mapped segment, or of a buffer); records are decompressed and decoded
at the first access. Errors name the file, the position of the batch in it, and its offset.

The kernels of a format are chosen once by the magic; readers of a view need no case for it. A
message of magic 0 or 1 is a batch: of one record, or a wrapper. The header of a wrapper has neither
the number of its records nor the offset of the first, so both are read from the records.

Thread-safety: immutable but for the cached payload, which two threads may compute twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from os import PathLike
from typing import Final

from typing_extensions import Buffer

from kafkalog._core.batch import check_batch
from kafkalog._core.columns import RecordColumns, decode_columns
from kafkalog._core.header import BatchHeader, parse_header
from kafkalog._core.message import (
    check_messages,
    count_messages,
    decode_message_columns,
    decode_message_lists,
    decode_message_tuples,
    decode_messages,
    first_message_offset,
    wrapper_value,
)
from kafkalog._core.record import (
    ArenaAnchors,
    Record,
    decode_lists,
    decode_records,
    decode_tuples,
)
from kafkalog._core.record import check_records as check_record_bytes
from kafkalog._core.status import STATUS_CODES, check_status
from kafkalog.errors import KafkaLogError, LogStorageError
from kafkalog.layout import MAGIC_V2, RECORD_BATCH_OVERHEAD
from kafkalog.records.codecs import DEFAULT_LIMIT_BYTES, Codec, decompress
from kafkalog.records.control import ControlRecord, decode_control

__all__ = ["BatchView"]

_TRUNCATED: Final = STATUS_CODES["TRUNCATED"]


class _ThreadAnchors(threading.local):
    """Anchors of one thread, which keep memory allocated from one batch to the next."""

    def __init__(self) -> None:
        self.anchors = ArenaAnchors()


_THREAD_ANCHORS = _ThreadAnchors()


class _BatchKernels:
    """Magic 2."""

    records = staticmethod(decode_records)
    columns = staticmethod(decode_columns)
    check = staticmethod(check_record_bytes)

    @staticmethod
    def tuples(
        payload: Buffer, header: BatchHeader, start: int, end: int, *, strict: bool
    ) -> list[tuple[bytes | None, bytes | None]]:
        """Return (key, value) of each record."""
        anchors = _THREAD_ANCHORS.anchors
        return decode_tuples(payload, header, start, end, strict=strict, anchors=anchors)

    @staticmethod
    def lists(
        payload: Buffer, header: BatchHeader, start: int, end: int, *, strict: bool
    ) -> tuple[list[bytes | None], list[bytes | None]]:
        """Return all keys and all values."""
        anchors = _THREAD_ANCHORS.anchors
        return decode_lists(payload, header, start, end, strict=strict, anchors=anchors)

    @staticmethod
    def uncompressed(header: BatchHeader) -> tuple[int, int]:
        """Return (start, end) of the records in a batch that is not compressed."""
        return RECORD_BATCH_OVERHEAD, header.size_bytes

    @staticmethod
    def compressed(_data: Buffer, header: BatchHeader, _strict: bool) -> tuple[int, int]:
        """Return (start, end) of what the codec made."""
        return RECORD_BATCH_OVERHEAD, header.size_bytes


class _MessageKernels:
    """Magic 0 and 1."""

    records = staticmethod(decode_messages)
    tuples = staticmethod(decode_message_tuples)
    lists = staticmethod(decode_message_lists)
    columns = staticmethod(decode_message_columns)
    check = staticmethod(check_messages)

    @staticmethod
    def uncompressed(header: BatchHeader) -> tuple[int, int]:
        """Return the bounds of the only message: the whole batch."""
        return 0, header.size_bytes

    @staticmethod
    def compressed(data: Buffer, header: BatchHeader, strict: bool) -> tuple[int, int]:
        """Return (start, end) of the wrapper's value, which is what the codec made."""
        return wrapper_value(data, header, strict=strict)


class BatchView:
    """
    One batch of any format.

    Args:
        data: the bytes of exactly this batch.
        path: the file they come from, for errors.
        position: where the batch begins in that file.

    Attributes:
        data: the bytes.
        header: the parsed header.
        path, position: as given.

    Raises:
        CorruptRecordError: the header is damaged.
    """

    __slots__ = ("_kernels", "_payload", "data", "header", "path", "position")

    def __init__(
        self, data: Buffer, *, path: str | PathLike[str] | None = None, position: int = 0
    ) -> None:
        self.data = memoryview(data)
        self.path = path
        self.position = position
        self._payload: Buffer | None = None
        try:
            self.header: BatchHeader = parse_header(self.data)
        except KafkaLogError as error:
            raise self._located(error) from None
        self._kernels: type[_BatchKernels | _MessageKernels] = (
            _BatchKernels if self.header.magic == MAGIC_V2 else _MessageKernels
        )

    def __repr__(self) -> str:
        header = self.header
        where = f"{self.codec.kafka_name}, {header.size_bytes} bytes at {self.position}"
        if header.is_wrapper:
            return f"<BatchView offsets to {header.last_offset}, {where}>"
        return (
            f"<BatchView offsets {header.base_offset} to {header.last_offset},"
            f" {header.record_count} records, {where}>"
        )

    def __len__(self) -> int:
        """Return the number of records: the header's, but those of a wrapper are counted."""
        if not self.header.is_wrapper:
            return self.header.record_count
        return self._ask_messages(partial(count_messages, strict=False))

    @property
    def base_offset(self) -> int:
        """
        Offset of the first record that the batch had when it was written.

        Of a wrapper, that of the first record inside, which takes decompressing it: where a lower
        bound will do, use the `last_offset` of the batch before.
        """
        if not self.header.is_wrapper:
            return self.header.base_offset
        return self._ask_messages(first_message_offset)

    def _ask_messages(self, ask: Callable[[Buffer, BatchHeader, int, int], int]) -> int:
        payload, start, end = self.payload(strict=False)
        try:
            return ask(payload, self.header, start, end)
        except KafkaLogError as error:
            raise self._located(error) from None

    @property
    def last_offset(self) -> int:
        """Offset of the last record that the batch had when it was written."""
        return self.header.last_offset

    @property
    def next_offset(self) -> int:
        """One above the last offset."""
        return self.header.next_offset

    @property
    def codec(self) -> Codec:
        """Codec of the records; UnsupportedCodecError for codec bits 5 to 7."""
        try:
            return Codec.of(self.header.codec)
        except KafkaLogError as error:
            raise self._located(error) from None

    def check(self) -> None:
        """Check length, magic and CRC; CorruptRecordError where one fails."""
        status = check_batch(self.data)
        check_status(status, self.position, self.path, self.header.base_offset)

    def payload(
        self, limit_bytes: int = DEFAULT_LIMIT_BYTES, *, strict: bool = True
    ) -> tuple[Buffer, int, int]:
        """
        Return (buffer, start, end) of the uncompressed records; for magic 0 and 1, of messages.

        Args:
            limit_bytes: largest size of the uncompressed records.
            strict: refuse a wrapper with bytes after its value.

        Raises:
            CorruptRecordError: the stream is damaged, or larger than `limit_bytes` uncompressed.
            UnsupportedCodecError: the codec is unknown, also to the format, or its library missing.
        """
        header = self.header
        if header.codec == Codec.NONE:
            if header.size_bytes > len(self.data):
                check_status(_TRUNCATED, self.position, self.path, header.base_offset)
            return self.data, *self._kernels.uncompressed(header)
        try:
            start, end = self._kernels.compressed(self.data, header, strict)
            payload = self._payload
            if payload is None:
                self._payload = payload = decompress(
                    header.codec,
                    self.data[start:end],
                    limit_bytes=limit_bytes,
                    magic=header.magic,
                )
        except KafkaLogError as error:
            raise self._located(error) from error
        return payload, 0, memoryview(payload).nbytes

    def records(
        self, *, strict: bool = True, limit_bytes: int = DEFAULT_LIMIT_BYTES
    ) -> list[Record]:
        """
        Return the records; key, value and headers of each are made when touched.

        Args:
            strict: refuse offset deltas that fall, repeat or leave the batch, and in messages of
                the old formats all else that Kafka's readers let pass (`_core/message.pyx`).
            limit_bytes: largest size of the uncompressed records.

        Raises:
            CorruptRecordError: the records do not agree with the header of the batch.
        """
        payload, start, end = self.payload(limit_bytes, strict=strict)
        try:
            return self._kernels.records(payload, self.header, start, end, strict=strict)
        except KafkaLogError as error:
            raise self._located(error) from None

    def tuples(
        self, *, strict: bool = True, limit_bytes: int = DEFAULT_LIMIT_BYTES
    ) -> list[tuple[bytes | None, bytes | None]]:
        """Return (key, value) of each record; arguments and errors as for `records`."""
        payload, start, end = self.payload(limit_bytes, strict=strict)
        try:
            return self._kernels.tuples(payload, self.header, start, end, strict=strict)
        except KafkaLogError as error:
            raise self._located(error) from None

    def lists(
        self, *, strict: bool = True, limit_bytes: int = DEFAULT_LIMIT_BYTES
    ) -> tuple[list[bytes | None], list[bytes | None]]:
        """Return all keys and all values; arguments and errors as for `records`."""
        payload, start, end = self.payload(limit_bytes, strict=strict)
        try:
            return self._kernels.lists(payload, self.header, start, end, strict=strict)
        except KafkaLogError as error:
            raise self._located(error) from None

    def columns(
        self,
        columns: RecordColumns,
        *,
        strict: bool = True,
        limit_bytes: int = DEFAULT_LIMIT_BYTES,
    ) -> tuple[int, Buffer]:
        """
        Decode into caller-owned columns; return (rows, buffer that their positions point into).

        Arguments and errors as for `records`.
        """
        payload, start, end = self.payload(limit_bytes, strict=strict)
        try:
            rows = self._kernels.columns(payload, self.header, start, end, columns, strict=strict)
        except KafkaLogError as error:
            raise self._located(error) from None
        return rows, payload

    def check_records(self, *, strict: bool = True, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        """Check every record without building any; CorruptRecordError where one fails."""
        payload, start, end = self.payload(limit_bytes, strict=strict)
        status = self._kernels.check(payload, self.header, start, end, strict=strict)
        check_status(status, self.position, self.path, self.header.base_offset)

    def control_records(self) -> list[ControlRecord]:
        """Return the decoded control records; an empty list for an emptied batch."""
        return [decode_control(record.key, record.value) for record in self.records()]

    def _located(self, error: KafkaLogError) -> KafkaLogError:
        """Return the error with file, position and offset of this batch in it."""
        if isinstance(error, LogStorageError):
            return error  # it has the file, and the position that cannot be read
        header = getattr(self, "header", None)
        base_offset = None if header is None else header.base_offset
        where = f"position {self.position}" if self.path is None else f"{self.path}:{self.position}"
        offset = "" if base_offset is None else f", batch at offset {base_offset}"
        located = type(error)(f"{where}{offset}: {error}")
        located.path = None if self.path is None else str(self.path)
        located.position = self.position
        located.base_offset = base_offset
        return located
