"""Fetch replies: message sets in a frame, sent by `sendfile`, and read with a truncated end.

The frame is that of the first version of Kafka's log:

    fetch reply            total length (4 bytes), error code (2 bytes), message set
    multi-partition reply  total length (4 bytes), error code (2 bytes), fetch reply after reply

Numbers are big-endian; a total length counts the bytes after it. A message set is the result of
`Log.read`: consecutive batches in any format, each with its size at bytes 8 to 11; the reader's
limit may truncate the last one. `FetchReader` is the receiver: it stops at a truncated batch, and
fetches twice the size if no batch is complete.

Thread-safety: a reply, a reader and a connection belong to one thread at a time. Input of the other
side is not trusted: sizes are checked before memory is allocated.
"""

from __future__ import annotations

import socket as sockets
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from typing_extensions import Buffer

from kafkalog._core.record import Record
from kafkalog._engine.fetch_data import FetchData
from kafkalog.errors import CorruptRecordError, FetchTooLargeError, KafkaLogError
from kafkalog.files.sendfile import SocketLike, send_memory
from kafkalog.layout import BATCH_FRAME
from kafkalog.log.walk import check_wrapper
from kafkalog.records.batch_view import BatchView
from kafkalog.records.codecs import DEFAULT_LIMIT_BYTES
from kafkalog.records.conversion.fetch import ConvertedFetch

if TYPE_CHECKING:
    import asyncio

__all__ = [
    "NO_ERROR",
    "UNKNOWN_ERROR",
    "FetchReader",
    "FetchReply",
    "MultiFetchReply",
    "ReceivedReply",
    "parse_multi_reply",
    "parse_reply",
    "receive_reply",
    "send_reply",
]

NO_ERROR: Final = 0
# Code in Kafka's protocol for an error without a code.
UNKNOWN_ERROR: Final = -1

_HEAD: Final = struct.Struct(">ih")
_LENGTH: Final = struct.Struct(">i")
_CODE_BYTES: Final = _HEAD.size - _LENGTH.size
_LENGTH_MAX: Final = 2**31 - 1

_Content = FetchData | ConvertedFetch | Buffer | None


class FetchReply:
    """
    The reply for one partition.

    >>> reply = FetchReply(log.read(offset, max_bytes, min_one_batch=False))
    >>> while reply.left_bytes:
    ...     reply.send_to(connection)

    Args:
        content: the message set: a slice of a log, the result of a conversion for an old consumer,
            or bytes; None for an empty one.
        error: the error to report instead, by its code in Kafka's protocol.

    Attributes:
        error_code: 0 for no error.
        size_bytes: size of the whole reply, including its length.
        sent_bytes: number of bytes sent so far.
    """

    def __init__(self, content: _Content = None, *, error: KafkaLogError | None = None) -> None:
        self.error_code = _code_of(error)
        length = _CODE_BYTES + _size_of(content)
        if length > _LENGTH_MAX:
            raise ValueError(f"a reply must have at most {_LENGTH_MAX} bytes, got {length}")
        self.size_bytes = _LENGTH.size + length
        self.sent_bytes = 0
        self._pieces = _pieces(_HEAD.pack(length, self.error_code), content)
        self._piece: FetchData | memoryview = memoryview(b"")
        self._piece_sent = 0

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} error code {self.error_code},"
            f" {self.sent_bytes} of {self.size_bytes} bytes sent>"
        )

    @property
    def left_bytes(self) -> int:
        """Number of bytes not sent yet."""
        return self.size_bytes - self.sent_bytes

    def send_to(self, target: SocketLike, *, more: bool = False) -> int:
        """
        Send the remaining bytes that the socket accepts; return their number.

        A blocking socket accepts all of them. After a non-blocking socket has accepted a part, wait
        until it is writable and call again: the reply has its position. See also
        `FetchData.send_to`.

        Args:
            target: a connected socket.
            more: True if another reply follows at once.

        Raises:
            LogStorageError, LogClosedError, TimeoutError, OSError: as for `FetchData.send_to`. The
                other side has a part of the reply, so the caller must close the connection.
        """
        before = self.sent_bytes
        while self.left_bytes:
            piece = self._piece
            if self._piece_sent == len(piece):
                self._piece, self._piece_sent = next(self._pieces), 0
                continue
            if isinstance(piece, FetchData):
                count = piece.send_to(target, self._piece_sent)
            else:
                rest = piece[self._piece_sent :]
                count = send_memory(target, rest, more=more or len(rest) < self.left_bytes)
            self._piece_sent += count
            self.sent_bytes += count
            if self._piece_sent < len(piece):
                break
        return self.sent_bytes - before


