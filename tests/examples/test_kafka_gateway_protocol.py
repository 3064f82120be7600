"""The gateway of `examples/kafka_gateway`: frames, bytes that break the format, and limits."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args, get_origin
from uuid import UUID

import pytest

pytest.importorskip("kio", reason="kio, which has the types of Kafka's protocol, is not installed")

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "kafka_gateway"
sys.path.append(str(FOLDER))

from connection import ByteBudget, Limits  # noqa: E402 - the path comes first
from wire import (  # noqa: E402
    API_VERSIONS,
    FETCH,
    METADATA,
    PRODUCE,
    SUPPORTED,
    MalformedRequestError,
    UnsupportedRequestError,
    read_request,
    unsigned_varint,
)

WAIT_SECONDS = 60
VERSIONS = [(key, n) for key, (low, high) in SUPPORTED.items() for n in range(low, high + 1)]
NUMBERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint16": 15}


# ---------------------------------------------------------------------------- requests as bytes


def value_of(field: dataclasses.Field[Any], kind: Any, source: random.Random) -> Any:
    """Return some value of a field's type."""
    if get_origin(kind) is types.UnionType:
        if source.random() < 0.3:
            return None
        (kind,) = [each for each in get_args(kind) if each is not type(None)]
    if get_origin(kind) is tuple:
        element = get_args(kind)[0]
        return tuple(value_of(field, element, source) for _ in range(source.randrange(4)))
    if dataclasses.is_dataclass(kind):
        return entity_of(kind, source)
    name = field.metadata["kafka_type"]
    if name in NUMBERS:
        return source.randrange(1 << NUMBERS[name] - 1)
    return {
        "bool": True,
        "string": source.choice(("", "name", "\u00e9" * 70)),
        "records": source.randbytes(source.randrange(300)),
        "timedelta_i32": timedelta(milliseconds=source.randrange(1 << 31)),
        "timedelta_i64": timedelta(milliseconds=source.randrange(1 << 31)),
        "uuid": UUID(int=source.randrange(1, 1 << 128)),
    }[name]


def entity_of(kind: Any, source: random.Random) -> Any:
    """Return a message with some values."""
    fields = dataclasses.fields(kind)
    return kind(**{each.name: value_of(each, each.type, source) for each in fields})


def encoded(*entities: Any) -> bytes:
    """Return messages as `kio` writes them."""
    with io.BytesIO() as buffer:
        for entity in entities:
            entity_writer(type(entity))(buffer, entity)
        return buffer.getvalue()


def request_of(api_key: int, version: int, body: Any) -> bytes:
    """Return a request without its length."""
    kind: Any = load_request_schema(api_key, version)
    header = kind.__header_schema__(
        request_api_key=api_key, request_api_version=version, correlation_id=7, client_id="me"
    )
    return encoded(header, body)


def frame(data: bytes) -> bytes:
    """Return a request with its length."""
    return struct.pack(">i", len(data)) + data


@pytest.mark.parametrize(("api_key", "version"), VERSIONS)
def test_request_of_each_version_is_read_as_kio_writes_it(api_key: int, version: int) -> None:
    """The gateway's reader knows every field of every version that it serves."""
    source = random.Random(api_key * 100 + version)
    for _ in range(20):
        body = entity_of(load_request_schema(api_key, version), source)
        data = request_of(api_key, version, body)
        request = read_request(memoryview(data))
        assert (api_key, version, 7, "me") == request[:4]
        # Records are a view of the request, which is equal to their bytes.
        assert body == request.body


@pytest.mark.parametrize(("api_key", "version"), VERSIONS)
def test_request_cut_at_each_byte_is_malformed(api_key: int, version: int) -> None:
    """No other exception, and no request from the bytes that are there."""
    source = random.Random(version)
    data = request_of(api_key, version, entity_of(load_request_schema(api_key, version), source))
    for size in range(8, len(data)):
        with pytest.raises(MalformedRequestError):
            read_request(memoryview(data)[:size])


@pytest.mark.parametrize(("api_key", "version"), VERSIONS)
def test_request_with_changed_bytes_is_read_or_malformed(api_key: int, version: int) -> None:
    """All bytes are read as a request, or raise one of two errors."""
    source = random.Random(version)
    whole = request_of(api_key, version, entity_of(load_request_schema(api_key, version), source))
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(source.randint(1, 4)):
            data[source.randrange(len(data))] = source.choice((0, 1, 0x7F, 0x80, 0xFF))
        try:
            read_request(memoryview(data))
        except (MalformedRequestError, UnsupportedRequestError):
            continue


