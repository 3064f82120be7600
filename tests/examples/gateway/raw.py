"""Requests of Kafka's protocol as bytes, for tests that send wrong ones; plain sockets.

The forms are those of versions without tagged fields, written here by hand from Kafka's schemas: no
code is shared with the gateway.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Mapping
from typing import Self

from aiokafka.record.default_records import DefaultRecordBatchBuilder

__all__ = [
    "API_VERSIONS",
    "CREATE_TOPICS",
    "FETCH",
    "INIT_PRODUCER_ID",
    "LIST_OFFSETS",
    "METADATA",
    "PRODUCE",
    "RawConnection",
    "array",
    "batch",
    "fetch",
    "fetch_many",
    "frame",
    "list_offsets",
    "metadata",
    "produce",
    "text",
]

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
API_VERSIONS, CREATE_TOPICS, INIT_PRODUCER_ID = 18, 19, 22
TIMEOUT_SECONDS = 30.0


def text(value: str) -> bytes:
    """Return a string with its length."""
    return struct.pack(">h", len(value)) + value.encode()


def array(*elements: bytes) -> bytes:
    """Return an array with its length."""
    return struct.pack(">i", len(elements)) + b"".join(elements)


def frame(api_key: int, version: int, body: bytes = b"", correlation_id: int = 1) -> bytes:
    """Return a request with its length and header."""
    request = struct.pack(">hhi", api_key, version, correlation_id) + text("raw") + body
    return struct.pack(">i", len(request)) + request


def batch(count: int, value_bytes: int = 10) -> bytes:
    """Return a batch of records, encoded by aiokafka."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 30)
    for number in range(count):
        value = b"value-%d" % number
        builder.append(number, int(time.time() * 1000), None, value.ljust(value_bytes, b"."), [])
    return bytes(builder.build())


def metadata(topic: str, *, correlation_id: int = 1) -> bytes:
    """Return a metadata request of version 1."""
    return frame(METADATA, 1, array(text(topic)), correlation_id)


def list_offsets(topic: str) -> bytes:
    """Return a request for the end of partition 0, version 1."""
    partition = struct.pack(">iq", 0, -1)
    return frame(LIST_OFFSETS, 1, struct.pack(">i", -1) + array(text(topic) + array(partition)))


def produce(topic: str, records: bytes, *, acks: int = -1, correlation_id: int = 1) -> bytes:
    """Return a produce request of version 3, for partition 0."""
    partition = struct.pack(">ii", 0, len(records)) + records
    head = struct.pack(">hhi", -1, acks, 30_000)
    return frame(PRODUCE, 3, head + array(text(topic) + array(partition)), correlation_id)


def fetch(
    topic: str,
    offset: int,
    *,
    max_bytes: int = 1 << 20,
    max_wait_ms: int = 0,
    correlation_id: int = 1,
) -> bytes:
    """Return a fetch request of version 4, for partition 0."""
    offsets = {topic: offset}
    return fetch_many(
        offsets, max_bytes=max_bytes, max_wait_ms=max_wait_ms, correlation_id=correlation_id
    )


def fetch_many(
    offsets: Mapping[str, int],
    *,
    max_bytes: int = 1 << 20,
    max_wait_ms: int = 0,
    correlation_id: int = 1,
) -> bytes:
    """Return a fetch request of version 4, for partition 0 of each topic."""
    head = struct.pack(">iiiib", -1, max_wait_ms, 1, max_bytes, 0)
    topics = (
        text(topic) + array(struct.pack(">iqi", 0, offset, max_bytes))
        for topic, offset in offsets.items()
    )
    return frame(FETCH, 4, head + array(*topics), correlation_id)


class RawConnection:
    """A connection to `host:port`; a context manager, at whose end it is closed."""

    def __init__(self, address: str, *, receive_buffer_bytes: int = 0) -> None:
        host, _colon, port = address.rpartition(":")
        self._socket = socket.socket()
        if receive_buffer_bytes:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self._socket.settimeout(TIMEOUT_SECONDS)
        self._socket.connect((host, int(port)))

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self._socket.sendall(data)

    def try_send(self, data: bytes) -> bool:
        """Send bytes; return False if the server has closed the connection."""
        try:
            self._socket.sendall(data)
        except ConnectionError:
            return False
        return True

    def send_until_refused(self, data: bytes, limit_bytes: int) -> int:
        """Send bytes again and again until the socket takes no more; return how many it took."""
        self._socket.setblocking(False)
        count = 0
        try:
            while count < limit_bytes:
                count += self._socket.send(data[count % len(data) :])
        except (BlockingIOError, ConnectionError):
            pass
        finally:
            self._socket.settimeout(TIMEOUT_SECONDS)
        return count

    def has_response(self, seconds: float) -> bool:
        """Return True if bytes of a response come within a time."""
        return bool(select.select([self._socket], [], [], seconds)[0])

    def receive(self) -> bytes | None:
        """Return the next response without its length, or None if the connection was closed."""
        head = self._receive(4)
        if head is None:
            return None
        return self._receive(struct.unpack(">i", head)[0])

    def ask(self, data: bytes) -> bytes | None:
        """Send a request; return its response, or None if the connection was closed."""
        return self.receive() if self.try_send(data) else None

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _receive(self, size: int) -> bytes | None:
        parts = []
        while size:
            try:
                part = self._socket.recv(min(size, 1 << 20))
            except ConnectionError:
                return None
            if not part:
                return None
            parts.append(part)
            size -= len(part)
        return b"".join(parts)