class MultiFetchReply:
    """
    The reply for several partitions, in the order of the request.

    Args:
        replies: one reply for each partition; they must not be sent yet.
        error: an error of all partitions.

    Attributes:
        error_code, size_bytes, sent_bytes: as in a `FetchReply`.
    """

    def __init__(
        self, replies: Sequence[FetchReply] = (), *, error: KafkaLogError | None = None
    ) -> None:
        length = _CODE_BYTES + sum(reply.size_bytes for reply in replies)
        if length > _LENGTH_MAX:
            raise ValueError(f"a reply must have at most {_LENGTH_MAX} bytes, got {length}")
        if any(reply.sent_bytes for reply in replies):
            raise ValueError("replies must not be sent yet, not even in part")
        self.error_code = _code_of(error)
        self.size_bytes = _LENGTH.size + length
        self._head = memoryview(_HEAD.pack(length, self.error_code))
        self._head_sent = 0
        self._replies = tuple(replies)
        self._slot = 0

    def __repr__(self) -> str:
        return (
            f"<MultiFetchReply of {len(self._replies)}, error code {self.error_code},"
            f" {self.sent_bytes} of {self.size_bytes} bytes sent>"
        )

    @property
    def sent_bytes(self) -> int:
        """Number of bytes sent so far."""
        return self._head_sent + sum(reply.sent_bytes for reply in self._replies)

    @property
    def left_bytes(self) -> int:
        """Number of bytes not sent yet."""
        return self.size_bytes - self.sent_bytes

    def send_to(self, target: SocketLike) -> int:
        """Send the remaining bytes, like `FetchReply.send_to`."""
        count = 0
        if self._head_sent < len(self._head):
            rest = self._head[self._head_sent :]
            count = send_memory(target, rest, more=bool(self._replies))
            self._head_sent += count
            if count < len(rest):
                return count
        while self._slot < len(self._replies):
            reply = self._replies[self._slot]
            count += reply.send_to(target, more=self._slot + 1 < len(self._replies))
            if reply.left_bytes:
                break
            self._slot += 1
        return count