@pytest.mark.parametrize(
    ("version", "count"),
    [
        pytest.param(1, struct.pack(">i", 0x7FFFFFFF), id="plain"),
        pytest.param(1, struct.pack(">i", -2), id="negative"),
        pytest.param(12, unsigned_varint(1 << 31), id="compact"),
        pytest.param(12, b"\xff" * 5, id="varint without an end"),
    ],
)
def test_array_longer_than_its_request_is_malformed(version: int, count: bytes) -> None:
    """Memory is not reserved for what a client claims."""
    kind: Any = load_request_schema(METADATA, version)
    header = kind.__header_schema__(
        request_api_key=METADATA, request_api_version=version, correlation_id=1, client_id=None
    )
    with pytest.raises(MalformedRequestError):
        read_request(memoryview(encoded(header) + count + b"\0" * 100))


def test_request_of_many_elements_is_malformed() -> None:
    """A megabyte of empty names would be a hundred megabytes of objects."""
    kind: Any = load_request_schema(METADATA, 1)
    header = kind.__header_schema__(
        request_api_key=METADATA, request_api_version=1, correlation_id=1, client_id=None
    )
    count = 500_000
    with pytest.raises(MalformedRequestError, match="array of 500000 elements"):
        read_request(memoryview(encoded(header) + struct.pack(">i", count) + b"\0\0" * count))


def test_unknown_tagged_field_is_skipped() -> None:
    """A later client may send it (KIP-482)."""
    kind: Any = load_request_schema(API_VERSIONS, 3)
    body = kind(client_software_name="new", client_software_version="9")
    data = request_of(API_VERSIONS, 3, body)
    assert data.endswith(b"\0")
    tagged = data[:-1] + unsigned_varint(1) + unsigned_varint(300) + unsigned_varint(3) + b"abc"
    assert body == read_request(memoryview(tagged)).body


# ----------------------------------------------------------------------------------- the budget


