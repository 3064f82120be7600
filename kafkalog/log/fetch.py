"""The result of `Log.read`: a range of one segment, whose bytes are fetched on first access.

The result keeps its segment: its bytes can be fetched, or sent, after the segment was deleted.
Fetched bytes stay valid after the log is closed, and a transfer that has begun can be finished.

Thread-safety: attributes and iterators from any thread; one thread at a time calls `send_to`.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kafkalog._core.batch import BatchColumns
from kafkalog._core.header import parse_header
from kafkalog._core.mapping import check_bytes
from kafkalog._core.record import Record
from kafkalog._core.status import STATUS_CODES
from kafkalog._engine.segment_slice import SegmentSlice
from kafkalog._engine.snapshot import ReadBound
from kafkalog.errors import (
    CorruptRecordError,
    InvalidRecordError,
    LogClosedError,
    LogStorageError,
)
from kafkalog.files.errors import translate
from kafkalog.files.filesystem import FileHandle
from kafkalog.files.sendfile import (
    SendfileRefusedError,
    SocketLike,
    can_sendfile,
    send_file,
    send_memory,
)
from kafkalog.indexes.transaction_index import AbortedTransaction
from kafkalog.log.batch_walk import ResumePoint, WalkDamage, WalkedBatches
from kafkalog.log.byte_source import MappedSource
from kafkalog.log.isolation import AbortedRecords
from kafkalog.log.walk import check_wrapper
from kafkalog.records.batch_view import BatchView

if TYPE_CHECKING:
    from kafkalog.log.segment import LogSegment
    from kafkalog.records.conversion.fetch import ConvertedFetch

__all__ = ["FetchData"]

TRUNCATED = STATUS_CODES["TRUNCATED"]


class FetchData(SegmentSlice):
    """
    A slice of a log: whole batches, the last one perhaps cut by `max_bytes` as in a Kafka fetch.

    The first batch contains the requested offset, and may begin below it.

    Attributes:
        start_offset: the requested offset.
        position: start of the slice in its segment, in bytes.
        size_bytes: its length.
        data: its bytes, read-only; of a sealed segment without a copy. Fetch them before `close`.
        following_offset: an offset that no batch here reaches: the base offset of the next segment,
            or the log end.
        log_start_offset, log_end_offset: the log's range at the time of the read.
        aborted_transactions: for a reader of committed records, the transactions that may hide
            batches of the slice, as a broker returns them to consumers; None for other readers.
    """

    __slots__ = ("__weakref__",)

    _segment: LogSegment
    _leased: FileHandle | None
    aborted_transactions: tuple[AbortedTransaction, ...] | None

    def __repr__(self) -> str:
        return (
            f"FetchData(start_offset={self.start_offset}, path={self.path.name!r},"
            f" position={self.position}, size_bytes={self.size_bytes})"
        )

    def set_aborted(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Set the transactions that may hide batches of the slice."""
        self.aborted_transactions = tuple(transactions)

    @property
    def path(self) -> Path:
        """The segment file that the bytes are in."""
        return self._segment.path

    def _fetch(self) -> memoryview:
        try:
            return self._segment.file.read(self.position, self.size_bytes)
        except ValueError as error:
            raise LogClosedError(
                f"the log was closed before the bytes of {self.path} were fetched", path=self.path
            ) from error

    def send_to(self, target: SocketLike, start: int = 0) -> int:
        """
        Send the bytes from `start` on to a socket, by `os.sendfile` if possible.

        Compressed or not, the bytes are sent as they are stored, without a copy in this process. If
        the system, the file system or the socket refuses (TLS does, which has to encrypt them),
        they are sent from the mapped segment. Bytes that were fetched already are sent from memory
        too, which in a log that is open read-only are all bytes, and so are bytes of a segment that
        was deleted.

        A blocking socket, or a socket with a timeout, gets all bytes. A non-blocking socket gets as
        many as it accepts; wait until it is writable, and continue:

        >>> sent += fetched.send_to(connection, sent)

        Args:
            target: a connected socket.
            start: number of bytes that were sent before.

        Returns:
            The number of bytes that this call sent.

        Raises:
            LogStorageError: the disk refused, or the file is shorter than it was.
            LogClosedError: the log was closed before the first byte was sent.
            TimeoutError, OSError: the socket failed.
        """
        if not 0 <= start <= self.size_bytes:
            raise ValueError(f"start must be in 0 to {self.size_bytes}, got {start}")
        handle = self._lease() if can_sendfile(target) else None
        if handle is not None:
            try:
                return send_file(target, handle, self.position + start, self.size_bytes - start)
            except SendfileRefusedError:
                self._leased, self._sends_memory = None, True
            except EOFError as error:
                raise LogStorageError(f"sending {error}", path=self.path) from error
            except OSError as error:
                # A broken connection has other error numbers.
                if error.errno == errno.EIO:
                    raise translate(error, self.path, doing="sending") from error
                raise
        return self._send_memory(target, start)

    def _send_memory(self, target: SocketLike, start: int) -> int:
        """Send from the mapped segment; LogStorageError if the disk cannot read it."""
        rest = self.data[start:]
        try:
            return send_memory(target, rest)
        except OSError as error:
            # The system cannot read lost pages of the mapping either, and reports EFAULT.
            if error.errno == errno.EFAULT:
                check_bytes(rest, touch=True)
            raise

    def _lease(self) -> FileHandle | None:
        """Return the file to send from; None to send from memory."""
        if self._leased is None and not self._sends_memory:
            # Fetched bytes are those that the reader has seen; the name may be another file by now.
            if not self.is_fetched:
                try:
                    self._leased = self._segment.file.lease()
                except OSError as error:
                    raise translate(error, self.path, doing="sending") from error
                except ValueError as error:
                    raise LogClosedError(
                        f"the log was closed before {self.path} was sent", path=self.path
                    ) from error
            self._sends_memory = self._leased is None
        return self._leased

    @property
    def first_offset(self) -> int | None:
        """
        Base offset of the first batch, None without a whole batch.

        The header of a wrapper of an old format has its last offset only; it is decompressed.
        """
        first = next(self.batches(), None)
        if first is None:
            return None
        if first.header.is_wrapper:
            # Within the log's limit; the view caches the payload.
            first.payload(self._segment.decompressed_max_bytes, strict=False)
        return first.base_offset

    @property
    def next_offset(self) -> int:
        """The offset to read next: one above the last whole batch here."""
        return max([self.start_offset, *(walked.next_offset for walked, _ in self._walks())])

    def batches(self) -> Iterator[BatchView]:
        """
        Yield the whole batches, CRC checked, aborted ones too.

        A batch cut by `max_bytes` is left out.
        """
        data, path = self.data, self.path
        for walked, columns in self._walks():
            starts = columns.position[: walked.count].tolist()
            sizes = columns.size_bytes[: walked.count].tolist()
            for start, size in zip(starts, sizes, strict=True):
                yield BatchView(
                    data[start : start + size], path=path, position=self.position + start
                )

    def _walks(self) -> Iterator[tuple[WalkedBatches, BatchColumns]]:
        """Yield runs of whole batches, and the columns that each filled, until the next one."""
        segment, columns = self._segment, BatchColumns(256)
        bound = ReadBound(self.bound_position, self.following_offset)

        def stop(damage: WalkDamage) -> None:
            if damage.status == TRUNCATED:
                return  # Cut by `max_bytes`.
            next_offset = max(damage.next_offset, self.start_offset)
            raise segment.corrupt_range_at(
                damage.position, bound, damage.status, next_offset, damage.resume_min
            ).to_error()

        source = MappedSource(self.data, self.position)
        start = ResumePoint(self.position, self._floor())
        for walked in segment.walk(start, bound, columns, stop, source=source):
            yield walked, columns

    def records(self) -> Iterator[Record]:
        """
        Yield the records from `start_offset` on; control and aborted ones are left out.

        Their key, value and headers are decoded on access.
        """
        for batch, records in self._data_batches():
            yield from self._records_of(batch) if records is None else records

    def tuples(self) -> Iterator[tuple[bytes | None, bytes | None]]:
        """Yield the (key, value) of the same records, without an object around them."""
        limit_bytes = self._segment.decompressed_max_bytes
        for batch, records in self._data_batches():
            if records is None:
                yield from batch.tuples(limit_bytes=limit_bytes)
            else:
                yield from ((record.key, record.value) for record in records)

    def lists(self) -> tuple[list[bytes | None], list[bytes | None]]:
        """Return the keys and the values of the same records; the fastest read of all of them."""
        limit_bytes = self._segment.decompressed_max_bytes
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        for batch, records in self._data_batches():
            if records is None:
                found = batch.lists(limit_bytes=limit_bytes)
            else:
                found = [each.key for each in records], [each.value for each in records]
            keys += found[0]
            values += found[1]
        return keys, values

    def _data_batches(self) -> Iterator[tuple[BatchView, list[Record] | None]]:
        """
        Yield the batches with visible records. If only some records of a batch are visible, or may
        be, they are decoded and yielded with it, else None.
        """
        before: BatchView | None = None
        aborted = AbortedRecords(self.aborted_transactions or ())
        for batch in self.batches():
            header = batch.header
            if not header.is_control and not aborted.is_hidden(header):
                if header.is_wrapper or header.base_offset < self.start_offset:
                    records = self._records_of(batch)
                    check_wrapper(batch, records, before)
                    yield batch, [each for each in records if each.offset >= self.start_offset]
                else:
                    yield batch, None
            before = batch

    def _records_of(self, batch: BatchView) -> list[Record]:
        return batch.records(limit_bytes=self._segment.decompressed_max_bytes)

    def _floor(self) -> int:
        """Return an offset below which no batch here begins; earlier batches end below it."""
        try:
            return min(self.start_offset, parse_header(self.data).base_offset)
        except (CorruptRecordError, InvalidRecordError):
            return 0

    def converted(self, magic: int) -> ConvertedFetch:
        """
        Return this slice as a consumer of an older format gets it; for v2 nothing is converted.

        Args:
            magic: format of the consumer: 0 for fetches of version 0 and 1, 1 for 2 and 3.

        Raises:
            UnsupportedCodecError: the first batch is compressed with zstd, which old formats do not
                have. A later batch with zstd only ends the data.
            CorruptRecordError: the first batch is damaged.
        """
        # Imported here, so that readers without conversion do not load the modules.
        from kafkalog.records.conversion.fetch import ConvertedFetch
        from kafkalog.records.conversion.options import ConversionOptions

        if magic not in (0, 1):
            raise ValueError(f"magic must be 0 or 1, got {magic}")
        options = ConversionOptions(
            magic,
            first_offset=self.start_offset,
            limit_bytes=self._segment.decompressed_max_bytes,
        )
        return ConvertedFetch(self.batches(), self.data, options)
