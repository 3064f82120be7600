"""One client's connection: frames in, responses out, in the order of the requests.

A task reads requests and begins each after the one before it; another task writes responses. So a
request is read and appended while the one before it waits for the disk. `Limits` bounds what
connections hold: the bytes of requests that are in memory (a connection stops reading above that),
the requests that wait for their response, and the time that a client may be idle or slow.

What is no request closes its own connection, with one line in the log.

Thread-safety: everything belongs to the loop; bytes of files are sent by the threads of `Sender`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final

from wire import FETCH, MalformedRequestError, Request, UnsupportedRequestError, read_request

from kafkalog import FetchData

__all__ = [
    "Budgets",
    "CloseConnectionError",
    "Connection",
    "Limits",
    "Reply",
    "Response",
    "Sender",
]

logger = logging.getLogger("kafka_gateway")

# Parts of a response: bytes, and slices of logs.
Response = Sequence[bytes | memoryview | FetchData]
# A response, a response that is not ready yet, or None where the client expects none.
Reply = Response | None | asyncio.Future[Response | None]

# API key, version, correlation id: the least that a request has.
_SIZE_MIN: Final = 8
_LENGTH_BYTES: Final = 4
# Requests of up to this size do not wait for larger ones.
SMALL_REQUEST_BYTES: Final = 1 << 20


class CloseConnectionError(Exception):
    """The protocol has no response for this, and closes the connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """
    Limits of connections.

    Attributes:
        max_connections: connections at a time; further ones are closed at once.
        max_request_bytes: largest request (Kafka: `socket.request.max.bytes`).
        max_in_flight_bytes: bytes of requests in memory, of all connections. A half is for requests
            of up to 1 MiB, which so do not wait for larger ones; a larger request than its half is
            admitted alone.
        max_pipelined: requests of a connection that wait for their response.
        idle_seconds: time without a request (Kafka: `connections.max.idle.ms`).
        transfer_seconds: time that a client may take for the bytes of a request, and without
            accepting any byte of a response.
    """

    max_connections: int = 1000
    max_request_bytes: int = 100 << 20
    max_in_flight_bytes: int = 256 << 20
    max_pipelined: int = 8
    idle_seconds: float = 600.0
    transfer_seconds: float = 30.0