def test_budget_grants_in_order_and_survives_cancelled_waits() -> None:
    """A wait that is cancelled neither keeps bytes, nor keeps others waiting."""

    async def run() -> list[int]:
        budget, granted = ByteBudget(10), []

        async def take(size: int) -> None:
            await budget.acquire(size)
            granted.append(size)

        await budget.acquire(8)
        tasks = [asyncio.create_task(take(size)) for size in (9, 4, 3)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        await asyncio.gather(tasks[0], return_exceptions=True)
        assert [] == granted
        budget.release(8)
        await asyncio.gather(*tasks[1:])
        assert 7 == budget.used_bytes
        budget.release(4)
        budget.release(3)
        assert 0 == budget.used_bytes
        return granted

    assert [4, 3] == asyncio.run(run())


def test_budget_admits_a_larger_request_alone() -> None:
    """A limit below the largest request delays it, and does not refuse it."""

    async def run() -> None:
        budget = ByteBudget(10)
        await budget.acquire(100)
        waiting = asyncio.create_task(budget.acquire(1))
        await asyncio.sleep(0)
        assert not waiting.done()
        budget.release(100)
        await waiting

    asyncio.run(run())


# --------------------------------------------------------------------------- over a real socket


@contextmanager
def running(directory: Path, *options: str) -> Iterator[int]:
    """Run the gateway in a process; the port is given. It must end in order at SIGTERM."""
    command = [sys.executable, str(FOLDER / "gateway.py"), str(directory), "0", *options]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("listening on 127.0.0.1:"), line
            yield int(line.rpartition(":")[2])
            process.send_signal(signal.SIGTERM)
            assert 0 == process.wait(WAIT_SECONDS)
        finally:
            process.kill()


@pytest.fixture(name="port", scope="module")
def fixture_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Return the port of a gateway that many tests use."""
    with running(tmp_path_factory.mktemp("gateway") / "data", "--max-request-bytes=2000") as port:
        yield port


@contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    """Connect to the gateway."""
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS) as connection:
        yield connection


def received(connection: socket.socket, size: int) -> bytes:
    """Return so many bytes, fewer if the gateway closed the connection."""
    data = b""
    while len(data) < size and (piece := connection.recv(size - len(data))):
        data += piece
    return data


def response(connection: socket.socket) -> bytes:
    """Return the next response without its length; empty if the connection was closed."""
    head = received(connection, 4)
    return received(connection, int.from_bytes(head)) if head else b""


def is_closed(connection: socket.socket) -> bool:
    """Return True if the gateway has closed the connection, or does so now."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


VERSIONS_0 = frame(struct.pack(">hhih", API_VERSIONS, 0, 5, -1))


def body_of(data: bytes, api_key: int, version: int) -> Any:
    """Return the response in these bytes, which begin with a correlation id of 4 bytes."""
    reader: Any = entity_reader(load_response_schema(api_key, version))
    found, _size = reader(data[4:], 0)
    return found


def test_gateway_closes_bad_connections_and_serves_the_others(port: int) -> None:
    """Each is closed alone; other clients are served."""
    bad = [
        struct.pack(">i", -1),
        struct.pack(">i", 7) + b"short..",
        struct.pack(">i", 2001),
        frame(struct.pack(">hhih", 999, 0, 1, -1)),
        frame(struct.pack(">hhih", PRODUCE, 99, 1, -1)),
        frame(struct.pack(">hhihi", METADATA, 1, 1, -1, 0x7FFFFFFF)),
        b"GET / HTTP/1.1\r\n\r\n",
    ]
    with connected(port) as other:
        for data in bad:
            with connected(port) as connection:
                connection.sendall(data)
                assert is_closed(connection), data
            other.sendall(VERSIONS_0)
            found = body_of(response(other), API_VERSIONS, 0)
            assert 0 == found.error_code
            assert SUPPORTED == {
                each.api_key: (each.min_version, each.max_version) for each in found.api_keys
            }


def test_gateway_answers_an_unknown_version_of_api_versions_in_version_0(port: int) -> None:
    """The client reads there what to send (KIP-511), over the same connection."""
    with connected(port) as connection:
        connection.sendall(frame(struct.pack(">hhih", API_VERSIONS, 90, 5, -1) + b"\0anything"))
        answer = response(connection)
        assert 5 == int.from_bytes(answer[:4])
        assert 35 == body_of(answer, API_VERSIONS, 0).error_code
        connection.sendall(VERSIONS_0)
        assert 0 == body_of(response(connection), API_VERSIONS, 0).error_code


def test_gateway_closes_idle_and_late_connections(tmp_path: Path) -> None:
    """Of a client that sends nothing, and of a client that sends half of a request."""
    options = ("--idle-seconds=0.2", "--transfer-seconds=0.2")
    with running(tmp_path / "data", *options) as port:
        for data in (b"", b"\0", VERSIONS_0[:-1]):
            with connected(port) as connection:
                connection.sendall(data)
                assert is_closed(connection)


def test_gateway_closes_connections_above_its_limit(tmp_path: Path) -> None:
    """And accepts again when one has left."""
    with running(tmp_path / "data", "--max-connections=2") as port, connected(port) as first:
        with connected(port) as second:
            for each in (first, second):
                each.sendall(VERSIONS_0)
                assert response(each)
            with connected(port) as third:
                assert is_closed(third)
        while True:
            with connected(port) as later:
                try:
                    later.sendall(VERSIONS_0)
                    if response(later):
                        break
                except ConnectionError:
                    continue


def test_gateway_answers_pipelined_requests_in_their_order(port: int) -> None:
    """More of them than may wait for their responses at a time."""
    count = 3 * Limits().max_pipelined
    with connected(port) as connection:
        for number in range(count):
            connection.sendall(frame(struct.pack(">hhih", API_VERSIONS, 0, number, -1)))
        numbers = [int.from_bytes(response(connection)[:4]) for _ in range(count)]
    assert list(range(count)) == numbers


def test_gateway_stops_at_once_while_a_fetch_waits(tmp_path: Path) -> None:
    """The fetch is answered with what is there: nothing."""
    kind: Any = load_request_schema(FETCH, 4)
    topic: Any = get_args(next(e for e in dataclasses.fields(kind) if e.name == "topics").type)[0]
    part: Any = get_args(next(e for e in dataclasses.fields(topic) if e.name == "partitions").type)[
        0
    ]
    wanted = part(partition=0, fetch_offset=0, partition_max_bytes=1000)
    body = kind(
        max_wait=timedelta(minutes=50),
        min_bytes=1,
        topics=(topic(topic="orders", partitions=(wanted,)),),
    )
    with (
        running(tmp_path / "data", "--auto-create-partitions=1") as port,
        connected(port) as connection,
    ):
        name = struct.pack(">ih", 1, 6) + b"orders"
        connection.sendall(frame(struct.pack(">hhih", METADATA, 1, 1, -1) + name))
        assert response(connection)
        connection.sendall(frame(request_of(FETCH, 4, body)))
        # A later request of another client: the fetch has begun.
        with connected(port) as other:
            other.sendall(VERSIONS_0)
            assert response(other)
