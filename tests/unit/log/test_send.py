"""`FetchData.send_to`: every kind of socket gets the bytes of the slice, also without sendfile."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kafkalog import FetchData, Log, LogClosedError, LogStorageError, Record
from kafkalog.files.sendfile import can_sendfile
from tests.support.logs import manual_log, numbered
from tests.support.manual_time import START_MS
from tests.support.simulated_disk import SimulatedDisk

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture(name="pair")
def fixture_pair() -> Iterator[Pair]:
    """Two ends of a connection with small buffers."""
    source, sink = socket.socketpair()
    with source, sink:
        source.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2048)
        sink.settimeout(60)
        yield source, sink


@pytest.fixture(name="moved")
def fixture_moved(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The byte counts that sendfile returned."""
    moved: list[int] = []
    sendfile = os.sendfile

    def counting(target: int, source: int, position: int, size: int) -> int:
        count = sendfile(target, source, position, size)
        moved.append(count)
        return count

    monkeypatch.setattr(os, "sendfile", counting)
    return moved


def refuse(number: int) -> Callable[..., int]:
    """Return a sendfile that fails with this error number."""

    def refusing(*arguments: object) -> int:
        raise OSError(number, os.strerror(number))

    return refusing


def filled(directory: Path, **settings: Any) -> Log:
    """Return a log of some 200 KiB: more than a socket and its buffers hold at once."""
    log = manual_log(directory, **settings)
    noise = Random(7)
    for first in range(0, 1000, 50):
        log.append(
            Record(key=b"k%d" % number, value=noise.randbytes(200), timestamp_ms=START_MS)
            for number in range(first, first + 50)
        )
    return log


def received(fetched: FetchData, source: socket.socket, sink: socket.socket) -> bytes:
    """Send a slice over a blocking connection; return the received bytes."""
    parts: list[bytes] = []

    def receive() -> None:
        while part := sink.recv(1 << 16):
            parts.append(part)

    thread = threading.Thread(target=receive)
    thread.start()
    try:
        assert fetched.send_to(source) == fetched.size_bytes
    finally:
        source.close()
        thread.join()
    return b"".join(parts)


def expected(log: Log, fetched: FetchData) -> bytes:
    """Return the bytes of a slice from the file."""
    with fetched.path.open("rb") as file:
        file.seek(fetched.position)
        return file.read(fetched.size_bytes)


@pytest.mark.parametrize("compression", ["uncompressed", "zstd", "gzip"])
@pytest.mark.parametrize("version", ["4.1", "0.9.0"])
def test_send_to_blocking_socket_sends_the_stored_bytes(
    compression: str, version: str, directory: Path, pair: Pair, moved: list[int]
) -> None:
    """In every format, compressed or not, by sendfile: the bytes are not even fetched."""
    if (compression, version) == ("zstd", "0.9.0"):
        compression = "lz4"
    settings = {"compression_type": compression, "message_format_version": version}
    with filled(directory, **settings) as log:
        fetched = log.read(120, 50_000, min_one_batch=False)
        assert expected(log, fetched) == received(fetched, *pair)
        assert fetched.size_bytes == sum(moved)
        assert not fetched.is_fetched


def test_send_to_nonblocking_socket_resumes_at_its_position(
    directory: Path, pair: Pair, moved: list[int]
) -> None:
    """Whenever the socket is full; a call with a full socket returns 0."""
    source, sink = pair
    source.setblocking(False)
    with filled(directory) as log:
        fetched = log.read(0)
        sent = fetched.send_to(source)
        assert 0 < sent < fetched.size_bytes
        assert 0 == fetched.send_to(source, sent)
        data = b""
        while len(data) < fetched.size_bytes:
            data += sink.recv(30_000)
            sent += fetched.send_to(source, sent)
        assert expected(log, fetched) == data
        assert fetched.size_bytes == sent == sum(moved)
        assert 0 == fetched.send_to(source, sent)


