"""A server that speaks Kafka's protocol in front of a `LogManager`, for clients that exist.

    python examples/kafka_gateway/gateway.py DIRECTORY [PORT]

Producers and consumers of librdkafka, Java and Python write and read topics of the directory. It is
an example of embedding, not a broker: docs/kafka-gateway.md has what it serves, and what it does
not. SIGTERM and SIGINT end it in order.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

import wire
from connection import Budgets, Connection, Limits, Reply, Sender
from fetch import Fetching
from offsets import OffsetRequests
from produce import Producing
from topics import Broker, TopicRequests, refuse

from kafkalog import ManagerConfig, aio

logger = logging.getLogger("kafka_gateway")

# Threads that read logs and send slices; each waits for at most one disk.
READER_THREADS: Final = 8
# Seconds that requests have at the end.
STOP_SECONDS: Final = 10.0
# Seconds without `accept` after the system refused a connection.
ACCEPT_PAUSE_SECONDS: Final = 0.1

Handler = Callable[[wire.Request], Awaitable[Reply]]


class Gateway:
    """
    The server.

    Args:
        manager: has the logs; the caller closes it.
        listener: a listening socket, non-blocking.
        broker: the server as its metadata describes it.
        limits: limits of connections.
    """

    def __init__(
        self,
        manager: aio.AsyncLogManager,
        listener: socket.socket,
        broker: Broker,
        limits: Limits,
    ) -> None:
        self._listener = listener
        self._limits = limits
        self._threads = ThreadPoolExecutor(READER_THREADS, "kafka-gateway")
        self._budgets = Budgets(limits.max_in_flight_bytes)
        self._sender = Sender(self._threads, limits.transfer_seconds)
        self._fetching = Fetching(manager.manager, self._threads)
        self._handlers = _handlers(manager, broker, self._fetching)
        self._connections: dict[asyncio.Task[None], Connection] = {}

    async def serve(self) -> None:
        """Accept clients until cancelled; then end their requests, and their connections."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    client, address = await loop.sock_accept(self._listener)
                except OSError as error:
                    logger.warning("a connection could not be accepted: %s", error)
                    await asyncio.sleep(ACCEPT_PAUSE_SECONDS)
                    continue
                self._begin(client, f"{address[0]}:{address[1]}")
        finally:
            self._listener.close()
            await self._stop()

    def _begin(self, client: socket.socket, name: str) -> None:
        if len(self._connections) >= self._limits.max_connections:
            logger.warning("%s: closed: %d connections are open", name, len(self._connections))
            client.close()
            return
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection(
            client,
            name,
            limits=self._limits,
            budgets=self._budgets,
            sender=self._sender,
            handle=self._handle,
            refuse=refuse,
        )
        task = asyncio.create_task(connection.serve())
        self._connections[task] = connection
        task.add_done_callback(self._connections.pop)

    async def _handle(self, request: wire.Request) -> Reply:
        return await self._handlers[request.api_key](request)

    async def _stop(self) -> None:
        self._fetching.stop()
        for connection in self._connections.values():
            connection.stop()
        if tasks := list(self._connections):
            _, late = await asyncio.wait(tasks, timeout=STOP_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        self._threads.shutdown()


def _handlers(
    manager: aio.AsyncLogManager, broker: Broker, fetching: Fetching
) -> dict[int, Handler]:
    topics, offsets = TopicRequests(manager, broker), OffsetRequests(manager)
    return {
        wire.PRODUCE: Producing(manager).produce,
        wire.FETCH: fetching.fetch,
        wire.LIST_OFFSETS: offsets.list_offsets,
        wire.METADATA: topics.metadata,
        wire.OFFSET_COMMIT: offsets.commit,
        wire.OFFSET_FETCH: offsets.fetch,
        wire.FIND_COORDINATOR: topics.find_coordinator,
        wire.API_VERSIONS: topics.api_versions,
        wire.CREATE_TOPICS: topics.create_topics,
        wire.INIT_PRODUCER_ID: topics.init_producer_id,
    }


async def run(options: argparse.Namespace) -> None:
    """Serve a directory until SIGTERM or SIGINT."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    properties = {"kafkalog.journal.enable": "true"} if options.journal else {}
    config = ManagerConfig.from_properties(properties)
    async with aio.open_manager([options.directory], config) as manager:
        with socket.create_server((options.host, options.port), backlog=1024) as listener:
            listener.setblocking(False)
            port = listener.getsockname()[1]
            broker = Broker(
                node_id=manager.manager.node_id,
                cluster_id=manager.manager.cluster_id,
                host=options.advertised_host or options.host,
                port=port,
                auto_create_partitions=options.auto_create_partitions,
                max_partitions=options.max_partitions,
            )
            gateway = Gateway(manager, listener, broker, _limits(options))
            serving = asyncio.create_task(gateway.serve())
            print(f"listening on {options.host}:{port}", flush=True)
            waiting = asyncio.create_task(stopped.wait())
            await asyncio.wait((serving, waiting), return_when=asyncio.FIRST_COMPLETED)
            serving.cancel()
            with suppress(asyncio.CancelledError):
                await serving


def _limits(options: argparse.Namespace) -> Limits:
    return Limits(
        max_connections=options.max_connections,
        max_request_bytes=options.max_request_bytes,
        max_in_flight_bytes=options.max_in_flight_bytes,
        idle_seconds=options.idle_seconds,
        transfer_seconds=options.transfer_seconds,
    )


def parse_options(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the options of the command line."""
    limits = Limits()
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("directory", help="data directory; made if it is missing")
    parser.add_argument("port", nargs="?", type=int, default=9092, help="0 for a free port")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--advertised-host", help="host that clients connect to; --host if absent")
    parser.add_argument(
        "--auto-create-partitions",
        type=int,
        default=0,
        help="partitions of topics that clients name first in Metadata; 0 to create none",
    )
    parser.add_argument("--journal", action="store_true", help="kafkalog.journal.enable")
    parser.add_argument("--max-partitions", type=int, default=10_000)
    parser.add_argument("--max-connections", type=int, default=limits.max_connections)
    parser.add_argument("--max-request-bytes", type=int, default=limits.max_request_bytes)
    parser.add_argument("--max-in-flight-bytes", type=int, default=limits.max_in_flight_bytes)
    parser.add_argument("--idle-seconds", type=float, default=limits.idle_seconds)
    parser.add_argument("--transfer-seconds", type=float, default=limits.transfer_seconds)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Run the server."""
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    asyncio.run(run(parse_options(arguments)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