class ByteBudget:
    """
    A number of bytes that connections share, in the order of their requests.

    Args:
        limit_bytes: largest number of bytes in use; a larger request is alone.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.used_bytes = 0

    async def acquire(self, size: int) -> None:
        """Wait until so many bytes are free, and use them."""
        if not self._waiting and self._fits(size):
            self.used_bytes += size
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append((size, waiter))
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.release(size)
            self._grant()
            raise

    def release(self, size: int) -> None:
        """Return bytes that were acquired."""
        self.used_bytes -= size
        self._grant()

    def _fits(self, size: int) -> bool:
        return not self.used_bytes or self.used_bytes + size <= self._limit_bytes

    def _grant(self) -> None:
        while self._waiting:
            size, waiter = self._waiting[0]
            if not waiter.done():
                if not self._fits(size):
                    return
                self.used_bytes += size
                waiter.set_result(None)
            self._waiting.popleft()


class Budgets:
    """
    The bytes of requests in memory: a half for small requests, a half for large ones.

    Args:
        limit_bytes: of both.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._small = ByteBudget(limit_bytes // 2)
        self._large = ByteBudget(limit_bytes // 2)

    def budget_for(self, size: int) -> ByteBudget:
        """Return the budget of a request."""
        return self._small if size <= SMALL_REQUEST_BYTES else self._large


class Sender:
    """
    Sending of responses: memory from the loop, slices of logs by `sendfile` from a thread.

    Args:
        threads: run `sendfile`, which reads from the disk what is not in the page cache.
        timeout: seconds that a client may take without accepting any byte.
    """

    def __init__(self, threads: Executor, timeout: float) -> None:
        self._threads = threads
        self._timeout = timeout

    async def send(self, connection: socket.socket, response: Response) -> None:
        """
        Send a response.

        Raises:
            TimeoutError: the client accepts nothing.
            OSError, KafkaLogError: as `FetchData.send_to`; a part of the response was sent.
        """
        loop = asyncio.get_running_loop()
        progress = _Progress(response)
        has_files = any(isinstance(piece, FetchData) for piece in response)
        while True:
            if has_files:
                await loop.run_in_executor(self._threads, progress.send_to, connection)
            else:
                progress.send_to(connection)
            if progress.is_complete:
                return
            async with asyncio.timeout(self._timeout):
                await _writable(loop, connection)


class _Progress:
    """A response and how much of it was sent."""

    def __init__(self, response: Response) -> None:
        self._pieces = [piece for piece in response if len(piece)]
        self._slot = 0
        self._sent = 0

    @property
    def is_complete(self) -> bool:
        return self._slot == len(self._pieces)

    def send_to(self, connection: socket.socket) -> None:
        """Send what a non-blocking socket accepts."""
        while not self.is_complete:
            piece = self._pieces[self._slot]
            if isinstance(piece, FetchData):
                count = piece.send_to(connection, self._sent)
            else:
                count = self._send_memory(connection, piece)
            self._sent += count
            if self._sent < len(piece):
                return
            self._slot, self._sent = self._slot + 1, 0

    def _send_memory(self, connection: socket.socket, piece: bytes | memoryview) -> int:
        more = socket.MSG_MORE if self._slot + 1 < len(self._pieces) else 0
        try:
            return connection.send(memoryview(piece)[self._sent :], more)
        except BlockingIOError:
            return 0


async def _writable(loop: asyncio.AbstractEventLoop, connection: socket.socket) -> None:
    is_writable: asyncio.Future[None] = loop.create_future()
    loop.add_writer(connection, _complete, is_writable)
    try:
        await is_writable
    finally:
        loop.remove_writer(connection)


def _complete(future: asyncio.Future[None]) -> None:
    # May be called twice before the waiting task runs, or after it was cancelled.
    if not future.done():
        future.set_result(None)


class Connection:
    """
    One client.

    Args:
        client: a non-blocking socket; closed at the end.
        name: address of the client, for the log.
        limits: see there.
        budgets: bytes of requests in memory.
        sender: sends responses.
        handle: begins a request, and returns its reply.
        refuse: returns the response for a request that is not served, or raises
            CloseConnectionError.
    """

    def __init__(
        self,
        client: socket.socket,
        name: str,
        *,
        limits: Limits,
        budgets: Budgets,
        sender: Sender,
        handle: Callable[[Request], Awaitable[Reply]],
        refuse: Callable[[UnsupportedRequestError], Response],
    ) -> None:
        self._socket = client
        self._name = name
        self._limits = limits
        self._budgets = budgets
        self._sender = sender
        self._handle = handle
        self._refuse = refuse
        self._replies: asyncio.Queue[Reply | _End] = asyncio.Queue()
        self._free_slots = asyncio.Semaphore(limits.max_pipelined)
        self._is_stopping = False
        self._waits_for_request = False
        self._reader: asyncio.Task[None] | None = None

    async def serve(self) -> None:
        """Answer requests until the client leaves, breaks a rule, or `stop`."""
        loop = asyncio.get_running_loop()
        reader = self._reader = loop.create_task(self._read_requests())
        writer = loop.create_task(self._write_responses())
        try:
            await asyncio.wait((reader, writer), return_when=asyncio.FIRST_COMPLETED)
            if reader.done() and not writer.done():
                self._replies.put_nowait(_End())
                await asyncio.wait((writer,))
        finally:
            for task in (reader, writer):
                task.cancel()
            ended = await asyncio.gather(reader, writer, return_exceptions=True)
            self._drop_replies()
            self._socket.close()
            for error in ended:
                self._report(error)

    def stop(self) -> None:
        """Read no more requests, and end after the responses of those that were read."""
        self._is_stopping = True
        if self._waits_for_request and self._reader is not None:
            self._reader.cancel()

    def _report(self, error: BaseException | None) -> None:
        match error:
            case None | asyncio.CancelledError() | ConnectionError() | EOFError():
                pass
            case TimeoutError():
                logger.info("%s: closed: no byte in time", self._name)
            case MalformedRequestError() | CloseConnectionError() | UnsupportedRequestError():
                logger.warning("%s: closed: %s", self._name, error)
            case _:
                logger.error("%s: closed", self._name, exc_info=error)

    def _drop_replies(self) -> None:
        """Cancel the replies that are left."""
        while not self._replies.empty():
            reply = self._replies.get_nowait()
            if isinstance(reply, asyncio.Future):
                reply.cancel()

    # ------------------------------------------------------------------------------- requests

    async def _read_requests(self) -> None:
        while not self._is_stopping:
            await self._free_slots.acquire()
            size = await self._read_length()
            if not _SIZE_MIN <= size <= self._limits.max_request_bytes:
                raise MalformedRequestError(
                    f"the size of a request must be {_SIZE_MIN} to"
                    f" {self._limits.max_request_bytes} bytes, got {size}"
                )
            budget = self._budgets.budget_for(size)
            await budget.acquire(size)
            try:
                reply = await self._begin_request(size)
            finally:
                budget.release(size)
            self._replies.put_nowait(reply)

    async def _read_length(self) -> int:
        self._waits_for_request = True
        try:
            async with asyncio.timeout(self._limits.idle_seconds):
                return int.from_bytes(await self._receive(_LENGTH_BYTES), signed=True)
        finally:
            self._waits_for_request = False

    async def _begin_request(self, size: int) -> Reply:
        async with asyncio.timeout(self._limits.transfer_seconds):
            data = await self._receive(size)
        try:
            request = read_request(memoryview(data))
        except UnsupportedRequestError as error:
            return self._refuse(error)
        if request.api_key != FETCH:
            return await self._handle(request)
        # It may wait for a long time: notice if the client leaves.
        loop = asyncio.get_running_loop()
        loop.add_reader(self._socket, self._on_readable)
        try:
            return await self._handle(request)
        finally:
            loop.remove_reader(self._socket)

    def _on_readable(self) -> None:
        try:
            has_left = not self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError:
            has_left = True
        asyncio.get_running_loop().remove_reader(self._socket)
        if has_left and self._reader is not None:
            self._reader.cancel()

    async def _receive(self, size: int) -> bytearray:
        loop = asyncio.get_running_loop()
        data = bytearray(size)
        left = memoryview(data)
        while left:
            count = await loop.sock_recv_into(self._socket, left)
            if not count:
                raise EOFError(f"the client left {len(left)} bytes early")
            left = left[count:]
        return data

    # ------------------------------------------------------------------------------ responses

    async def _write_responses(self) -> None:
        while True:
            reply = await self._replies.get()
            if isinstance(reply, _End):
                return
            if isinstance(reply, asyncio.Future):
                reply = await reply
            if reply is not None:
                await self._sender.send(self._socket, reply)
            self._free_slots.release()


class _End:
    """The end of a connection's replies."""
