"""Service of one engine in the comparison of ingestion by HTTP.

    python -m asv_bench.peers.ingest_http_service ENGINE PARTITIONS DIRECTORY

Prints its port when it answers, and ends with its standard input. `POST /` has records, one a line:
the key, a space, the value. The answer comes when they are on the disk. Starlette and uvicorn are
the same for all engines. Of ours the producer of `kafkalog.aio` takes each request. Of a peer a
pump thread takes all requests that are there, and stores them as a group (`ingest_process.Pump`).
"""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeAlias

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from asv_bench.peers.ingest_engines import PEERS, TOPIC, properties_of
from asv_bench.peers.ingest_process import Pump
from kafkalog import ManagerConfig, aio

Store: TypeAlias = Callable[[list[bytes], list[bytes]], Awaitable[object]]

# More than the connections of the benchmark.
BACKLOG: Final = 512


def records_of(body: bytes) -> tuple[list[bytes], list[bytes]]:
    """Return the keys and the values in the body of a request."""
    pairs = [line.partition(b" ") for line in body.split(b"\n")]
    return [pair[0] for pair in pairs], [pair[2] for pair in pairs]


@asynccontextmanager
async def open_peer(name: str, partition_count: int, path: Path) -> AsyncIterator[Store]:
    """Open the store of a peer, with a pump."""
    engine = PEERS[name](path, partition_count)
    pump = Pump(engine, asyncio.get_running_loop())
    try:
        yield lambda keys, values: pump.put((keys, values))
    finally:
        pump.close()
        engine.close()


@asynccontextmanager
async def open_ours(name: str, partition_count: int, path: Path) -> AsyncIterator[Store]:
    """Open a manager with a durable producer."""
    config = ManagerConfig.from_properties(properties_of(name))
    async with aio.open_manager([path], config) as manager:
        await manager.create_topic(TOPIC, partition_count)
        async with manager.producer(wait="durable") as producer:
            for partition in range(partition_count):
                await producer.send(TOPIC, b"first", partition=partition)
            yield lambda keys, values: producer.send_many(TOPIC, keys, values)


def application(name: str, partition_count: int, path: Path) -> Starlette:
    """Return the service."""
    opened = (open_peer if name in PEERS else open_ours)(name, partition_count, path)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with opened as app.state.store:
            # Present objects are no part of what is measured.
            gc.collect()
            gc.freeze()
            yield

    async def ingest(request: HttpRequest) -> Response:
        keys, values = records_of(await request.body())
        await request.app.state.store(keys, values)
        return Response(status_code=204)

    return Starlette(routes=[Route("/", ingest, methods=["POST"])], lifespan=lifespan)


async def serve(server: uvicorn.Server, listening: socket.socket) -> None:
    """Serve until the standard input ends."""
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    print(listening.getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.should_exit = True
    await serving


def main(name: str, partition_count: int, path: Path) -> None:
    """Serve one engine."""
    app = application(name, partition_count, path)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", backlog=BACKLOG))
    with socket.create_server(("127.0.0.1", 0), backlog=BACKLOG) as listening:
        asyncio.run(serve(server, listening))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
