"""Parts of the result of `Log.read`: one decodes its range, one sends it to a socket.

Thread-safety: a decoder keeps no state, and serves any thread; a sender serves one at a time.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafkalog._core.batch import BatchColumns
from kafkalog._core.header import parse_header
from kafkalog._core.mapping import check_bytes
from kafkalog._core.record import Record
from kafkalog._core.status import STATUS_CODES
from kafkalog._engine.fetch_data import FetchData
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
from kafkalog.log.batch_walk import ResumePoint, WalkDamage, WalkedBatches
from kafkalog.log.byte_source import MappedSource
from kafkalog.log.isolation import AbortedRecords
from kafkalog.log.walk import check_wrapper
from kafkalog.records.batch_view import BatchView

if TYPE_CHECKING:
    from kafkalog.records.conversion.fetch import ConvertedFetch

__all__ = ["FETCH_PARTS", "FetchDecoder", "FetchParts", "FetchSender"]

TRUNCATED = STATUS_CODES["TRUNCATED"]


class FetchParts:
    """Makes the parts of a result; one object serves all logs."""

    def decoder(self, fetched: FetchData) -> FetchDecoder:
        """Return the part that decodes a range."""
        return FetchDecoder(fetched)

    def sender(self) -> FetchSender:
        """Return the part that sends one range."""
        return FetchSender()


class FetchSender:
    """
    Sends one range to a socket, in as many calls as it takes.

    The first call decides whether the file or the memory is sent.
    """

    def __init__(self) -> None:
        self._leased: FileHandle | None = None
        self._sends_memory = False

    def send(self, fetched: FetchData, target: SocketLike, start: int) -> int:
        """Send the bytes from `start` on; see `FetchData.send_to`."""
        handle = self._lease(fetched) if can_sendfile(target) else None
        if handle is not None:
            try:
                return send_file(
                    target, handle, fetched.position + start, fetched.size_bytes - start
                )
            except SendfileRefusedError:
                self._leased, self._sends_memory = None, True
            except EOFError as error:
                raise LogStorageError(f"sending {error}", path=fetched.path) from error
            except OSError as error:
                # A broken connection has other error numbers.
                if error.errno == errno.EIO:
                    raise translate(error, fetched.path, doing="sending") from error
                raise
        return _send_memory(fetched, target, start)

    def _lease(self, fetched: FetchData) -> FileHandle | None:
        """Return the file to send from; None to send from memory."""
        if self._leased is None and not self._sends_memory:
            # Fetched bytes are those that the reader has seen; the name may be another file by now.
            if not fetched.is_fetched:
                try:
                    self._leased = fetched.segment.file.lease()
                except OSError as error:
                    raise translate(error, fetched.path, doing="sending") from error
                except ValueError as error:
                    raise LogClosedError(
                        f"the log was closed before {fetched.path} was sent", path=fetched.path
                    ) from error
            self._sends_memory = self._leased is None
        return self._leased


def _send_memory(fetched: FetchData, target: SocketLike, start: int) -> int:
    """Send from the mapped segment; LogStorageError if the disk cannot read it."""
    rest = fetched.data[start:]
    try:
        return send_memory(target, rest)
    except OSError as error:
        # The system cannot read lost pages of the mapping either, and reports EFAULT.
        if error.errno == errno.EFAULT:
            check_bytes(rest, touch=True)
        raise


class FetchDecoder:
    """
    Decodes the range of a result; the methods are those of `FetchData`.

    Args:
        fetched: the result.
    """

    def __init__(self, fetched: FetchData) -> None:
        self._fetched = fetched
        self._segment = fetched.segment

    def first_offset(self) -> int | None:
        """Return the base offset of the first batch."""
        first = next(self.batches(), None)
        if first is None:
            return None
        if first.header.is_wrapper:
            # Within the log's limit; the view caches the payload.
            first.payload(self._segment.decompressed_max_bytes, strict=False)
        return first.base_offset

    def next_offset(self) -> int:
        """Return the offset to read next."""
        return max(
            [self._fetched.start_offset, *(walked.next_offset for walked, _ in self._walks())]
        )

    def batches(self) -> Iterator[BatchView]:
        """Yield the whole batches."""
        data, path = self._fetched.data, self._fetched.path
        for walked, columns in self._walks():
            starts = columns.position[: walked.count].tolist()
            sizes = columns.size_bytes[: walked.count].tolist()
            for start, size in zip(starts, sizes, strict=True):
                yield BatchView(
                    data[start : start + size], path=path, position=self._fetched.position + start
                )

    def _walks(self) -> Iterator[tuple[WalkedBatches, BatchColumns]]:
        """Yield runs of whole batches, and the columns that each filled, until the next one."""
        segment, columns = self._segment, BatchColumns(256)
        bound = ReadBound(self._fetched.bound_position, self._fetched.following_offset)

        def stop(damage: WalkDamage) -> None:
            if damage.status == TRUNCATED:
                return  # Cut by `max_bytes`.
            next_offset = max(damage.next_offset, self._fetched.start_offset)
            raise segment.corrupt_range_at(
                damage.position, bound, damage.status, next_offset, damage.resume_min
            ).to_error()

        source = MappedSource(self._fetched.data, self._fetched.position)
        start = ResumePoint(self._fetched.position, self._floor())
        for walked in segment.walk(start, bound, columns, stop, source=source):
            yield walked, columns

    def records(self) -> Iterator[Record]:
        """Yield the records."""
        for batch, records in self._data_batches():
            yield from self._records_of(batch) if records is None else records

    def tuples(self) -> Iterator[tuple[bytes | None, bytes | None]]:
        """Yield the (key, value) of the records."""
        limit_bytes = self._segment.decompressed_max_bytes
        for batch, records in self._data_batches():
            if records is None:
                yield from batch.tuples(limit_bytes=limit_bytes)
            else:
                yield from ((record.key, record.value) for record in records)

    def lists(self) -> tuple[list[bytes | None], list[bytes | None]]:
        """Return the keys and the values of the records."""
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
        start_offset = self._fetched.start_offset
        aborted = AbortedRecords(self._fetched.aborted_transactions or ())
        for batch in self.batches():
            header = batch.header
            if not header.is_control and not aborted.is_hidden(header):
                if header.is_wrapper or header.base_offset < start_offset:
                    records = self._records_of(batch)
                    check_wrapper(batch, records, before)
                    yield batch, [each for each in records if each.offset >= start_offset]
                else:
                    yield batch, None
            before = batch

    def _records_of(self, batch: BatchView) -> list[Record]:
        return batch.records(limit_bytes=self._segment.decompressed_max_bytes)

    def _floor(self) -> int:
        """Return an offset below which no batch here begins; earlier batches end below it."""
        try:
            return min(self._fetched.start_offset, parse_header(self._fetched.data).base_offset)
        except (CorruptRecordError, InvalidRecordError):
            return 0

    def converted(self, magic: int) -> ConvertedFetch:
        """Return the range in an older format."""
        # Imported here, so that readers without conversion do not load the modules.
        from kafkalog.records.conversion.fetch import ConvertedFetch
        from kafkalog.records.conversion.options import ConversionOptions

        if magic not in (0, 1):
            raise ValueError(f"magic must be 0 or 1, got {magic}")
        options = ConversionOptions(
            magic,
            first_offset=self._fetched.start_offset,
            limit_bytes=self._segment.decompressed_max_bytes,
        )
        return ConvertedFetch(self.batches(), self._fetched.data, options)


FETCH_PARTS: Final = FetchParts()
