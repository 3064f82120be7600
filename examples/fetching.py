"""A server that sends the bytes of logs as they are on the disk, and a client that reads them.

    python examples/fetching.py                            runs both over loopback
    python examples/fetching.py serve PORT DIRECTORY...    serves partition directories
    python examples/fetching.py read PORT NAME...          reads partitions to their end

A request names partitions, and for each the offset and the size wanted:

    length (4 bytes), then for each: size of the name (2), name, offset (8), largest size (4)

The reply is the multi-partition reply of `kafkalog.fetch`. The server's bytes go from the page
cache to the socket: it neither decodes nor copies them, compressed or not. A message set may end
inside a batch; the client continues after the last whole one, and asks for more if there was none.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import kafkalog
from kafkalog import FetchReader, FetchReply, KafkaLogError, Log, MultiFetchReply, Record
from kafkalog.errors import UnknownTopicOrPartitionError
from kafkalog.fetch import ReceivedReply, parse_multi_reply, send_reply

LENGTH = struct.Struct(">i")
NAME_SIZE = struct.Struct(">h")
OFFSET_AND_SIZE = struct.Struct(">qi")
REQUEST_MAX = 64 * 1024
REPLY_MAX = 64 << 20

PartitionRequest = tuple[str, int, int]


def encode_request(requests: Sequence[PartitionRequest]) -> bytes:
    """Return the request for (name, offset, largest size) of several partitions."""
    body = b"".join(
        NAME_SIZE.pack(len(name)) + name.encode("ascii") + OFFSET_AND_SIZE.pack(offset, max_bytes)
        for name, offset, max_bytes in requests
    )
    return LENGTH.pack(len(body)) + body


def decode_request(body: bytes) -> list[PartitionRequest]:
    """Return the parsed request; ValueError or struct.error if it is invalid."""
    requests, position = [], 0
    while position < len(body):
        (size,) = NAME_SIZE.unpack_from(body, position)
        position += NAME_SIZE.size
        offset, max_bytes = OFFSET_AND_SIZE.unpack_from(body, position + size)
        requests.append((body[position : position + size].decode("ascii"), offset, max_bytes))
        position += size + OFFSET_AND_SIZE.size
    return requests


class FetchServer:
    """
    Serves logs.

    Args:
        logs: by the names of their directories.
        largest: upper limit of the bytes of one partition in one reply.
    """

    def __init__(self, logs: Mapping[str, Log], *, largest: int = 1 << 20) -> None:
        self._logs = logs
        self._largest = largest
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, listener: socket.socket) -> None:
        """Answer every client, until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                connection, _ = await loop.sock_accept(listener)
                task = asyncio.create_task(self._answer(connection))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _answer(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(EOFError, OSError, ValueError, struct.error):
            while True:
                (length,) = LENGTH.unpack(await _receive(connection, LENGTH.size))
                if not 0 <= length <= REQUEST_MAX:
                    return
                requests = decode_request(await _receive(connection, length))
                await send_reply(
                    MultiFetchReply([self._fetch(*each) for each in requests]), connection
                )

    def _fetch(self, name: str, offset: int, max_bytes: int) -> FetchReply:
        try:
            log = self._logs.get(name)
            if log is None:
                raise UnknownTopicOrPartitionError(f"no partition {name}")
            size = min(max(max_bytes, 0), self._largest)
            return FetchReply(log.read(offset, size, min_one_batch=False))
        except KafkaLogError as error:
            return FetchReply(error=error)


async def _receive(connection: socket.socket, size: int) -> bytes:
    loop = asyncio.get_running_loop()
    data = b""
    while len(data) < size:
        piece = await loop.sock_recv(connection, size - len(data))
        if not piece:
            raise EOFError("the other side has left")
        data += piece
    return data


class FetchClient:
    """One connection to a server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.request_count = 0

    async def fetch(self, requests: Sequence[PartitionRequest]) -> list[ReceivedReply]:
        """Return a reply for each requested partition."""
        self._writer.write(encode_request(requests))
        await self._writer.drain()
        self.request_count += 1
        head = await self._reader.readexactly(LENGTH.size)
        (length,) = LENGTH.unpack(head)
        if not 0 <= length <= REPLY_MAX:
            raise ConnectionError(f"a reply of {length} bytes")
        _, replies = parse_multi_reply(head + await self._reader.readexactly(length))
        return replies

    async def records(
        self, names: Sequence[str], *, max_bytes: int = 1 << 20
    ) -> AsyncIterator[tuple[str, Record]]:
        """Yield the records of several partitions from their beginning to their end."""
        readers = {name: FetchReader(0, max_bytes=max_bytes) for name in names}
        while readers:
            requests = [(name, at.offset, at.max_bytes) for name, at in readers.items()]
            for (name, offset, _), reply in zip(requests, await self.fetch(requests), strict=True):
                if reply.error_code:
                    raise ConnectionError(f"{name}: error {reply.error_code} of Kafka's protocol")
                if not reply.message_set:
                    del readers[name]
                    continue
                for batch in readers[name].read(reply.message_set):
                    if not batch.header.is_control:
                        for record in batch.records():
                            if record.offset >= offset:
                                yield name, record


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[FetchClient]:
    """Connect to a server on this machine."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield FetchClient(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def served(logs: Mapping[str, Log], port: int = 0) -> AsyncIterator[int]:
    """Serve logs on this machine; the port is given."""
    with socket.create_server(("127.0.0.1", port)) as listener:
        listener.setblocking(False)
        task = asyncio.create_task(FetchServer(logs).serve(listener))
        try:
            yield listener.getsockname()[1]
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def serve(port: int, directories: Sequence[str]) -> None:
    """Serve partition directories until interrupted."""
    with contextlib.ExitStack() as stack:
        logs = {
            Path(name).name: stack.enter_context(kafkalog.open_log(name)) for name in directories
        }
        async with served(logs, port):
            await asyncio.Event().wait()


async def read(port: int, names: Sequence[str]) -> None:
    """Print the records of partitions that a server has."""
    async with connected(port) as client:
        async for name, record in client.records(names):
            print(name, record.offset, record.key, record.value)


async def both(directory: Path) -> None:
    """Write two logs, serve them, and read them through a buffer that is too small at first."""
    settings = {"plain-0": "uncompressed", "packed-0": "zstd"}
    with contextlib.ExitStack() as stack:
        logs = {}
        for name, compression in settings.items():
            config = kafkalog.LogConfig(compression_type=compression, batch_bytes=4096)
            log = logs[name] = stack.enter_context(
                kafkalog.open_log(directory / name, config=config)
            )
            log.append([Record(key=b"%d" % n, value=b"value %d " % n * 9) for n in range(1000)])
        async with served(logs) as port, connected(port) as client:
            counts = dict.fromkeys(settings, 0)
            async for name, record in client.records(list(settings), max_bytes=64):
                assert record.offset == counts[name]
                counts[name] += 1
            print("read", counts, "with", client.request_count, "requests")


def main(arguments: Sequence[str]) -> int:
    """Run the command line."""
    if arguments and arguments[0] == "serve":
        asyncio.run(serve(int(arguments[1]), arguments[2:]))
    elif arguments and arguments[0] == "read":
        asyncio.run(read(int(arguments[1]), arguments[2:]))
    else:
        with tempfile.TemporaryDirectory() as directory:
            asyncio.run(both(Path(directory)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
