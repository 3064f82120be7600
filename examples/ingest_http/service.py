"""A service that takes events in by HTTP, and answers when they are on the disk.

    python examples/ingest_http/service.py DIRECTORY [PORT]

    POST /topics/TOPIC       NDJSON, one event a line; or octet-stream: 4 bytes of length, the event
    GET /metrics, /health    Prometheus text; 200, or 503 with the reasons

A client that sends `Producer: NAME` and `Sequence: N` (events sent before) may send a request
again, after a timeout or a crash: it is stored once.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from kafkalog import (
    BufferExhaustedError,
    DiskFullError,
    KafkaLogError,
    ManagerConfig,
    ProducerSequence,
    UnknownTopicOrPartitionError,
    aio,
)
from kafkalog.metrics import prometheus_text

MAX_BODY = 1 << 20
STATUS = {BufferExhaustedError: 429, DiskFullError: 507, UnknownTopicOrPartitionError: 404}


def events_in(kind: str, body: bytes) -> list[bytes]:
    if kind != "application/octet-stream":
        return [line for line in body.split(b"\n") if line]
    found, at = [], 0
    while at < len(body):
        (size,) = struct.unpack_from(">I", body, at)
        at += 4 + size
        found.append(body[at - size : at])
    if at != len(body):
        raise ValueError("the last event is cut")
    return found


async def ingest(request: Request) -> Response:
    producer = request.app.state.producer
    headers, topic = request.headers, request.path_params["topic"]
    try:
        length = int(headers["content-length"])
        if not 0 < length <= MAX_BODY or length > producer.available_bytes:
            return Response(status_code=429 if 0 < length <= MAX_BODY else 413)
        values = events_in(headers.get("content-type", ""), await request.body())
        number = partition = None
        if "producer" in headers:
            number = ProducerSequence.of_name(
                headers["producer"], sequence=int(headers["sequence"])
            )
            partition = number.producer_id % len(await producer.partitions_for(topic))
        send = producer.send_many
        sent = await send(topic, None, values, partition=partition, number=number, timeout=0)
    except (ValueError, KeyError, TypeError, struct.error, ClientDisconnect) as error:
        return PlainTextResponse(str(error), 400)
    except KafkaLogError as error:
        return PlainTextResponse(str(error), STATUS.get(type(error), 503))
    return JSONResponse([each._asdict() for each in sent])


async def metrics(request: Request) -> Response:
    return Response(await request.app.state.manager.run(prometheus_text), media_type="text/plain")


async def health(request: Request) -> Response:
    found = await request.app.state.manager.health()
    reasons = [str(each) for each in (*found.faults, *found.findings)]
    return JSONResponse(reasons, 200 if found.is_healthy else 503)


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    config = ManagerConfig.from_properties({"kafkalog.journal.enable": "true"})
    async with aio.open_manager([sys.argv[1]], config) as app.state.manager:
        await app.state.manager.create_topic("events", 8, exist_ok=True)
        producer = app.state.manager.producer(wait="durable", on_full="raise")
        async with producer as app.state.producer:
            yield


ROUTES = [
    Route("/topics/{topic}", ingest, methods=["POST"]),
    Route("/metrics", metrics),
    Route("/health", health),
]
app = Starlette(routes=ROUTES, lifespan=lifespan)

if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[2]) if sys.argv[2:] else 8080, log_level="warning")
