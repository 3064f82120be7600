"""One batch where it lies: its header, and its records when asked for.

A view holds its bytes (a mapped segment, or what was read of it); nothing is decompressed or
decoded before it is touched. Errors name the file, the position of the batch in it, and its offset.

Thread-safety: immutable but for the cached payload, which two threads may compute twice.
"""

from __future__ import annotations

from os import PathLike

from typing_extensions import Buffer

from kafkalog._core.batch import check_batch
from kafkalog._core.columns import RecordColumns, decode_columns
from kafkalog._core.header import BatchHeader, parse_header
from kafkalog._core.record import Record, decode_lists, decode_records, decode_tuples
from kafkalog._core.record import check_records as check_record_bytes
from kafkalog._core.status import STATUS_CODES, check_status
from kafkalog.errors import KafkaLogError
from kafkalog.records.codecs import DEFAULT_LIMIT_BYTES, Codec, decompress
from kafkalog.records.control import ControlRecord, decode_control

__all__ = ["BatchView"]

RECORDS_POSITION = 61
MAGIC_V2 = 2


class BatchView:
    """
    One batch of format v2.

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

    __slots__ = ("_payload", "data", "header", "path", "position")

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

    def __repr__(self) -> str:
        header = self.header
        return (
            f"<BatchView offsets {header.base_offset} to {header.last_offset},"
            f" {header.record_count} records, {self.codec.kafka_name},"
            f" {header.size_bytes} bytes at {self.position}>"
        )

    def __len__(self) -> int:
        """Return the number of records that the header declares."""
        return self.header.record_count

    @property
    def base_offset(self) -> int:
        """Offset of the first record that the batch had when it was written."""
        return self.header.base_offset

    @property
    def last_offset(self) -> int:
        """Offset of the last record that the batch had when it was written."""
        return self.header.last_offset

    @property
    def codec(self) -> Codec:
        """How the records are compressed; UnsupportedCodecError for codec bits 5 to 7."""
        try:
            return Codec.of(self.header.codec)
        except KafkaLogError as error:
            raise self._located(error) from None

    def check(self) -> None:
        """Check length, magic and CRC; CorruptRecordError where one fails."""
        status = check_batch(self.data)
        check_status(status, self.position, self.path, self.header.base_offset)

    def payload(self, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> tuple[Buffer, int, int]:
        """
        Return (buffer, start, end) of the uncompressed records.

        Raises:
            CorruptRecordError: the stream is damaged, or larger than `limit_bytes` uncompressed.
            UnsupportedCodecError: the codec is unknown or its library missing.
            InvalidRecordError: the batch is a message of magic 0 or 1.
        """
        end = self.header.size_bytes
        if self.header.magic < MAGIC_V2:
            check_status(STATUS_CODES["LEGACY"], self.position, self.path, self.header.base_offset)
        if self.header.codec == Codec.NONE:
            return self.data, RECORDS_POSITION, end
        payload = self._payload
        if payload is None:
            try:
                payload = decompress(
                    self.header.codec, self.data[RECORDS_POSITION:end], limit_bytes=limit_bytes
                )
            except KafkaLogError as error:
                raise self._located(error) from error
            self._payload = payload
        return payload, 0, memoryview(payload).nbytes

    def records(
        self, *, strict: bool = True, limit_bytes: int = DEFAULT_LIMIT_BYTES
    ) -> list[Record]:
        """
        Return the records; key, value and headers of each are made when touched.

        Args:
            strict: refuse offset deltas that fall, repeat or leave the batch.
            limit_bytes: largest size of the uncompressed records.

        Raises:
            CorruptRecordError: records do not fill the batch as its header says.
        """
        payload, start, end = self.payload(limit_bytes)
        try:
            return decode_records(payload, self.header, start, end, strict=strict)
        except KafkaLogError as error:
            raise self._located(error) from None

    def tuples(
        self, *, strict: bool = True, limit_bytes: int = DEFAULT_LIMIT_BYTES
    ) -> list[tuple[bytes | None, bytes | None]]:
        """Return (key, value) of each record; arguments and errors as for `records`."""
        payload, start, end = self.payload(limit_bytes)
        try:
            return decode_tuples(payload, self.header, start, end, strict=strict)
        except KafkaLogError as error:
            raise self._located(error) from None

    def lists(
        self, *, strict: bool = True, limit_bytes: int = DEFAULT_LIMIT_BYTES
    ) -> tuple[list[bytes | None], list[bytes | None]]:
        """Return all keys and all values; arguments and errors as for `records`."""
        payload, start, end = self.payload(limit_bytes)
        try:
            return decode_lists(payload, self.header, start, end, strict=strict)
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
        payload, start, end = self.payload(limit_bytes)
        try:
            return decode_columns(payload, self.header, start, end, columns, strict=strict), payload
        except KafkaLogError as error:
            raise self._located(error) from None

    def check_records(self, *, strict: bool = True, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        """Check every record without building any; CorruptRecordError where one fails."""
        payload, start, end = self.payload(limit_bytes)
        status = check_record_bytes(payload, self.header, start, end, strict=strict)
        check_status(status, self.position, self.path, self.header.base_offset)

    def control_records(self) -> list[ControlRecord]:
        """Return what the records of a control batch say; an empty list for an emptied batch."""
        return [decode_control(record.key, record.value) for record in self.records()]

    def _located(self, error: KafkaLogError) -> KafkaLogError:
        """Return the error with file, position and offset of this batch in it."""
        header = getattr(self, "header", None)
        base_offset = None if header is None else header.base_offset
        where = f"position {self.position}" if self.path is None else f"{self.path}:{self.position}"
        offset = "" if base_offset is None else f", batch at offset {base_offset}"
        located = type(error)(f"{where}{offset}: {error}")
        located.path = None if self.path is None else str(self.path)
        located.position = self.position
        located.base_offset = base_offset
        return located
