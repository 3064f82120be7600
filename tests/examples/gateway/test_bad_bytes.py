"""Bytes that are no requests, and requests that are not served: the protocol's errors, no harm."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest

from .clients import Librdkafka, as_consumed, sent
from .raw import (
    API_VERSIONS,
    CREATE_TOPICS,
    FETCH,
    METADATA,
    PRODUCE,
    RawConnection,
    array,
    batch,
    fetch,
    frame,
    list_offsets,
    metadata,
    produce,
    text,
)
from .servers import GatewayServer, Server

UNSUPPORTED_VERSION = 35
HUGE = 0x7FFFFFFF


def code_at(response: bytes | None, position: int) -> int:
    """Return an error code of a response."""
    assert response is not None, "the connection was closed"
    return int(struct.unpack_from(">h", response, position)[0])


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", id="http"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", id="tls"),
        pytest.param(struct.pack(">i", HUGE) + b"x" * 100, id="huge length"),
        pytest.param(struct.pack(">i", -1) + b"x" * 100, id="negative length"),
        pytest.param(frame(9999, 0), id="unknown API"),
        pytest.param(frame(-1, 0), id="negative API"),
        pytest.param(frame(METADATA, 999, array(text("x"))), id="unknown version"),
        pytest.param(frame(PRODUCE, 0), id="version of long ago"),
        pytest.param(frame(METADATA, 1, struct.pack(">i", HUGE)), id="huge array"),
        pytest.param(frame(METADATA, 1, array(struct.pack(">h", 500) + b"x")), id="short string"),
        pytest.param(frame(METADATA, 1, array(b"\x00\x02\xff\xfe")), id="not UTF-8"),
        pytest.param(frame(FETCH, 4, b"\x00"), id="short body"),
        pytest.param(frame(CREATE_TOPICS, 2, array(b"")), id="short element"),
    ],
)
def test_what_is_no_request_closes_its_connection_only(
    server: Server, new_name: Callable[[], str], data: bytes, request: pytest.FixtureRequest
) -> None:
    """A connection that was there before, and new ones, are served."""
    with RawConnection(server.address) as other, RawConnection(server.address) as bad:
        good = metadata(new_name())
        expected = other.ask(good)
        assert expected is not None
        answer = bad.ask(data)
        # Java decodes wrong UTF-8 to other characters: a topic of a name that is none.
        assert answer is None or "UTF-8" in request.node.name
        assert expected == other.ask(good)
        with RawConnection(server.address) as fresh:
            assert expected == fresh.ask(good)


def test_unknown_version_of_api_versions_is_answered_in_version_0(server: Server) -> None:
    """A client of a later version learns which versions there are (KIP-511)."""
    with RawConnection(server.address) as connection:
        # Its header has tagged fields, here none.
        answer = connection.ask(frame(API_VERSIONS, 999, b"\0what it will have"))
        assert UNSUPPORTED_VERSION == code_at(answer, 4)
        assert 0 == code_at(connection.ask(frame(API_VERSIONS, 0)), 4)


@pytest.mark.parametrize("size", [1, 4, 10, 40])
def test_client_that_leaves_within_a_request_does_no_harm(
    server: Server, new_name: Callable[[], str], size: int
) -> None:
    """The half of it is not stored."""
    topic = new_name()
    Librdkafka().create_topic(server.address, topic)
    data = produce(topic, batch(1))
    with RawConnection(server.address) as connection:
        connection.send(data[:size])
    with RawConnection(server.address) as connection:
        connection.send(data[:-1])
    assert (0, 0) == Librdkafka().watermarks(server.address, topic)


@pytest.mark.parametrize("where", ["length", "magic", "crc", "attributes", "count", "end"])
def test_damaged_batch_is_refused_and_not_stored(
    server: Server, new_name: Callable[[], str], where: str
) -> None:
    """With an error of the partition, after which the connection is used further."""
    topic = new_name()
    Librdkafka().create_topic(server.address, topic)
    records = bytearray(batch(5))
    if where == "end":
        del records[-1]
    else:
        position, byte = {
            "length": (11, 1),
            "magic": (16, 9),
            "crc": (17, records[17] ^ 1),
            "attributes": (22, 7),
            "count": (60, 200),
        }[where]
        records[position] = byte
    with RawConnection(server.address) as connection:
        answer = connection.ask(produce(topic, bytes(records)))
        if answer is not None:
            assert 0 != code_at(answer, 4 + 4 + len(text(topic)) + 4 + 4)
    assert (0, 0) == Librdkafka().watermarks(server.address, topic)
    Librdkafka().produce(server.address, topic, sent(3))
    assert as_consumed(sent(3)) == Librdkafka().consume(server.address, topic, 3)


def test_requests_without_waiting_are_answered_in_order(
    server: Server, new_name: Callable[[], str]
) -> None:
    """Many requests are sent before the first response is read."""
    topic = new_name()
    Librdkafka().create_topic(server.address, topic)
    with RawConnection(server.address) as connection:
        kinds = (
            lambda n: produce(topic, batch(1), correlation_id=n),
            lambda n: metadata(topic, correlation_id=n),
            lambda n: fetch(topic, 0, correlation_id=n),
        )
        for number in range(90):
            connection.send(kinds[number % 3](number))
        for number in range(90):
            answer = connection.receive()
            assert answer is not None
            assert number == struct.unpack_from(">i", answer)[0]
    assert (0, 30) == Librdkafka().watermarks(server.address, topic)


def test_mutated_requests_leave_no_error_of_the_program(
    gateway: GatewayServer, new_name: Callable[[], str]
) -> None:
    """Each has a response, or its connection is closed; the log has no stack trace."""
    mutate(gateway, new_name(), 300)


@pytest.mark.slow
def test_many_mutated_requests_leave_no_error_of_the_program(
    gateway: GatewayServer, new_name: Callable[[], str]
) -> None:
    """The same, for longer."""
    mutate(gateway, new_name(), 3_000)


def mutate(gateway: GatewayServer, topic: str, count: int) -> None:
    """Send requests with changed, missing and repeated bytes; then the gateway still serves."""
    Librdkafka().create_topic(gateway.address, topic)
    Librdkafka().produce(gateway.address, topic, sent(5))
    requests = [
        frame(API_VERSIONS, 0),
        metadata(topic),
        list_offsets(topic),
        fetch(topic, 0),
        produce(topic, batch(2)),
        frame(CREATE_TOPICS, 2, array() + struct.pack(">ib", 1000, 1)),
    ]
    source = random.Random(7)
    connection = RawConnection(gateway.address)
    for number in range(count):
        if connection.ask(mutated(source, requests[number % len(requests)])) is None:
            connection.close()
            connection = RawConnection(gateway.address)
    connection.close()
    assert as_consumed(sent(5)) == Librdkafka().consume(gateway.address, topic, 5)
    text = gateway.log_path.read_text()
    assert "Traceback" not in text, text[text.index("Traceback") :][:4000]


def mutated(source: random.Random, request: bytes) -> bytes:
    """Return a request with some wrong bytes and a length that fits."""
    body = bytearray(request[4:])
    for _ in range(source.randint(1, 4)):
        position = source.randrange(2, len(body))
        match source.randrange(4):
            case 0:
                body[position] = source.choice((0, 1, 0x7F, 0x80, 0xFF, source.randrange(256)))
            case 1:
                body[position:] = body[position : position + source.randrange(9)]
            case 2:
                body[position:position] = source.randbytes(source.randint(1, 8))
            case _:
                body[2:4] = struct.pack(">h", source.randrange(14))
        if len(body) < 12:
            break
    return struct.pack(">i", len(body)) + bytes(body)
