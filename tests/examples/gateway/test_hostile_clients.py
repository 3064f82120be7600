"""Clients that take too much: connections, memory, time. Others are served, memory is bounded."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from .clients import Librdkafka, as_consumed, sent
from .raw import PRODUCE, RawConnection, batch, fetch, frame, metadata, produce
from .servers import GatewayServer

CLIENT = Librdkafka()
CONNECTIONS_MAX = 60
MIB = 1 << 20
# Above the default of --max-in-flight-bytes, for copies of what is in flight.
GROWTH_BYTES_MAX = 400 * MIB
WAIT_SECONDS = 30


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayServer]:
    """A gateway of few connections."""
    directory = tmp_path_factory.mktemp("limited") / "data"
    with GatewayServer(directory, f"--max-connections={CONNECTIONS_MAX}") as server:
        yield server


def serves(server: GatewayServer, topic: str) -> None:
    """Check that a new client is served, as soon as there is a connection for it."""
    end = time.monotonic() + WAIT_SECONDS
    while True:
        with RawConnection(server.address) as connection:
            if connection.ask(metadata(topic)) is not None:
                break
        assert time.monotonic() < end, "no connection is free"
        time.sleep(0.05)
    CLIENT.create_topic(server.address, topic)
    CLIENT.produce(server.address, topic, sent(5))
    assert as_consumed(sent(5)) == CLIENT.consume(server.address, topic, 5)


def test_connections_beyond_the_limit_are_closed(
    limited: GatewayServer, new_name: Callable[[], str]
) -> None:
    """Clients that were there before are served; sockets are bounded, and free afterwards."""
    flood(limited, new_name(), 400)


@pytest.mark.slow
def test_thousands_of_connections_beyond_the_limit_are_closed(
    limited: GatewayServer, new_name: Callable[[], str]
) -> None:
    """The same, with more of them."""
    flood(limited, new_name(), 5_000)


def flood(server: GatewayServer, topic: str, count: int) -> None:
    """Open connections, of which none sends anything."""
    serves(server, topic)
    memory, sockets = server.memory_bytes(), server.socket_count()
    question = metadata(topic)
    with RawConnection(server.address) as first, ExitStack() as stack:
        expected = first.ask(question)
        assert expected is not None
        for number in range(count):
            try:
                stack.enter_context(RawConnection(server.address))
            except OSError:  # this process has no more descriptors, or the backlog is full
                stack.close()
            if number % 100 == 0:
                assert expected == first.ask(question)
        assert expected == first.ask(question)
        assert server.socket_count() <= sockets + CONNECTIONS_MAX + 10
        with RawConnection(server.address) as extra:
            assert extra.ask(question) is None
    serves(server, f"{topic}-after")
    assert server.memory_bytes() - memory < 100 * MIB


def test_readers_that_never_read_hold_little_memory(
    limited: GatewayServer, new_name: Callable[[], str]
) -> None:
    """Each requests the same megabytes again and again, and takes nothing."""
    topic = new_name()
    serves(limited, topic)
    for _ in range(8):
        with RawConnection(limited.address) as connection:
            assert connection.ask(produce(topic, batch(9, 100_000))) is not None
    memory = limited.memory_bytes()
    with ExitStack() as stack:
        for _ in range(30):
            reader = stack.enter_context(RawConnection(limited.address, receive_buffer_bytes=4096))
            reader.send_until_refused(fetch(topic, 0, max_bytes=8 * MIB) * 50, 4 * MIB)
        serves(limited, f"{topic}-beside")
        assert limited.memory_bytes() - memory < GROWTH_BYTES_MAX
    serves(limited, f"{topic}-after")


def test_large_requests_that_never_end_keep_no_client_waiting(
    limited: GatewayServer, new_name: Callable[[], str]
) -> None:
    """Each announces nearly 100 MiB, and sends a part or nothing of it."""
    topic = new_name()
    serves(limited, topic)
    memory = limited.memory_bytes()
    head = frame(PRODUCE, 3)[4:]
    with ExitStack() as stack:
        for number in range(20):
            slow = stack.enter_context(RawConnection(limited.address))
            slow.send(struct.pack(">i", 99 * MIB) + head)
            if number % 2:
                slow.send_until_refused(b"x" * MIB, 8 * MIB)
        begun = time.monotonic()
        serves(limited, f"{topic}-beside")
        # Far below the time after which a gateway or a broker gives up a slow client.
        assert time.monotonic() - begun < 20, "other clients waited for requests that never end"
        assert limited.memory_bytes() - memory < GROWTH_BYTES_MAX
    serves(limited, f"{topic}-after")


def test_flood_of_large_requests_is_bounded(
    limited: GatewayServer, new_name: Callable[[], str]
) -> None:
    """Whole requests of 40 MB, each with a batch that is too large; all are refused."""
    topic = new_name()
    serves(limited, topic)
    memory = limited.memory_bytes()
    request = produce(topic, batch(40, MIB))
    with ExitStack() as stack:
        senders = [stack.enter_context(RawConnection(limited.address)) for _ in range(12)]
        for sender in senders:
            sender.send_until_refused(request, len(request))
        serves(limited, f"{topic}-beside")
        assert limited.memory_bytes() - memory < GROWTH_BYTES_MAX
    with RawConnection(limited.address) as connection:
        connection.try_send(request)
        connection.receive()
    assert (0, 5) == CLIENT.watermarks(limited.address, topic)
    serves(limited, f"{topic}-after")


def test_waiting_fetches_of_clients_that_left_are_dropped(
    limited: GatewayServer, new_name: Callable[[], str]
) -> None:
    """Each would wait for a day; the connections are free when their clients have left."""
    topic = new_name()
    serves(limited, topic)
    sockets = limited.socket_count()
    for number in range(5):
        with ExitStack() as stack:
            for _ in range(40):
                waiting = stack.enter_context(RawConnection(limited.address))
                waiting.send(fetch(topic, 5, max_wait_ms=86_400_000))
            serves(limited, f"{topic}-beside-{number}")
    end = time.monotonic() + WAIT_SECONDS
    while limited.socket_count() > sockets + 5:
        assert time.monotonic() < end, "connections of clients that left are kept"
        time.sleep(0.05)


def test_requests_of_impossible_sizes_ask_for_no_memory(
    limited: GatewayServer, new_name: Callable[[], str]
) -> None:
    """A fetch of 2 GiB gets what is there, a negative one no harm."""
    topic = new_name()
    serves(limited, topic)
    memory = limited.memory_bytes()
    with RawConnection(limited.address) as connection:
        for size in (0x7FFFFFFF, -1):
            assert connection.ask(fetch(topic, 0, max_bytes=size)) is not None
    assert limited.memory_bytes() - memory < 100 * MIB
    serves(limited, f"{topic}-after")