def test_send_to_socket_with_timeout_waits_for_the_receiver(directory: Path, pair: Pair) -> None:
    """All bytes are sent if the other end reads, else the call raises TimeoutError."""
    with filled(directory) as log:
        stuck, nobody = socket.socketpair()
        with stuck, nobody:
            stuck.settimeout(0.001)
            with pytest.raises(TimeoutError):
                while True:
                    log.read(0).send_to(stuck)
        pair[0].settimeout(60)
        fetched = log.read(0)
        assert expected(log, fetched) == received(fetched, *pair)


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP])
def test_send_to_without_sendfile_sends_from_memory(
    number: int, directory: Path, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems, sockets and operating systems do not support it."""
    monkeypatch.setattr(os, "sendfile", refuse(number))
    with filled(directory) as log:
        fetched = log.read(300)
        assert expected(log, fetched) == received(fetched, *pair)


def test_send_to_from_memory_resumes_at_its_position(
    directory: Path, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A non-blocking socket returns the sent bytes as with sendfile."""
    monkeypatch.delattr(os, "sendfile")
    source, sink = pair
    source.setblocking(False)
    with filled(directory) as log:
        fetched = log.read(0)
        data, sent = b"", 0
        while len(data) < fetched.size_bytes:
            sent += fetched.send_to(source, sent)
            data += sink.recv(1 << 16)
        assert expected(log, fetched) == data


def test_send_to_file_without_descriptor_sends_from_memory(pair: Pair) -> None:
    """As with a file system that is not the operating system's."""
    with filled(Path("/orders-0"), filesystem=SimulatedDisk()) as log:
        fetched = log.read(0)
        assert bytes(log.read(0).data) == received(fetched, *pair)


def test_send_to_socket_like_object_calls_its_send(directory: Path) -> None:
    """Its descriptor, if it has one, is not used."""

    class Sink:
        data = b""

        def send(self, data: Any, flags: int = 0, /) -> int:
            self.data += bytes(data[:1000])
            return min(len(data), 1000)

        def fileno(self) -> int:
            raise AssertionError("not to be asked for")

        def gettimeout(self) -> float | None:
            return None

    with filled(directory) as log:
        fetched, sink = log.read(0), Sink()
        assert fetched.size_bytes == fetched.send_to(sink)
        assert expected(log, fetched) == sink.data


def test_send_to_tls_socket_sends_encrypted_bytes(
    directory: Path, pair: Pair, moved: list[int]
) -> None:
    """The bytes go through the TLS object, not to the descriptor under it."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    for context in (server, client):
        # Without certificates: this test trusts both ends.
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers("AECDH-AES256-SHA:@SECLEVEL=0")
    source = server.wrap_socket(pair[0], server_side=True, do_handshake_on_connect=False)
    sink = client.wrap_socket(pair[1], do_handshake_on_connect=False)
    assert not can_sendfile(source)
    thread = threading.Thread(target=sink.do_handshake)
    thread.start()
    source.do_handshake()
    thread.join()
    with filled(directory) as log, source, sink:
        fetched = log.read(0)
        for end in (source, sink):
            end.setblocking(False)
        data, sent = b"", 0
        while len(data) < fetched.size_bytes:
            sent += fetched.send_to(source, sent)
            with contextlib.suppress(ssl.SSLWantReadError):
                data += sink.recv(1 << 16)
        assert expected(log, fetched) == data
        assert not moved


def test_send_to_continues_after_retention_and_close(directory: Path, pair: Pair) -> None:
    """A started slice keeps its file; a fetched or deleted one keeps its bytes."""
    source, sink = pair
    source.setblocking(False)
    with filled(directory, segment_bytes=150_000, file_delete_delay_ms=0) as log:
        begun, fetched, waiting, late = (log.read(0) for _ in range(4))
        stored = expected(log, begun)
        sent = begun.send_to(source)
        assert 0 < sent < len(stored)
        assert stored == bytes(fetched.data)
        log.delete_records(900)
        log.append(numbered(0, 1))
        log.flush()
        assert waiting.size_bytes == len(stored)
        waiting_sent = 0
    data = b""
    while len(data) < len(stored):
        data += sink.recv(1 << 16)
        sent += begun.send_to(source, sent)
    assert stored == data
    for piece in (fetched, waiting):
        data, waiting_sent = b"", 0
        while len(data) < len(stored):
            waiting_sent += piece.send_to(source, waiting_sent)
            data += sink.recv(1 << 16)
        assert stored == data
    assert late.size_bytes == len(stored)


def test_send_to_after_close_raises_if_not_started(directory: Path, pair: Pair) -> None:
    """As a fetch of the bytes does."""
    with filled(directory) as log:
        fetched = log.read(0)
    with pytest.raises(LogClosedError, match="closed before"):
        fetched.send_to(pair[0])


def test_send_to_of_a_read_only_log_sends_the_bytes_of_its_read(
    directory: Path, pair: Pair
) -> None:
    """The writer may put another file under the name at any time."""
    with filled(directory) as writer, manual_log(directory, read_only=True) as reader:
        fetched = reader.read(100)
        stored = expected(writer, fetched)
        writer.truncate_to(0)
        writer.append(numbered(5, 200))
        assert stored == received(fetched, *pair)


def test_send_to_of_a_cut_file_raises_log_storage_error(directory: Path, pair: Pair) -> None:
    """It does not wait for the missing bytes."""
    source, sink = pair
    source.setblocking(False)
    with filled(directory) as log:
        fetched = log.read(0)
        os.truncate(fetched.path, 100)
        with pytest.raises(LogStorageError, match="ends at 100"):
            fetched.send_to(source)
        assert 100 == len(sink.recv(1000))
        os.truncate(fetched.path, fetched.size_bytes)


def test_send_to_disk_error_is_typed_connection_error_is_not(
    directory: Path, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The socket's own error is passed on."""
    with filled(directory) as log:
        fetched = log.read(0)
        pair[1].close()
        with pytest.raises(BrokenPipeError):
            fetched.send_to(pair[0])
        monkeypatch.setattr(os, "sendfile", refuse(errno.EIO))
        with pytest.raises(LogStorageError):
            fetched.send_to(pair[0])


@pytest.mark.parametrize("start", [-1, 10**6])
def test_send_to_start_outside_the_slice_is_refused(
    start: int, directory: Path, pair: Pair
) -> None:
    """Before a byte is sent."""
    with filled(directory) as log, pytest.raises(ValueError, match="start must be in 0 to"):
        log.read(0).send_to(pair[0], start)
