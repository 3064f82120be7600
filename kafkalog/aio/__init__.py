"""asyncio: logs, producers and consumers for event loops.

    async with kafkalog.aio.open_manager(["data"]) as manager:
        await manager.create_topic("orders", 3, exist_ok=True)
        async with manager.producer(wait="durable") as producer:
            await producer.send_many("orders", keys, values)

Nothing here waits on the loop for a disk, a lock that is held during a write, or memory: a few
threads do. Any loop of asyncio's interface may be used. The blocking interface of the same objects
stays available to other threads.
"""

from __future__ import annotations

from kafkalog.aio.async_consumer import AsyncConsumer
from kafkalog.aio.async_log import AsyncLog, LogOffsets
from kafkalog.aio.async_manager import AsyncLogManager, open_log, open_manager
from kafkalog.aio.async_producer import AsyncProducer
from kafkalog.aio.receipt import SendReceipt
from kafkalog.followers.asynchronous import AsyncFollower, follow

__all__ = [
    "AsyncConsumer",
    "AsyncFollower",
    "AsyncLog",
    "AsyncLogManager",
    "AsyncProducer",
    "LogOffsets",
    "SendReceipt",
    "follow",
    "open_log",
    "open_manager",
]