async def send_reply(reply: FetchReply | MultiFetchReply, connection: sockets.socket) -> None:
    """
    Send a reply over a non-blocking socket of the running event loop.

    Other tasks run while the socket accepts no more bytes. Bytes that are missing in the page cache
    are read within the call.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    while True:
        reply.send_to(connection)
        if not reply.left_bytes:
            return
        await _writable(loop, connection)


async def _writable(loop: asyncio.AbstractEventLoop, connection: sockets.socket) -> None:
    is_writable = loop.create_future()
    loop.add_writer(connection, _wake_writer, is_writable)
    try:
        await is_writable
    finally:
        loop.remove_writer(connection)


def _wake_writer(future: asyncio.Future[None]) -> None:
    # May be called twice before the waiting task runs, or after it was cancelled.
    if not future.done():
        future.set_result(None)


# ------------------------------------------------------------------------------ receiving


class ReceivedReply(NamedTuple):
    """
    A received fetch reply.

    Attributes:
        error_code: 0 for no error, or a code of Kafka's protocol.
        message_set: consecutive batches; the last one may be truncated.
    """

    error_code: int
    message_set: memoryview


def parse_reply(data: Buffer) -> ReceivedReply:
    """
    Return the content of a fetch reply, given with its length, without a copy.

    Raises:
        CorruptRecordError: the size of the data differs from the length in it.
    """
    view = memoryview(data).cast("B")
    reply, end = _reply_at(view, 0)
    _check_end(view, end)
    return reply


def parse_multi_reply(data: Buffer) -> tuple[int, list[ReceivedReply]]:
    """
    Return the error code of a multi-partition reply and the replies in it, without a copy.

    Raises:
        CorruptRecordError: the size of the data, or of a reply in it, differs from its length.
    """
    view = memoryview(data).cast("B")
    (error_code, inside), end = _reply_at(view, 0)
    _check_end(view, end)
    replies, position = [], 0
    while position < len(inside):
        reply, position = _reply_at(inside, position)
        replies.append(reply)
    return error_code, replies


def receive_reply(connection: sockets.socket, *, max_bytes: int = 64 << 20) -> memoryview:
    """
    Return the next complete reply of a connection, for `parse_reply` or `parse_multi_reply`.

    Args:
        connection: a blocking connection.
        max_bytes: largest size of a reply; a larger one is refused before it is read.

    Raises:
        CorruptRecordError: the length of the reply is impossible.
        FetchTooLargeError: the reply is larger than `max_bytes`.
        EOFError: the connection ended within the reply.
    """
    head = bytearray(_LENGTH.size)
    _receive_into(connection, memoryview(head))
    (length,) = _LENGTH.unpack(head)
    if length < _CODE_BYTES:
        raise CorruptRecordError(
            f"the length of a reply must be >= {_CODE_BYTES}, got {length}", position=0
        )
    if length + _LENGTH.size > max_bytes:
        raise FetchTooLargeError(f"a reply must have at most {max_bytes} bytes, got {length}")
    data = bytearray(_LENGTH.size + length)
    data[: _LENGTH.size] = head
    view = memoryview(data)
    _receive_into(connection, view[_LENGTH.size :])
    return view.toreadonly()


def _receive_into(connection: sockets.socket, target: memoryview) -> None:
    done = 0
    while done < len(target):
        count = connection.recv_into(target[done:])
        if not count:
            raise EOFError(f"the connection ended {len(target) - done} bytes early")
        done += count


class FetchReader:
    """
    Reader of one partition over fetch replies: its position and its next request.

    >>> reader = FetchReader(0)
    >>> for record in reader.records(ask):       # ask(offset, max_bytes) gives a message set
    ...     print(record.offset, record.value)

    A caller that cannot block in a call fetches itself and passes the message sets:

    >>> batches = reader.read(await ask(reader.offset, reader.max_bytes))

    Args:
        offset: first offset to read.
        max_bytes: size of a request.
        limit_bytes: largest size of a request, used if a batch is larger than `max_bytes`.
        decompressed_max_bytes: largest uncompressed size of the records of one batch.

    Attributes:
        offset, max_bytes: offset and size of the next request.
    """

    def __init__(
        self,
        offset: int,
        *,
        max_bytes: int = 1 << 20,
        limit_bytes: int = 64 << 20,
        decompressed_max_bytes: int = DEFAULT_LIMIT_BYTES,
    ) -> None:
        if not 0 < max_bytes <= limit_bytes:
            raise ValueError(f"max_bytes must be 1 to limit_bytes {limit_bytes}, got {max_bytes}")
        self.offset = offset
        self.max_bytes = max_bytes
        self._usual_bytes = max_bytes
        self._limit_bytes = limit_bytes
        self._decompressed_max_bytes = decompressed_max_bytes

    def read(self, message_set: Buffer) -> list[BatchView]:
        """
        Return the complete batches of a message set, CRC checked, and advance `offset`.

        If the message set is not empty and has no complete batch, `max_bytes` is doubled.

        Args:
            message_set: the result for `offset` and `max_bytes`; empty at the end of the log.

        Raises:
            FetchTooLargeError: the batch is larger than `limit_bytes`.
            CorruptRecordError: a batch is damaged, or all batches are below `offset`.
        """
        data = memoryview(message_set).cast("B")
        spans, needed = _whole_entries(data)
        if not spans:
            if len(data):
                self._grow_request(needed)
            return []
        batches = [BatchView(data[start:end], position=start) for start, end in spans]
        for batch in batches:
            batch.check()
        following = max(batch.header.next_offset for batch in batches)
        if following <= self.offset:
            raise CorruptRecordError(
                f"batches must end above the requested offset {self.offset}, got {following}",
                base_offset=batches[0].header.base_offset,
            )
        self.offset, self.max_bytes = following, self._usual_bytes
        return batches

    def batches(self, fetch: Callable[[int, int], Buffer]) -> Iterator[BatchView]:
        """
        Yield complete batches from `offset` on, until a message set is empty; then call again.

        Args:
            fetch: returns, for an offset and a size, a message set of at most that size that begins
                with the batch of that offset.

        Raises:
            FetchTooLargeError, CorruptRecordError: as `read`.
        """
        while True:
            data = fetch(self.offset, self.max_bytes)
            if not memoryview(data).nbytes:
                return
            yield from self.read(data)

    def records(self, fetch: Callable[[int, int], Buffer]) -> Iterator[Record]:
        """Yield the records of `batches`, without control records."""
        before: BatchView | None = None
        start = self.offset
        for batch in self.batches(fetch):
            if not batch.header.is_control:
                records = batch.records(limit_bytes=self._decompressed_max_bytes)
                check_wrapper(batch, records, before)
                yield from (record for record in records if record.offset >= start)
            before, start = batch, max(start, batch.header.next_offset)

    def _grow_request(self, needed: int) -> None:
        if self.max_bytes >= self._limit_bytes:
            raise FetchTooLargeError(
                f"the batch at offset {self.offset} must have at most {self._limit_bytes} bytes,"
                f" got at least {needed}",
                base_offset=self.offset,
            )
        while True:
            self.max_bytes = min(2 * self.max_bytes, self._limit_bytes)
            if self.max_bytes >= min(needed, self._limit_bytes):
                return


def _whole_entries(data: memoryview) -> tuple[list[tuple[int, int]], int]:
    """Return (start, end) of complete batches, and the smallest size of the last batch read."""
    spans: list[tuple[int, int]] = []
    position, needed = 0, BATCH_FRAME.size
    while len(data) - position >= BATCH_FRAME.size:
        _, size = BATCH_FRAME.unpack_from(data, position)
        if size < 0:
            raise CorruptRecordError(
                f"the size of a batch must be >= 0, got {size}", position=position
            )
        needed = BATCH_FRAME.size + size
        if needed > len(data) - position:
            break
        spans.append((position, position + needed))
        position += needed
    return spans, needed


def _reply_at(view: memoryview, position: int) -> tuple[ReceivedReply, int]:
    if len(view) - position < _HEAD.size:
        raise CorruptRecordError(
            f"a fetch reply must have at least {_HEAD.size} bytes, got {len(view) - position}",
            position=position,
        )
    length, error_code = _HEAD.unpack_from(view, position)
    begins = position + _LENGTH.size
    if not _CODE_BYTES <= length <= len(view) - begins:
        raise CorruptRecordError(
            f"the length of a reply must be {_CODE_BYTES} to {len(view) - begins}, got {length}",
            position=position,
        )
    end = begins + length
    return ReceivedReply(error_code, view[begins + _CODE_BYTES : end]), end


def _check_end(view: memoryview, end: int) -> None:
    if end != len(view):
        raise CorruptRecordError(
            f"the data must end with the reply, got {len(view) - end} more bytes", position=end
        )


def _code_of(error: KafkaLogError | None) -> int:
    if error is None:
        return NO_ERROR
    return UNKNOWN_ERROR if error.kafka_code is None else error.kafka_code


def _size_of(content: _Content) -> int:
    if content is None:
        return 0
    if isinstance(content, (FetchData, ConvertedFetch)):
        return content.size_bytes
    return memoryview(content).nbytes


def _pieces(head: bytes, content: _Content) -> Iterator[FetchData | memoryview]:
    yield memoryview(head)
    if isinstance(content, FetchData):
        yield content
    elif isinstance(content, ConvertedFetch):
        yield from (memoryview(chunk) for chunk in content.chunks())
    elif content is not None:
        yield memoryview(content).cast("B")
