"""`AsyncLogManager`: the partitions of a `LogManager` for the tasks of an event loop.

Every call that may touch a disk or wait for a lock runs in a few threads. Producers and consumers
are made without a wait, and opened by their first call.

Thread-safety: calls from any task of any loop; a producer or consumer belongs to one loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from os import PathLike
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack
from weakref import WeakSet

from kafkalog.aio.async_consumer import AsyncConsumer
from kafkalog.aio.async_log import AsyncLog
from kafkalog.aio.async_producer import AsyncProducer
from kafkalog.aio.calls import BlockingCalls
from kafkalog.aio.pending_open import PendingOpen
from kafkalog.clients.clients import consumer_config, producer_config
from kafkalog.clients.consumer import LostRecords
from kafkalog.clients.producer import DeliveryRules, OnFull, Producer
from kafkalog.errors import ForkedLogError, KafkaLogError, LogClosedError, TopicExistsError
from kafkalog.files.directories import Paths
from kafkalog.log.log import Log, Wait
from kafkalog.log.opening import open_log as open_blocking_log
from kafkalog.log.reading import OnCorrupt
from kafkalog.manager.health import ManagerHealth
from kafkalog.manager.manager import LogManager, ManagerOptions
from kafkalog.manager_config import ManagerConfig
from kafkalog.model import TopicPartition

__all__ = ["AsyncLogManager", "open_log", "open_manager"]

T = TypeVar("T")

# Threads for blocking calls of a manager, and of a log.
MANAGER_THREADS: Final = 4
LOG_THREADS: Final = 2
# Seconds that producers get for their deliveries when a manager is closed.
CLOSE_SECONDS: Final = 10.0


class AsyncLogManager:
    """
    Partitions of many topics for an event loop. Made by `open_manager`.

    >>> async with kafkalog.aio.open_manager(["data"]) as manager:
    ...     await manager.create_topic("orders", 3, exist_ok=True)
    ...     async with manager.producer(wait="durable") as producer:
    ...         await producer.send_many("orders", keys, values)

    Args:
        manager: the blocking manager, which this object closes. Other threads may use it as well.
        calls: threads for blocking calls; new ones if None.

    Attributes:
        manager: the blocking manager, for calls that this class does not have: use `run`.
    """

    def __init__(self, manager: LogManager, calls: BlockingCalls | None = None) -> None:
        self.manager = manager
        self._calls = BlockingCalls(MANAGER_THREADS, "the manager") if calls is None else calls
        self._producers: WeakSet[AsyncProducer] = WeakSet()
        self._consumers: WeakSet[AsyncConsumer] = WeakSet()

    def __repr__(self) -> str:
        return f"<AsyncLogManager of {self.manager!r}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    @property
    def is_closed(self) -> bool:
        """True if the manager was closed."""
        return self.manager.is_closed

    async def run(self, function: Callable[[LogManager], T]) -> T:
        """
        Call a function with the blocking manager, in a thread; return its result.

        >>> await manager.run(lambda blocking: blocking.compact("orders", 0))
        """
        return await self._calls.run(lambda: function(self.manager))

    # -------------------------------------------------------------------------------------- topics

    async def create_topic(
        self,
        topic: str,
        partition_count: int = 1,
        config: Mapping[str, str] | None = None,
        *,
        exist_ok: bool = False,
        directory: str | PathLike[str] | None = None,
    ) -> bool:
        """
        Create a topic with all of its partitions; return whether it was created.

        Args:
            topic, partition_count, config, directory: as for `LogManager.create_topic`.
            exist_ok: return False if the topic exists, whatever its partitions and settings are.

        Raises:
            TopicExistsError, InvalidTopicError, ConfigError, DiskFullError, LogStorageError,
                LogOfflineError: as for `LogManager.create_topic`.
        """
        own = None if config is None else dict(config)

        def create(manager: LogManager) -> bool:
            try:
                manager.create_topic(topic, partition_count, own, directory=directory)
            except TopicExistsError:
                if not exist_ok:
                    raise
                return False
            return True

        return await self.run(create)

    async def delete_topic(self, topic: str) -> None:
        """Delete all partitions of a topic, and its settings; see `LogManager.delete_topic`."""
        await self.run(lambda manager: manager.delete_topic(topic))

    async def topics(self) -> dict[str, tuple[int, ...]]:
        """Return the topics with the numbers of their partitions."""
        return await self.run(LogManager.topics)

    async def partitions(self) -> tuple[TopicPartition, ...]:
        """Return the names of all partitions, in order."""
        return await self.run(LogManager.partitions)

    async def log(self, topic: str, partition: int = 0) -> AsyncLog:
        """Return the log of a partition, opened if necessary; see `LogManager.log`."""
        log = await self.run(lambda manager: manager.log(topic, partition))
        flush = partial(self.manager.flush, [TopicPartition(topic, partition)])
        return AsyncLog(log, self._calls, flush)

    async def flush(
        self, partitions: Iterable[TopicPartition | tuple[str, int]] | None = None
    ) -> dict[TopicPartition, int]:
        """Put everything that was appended to partitions on the disk; see `LogManager.flush`."""
        own = None if partitions is None else list(partitions)
        return await self.run(lambda manager: manager.flush(own))

    async def health(self) -> ManagerHealth:
        """Return the state of directories, tasks, cleaner and logs, and all present faults."""
        return await self.run(LogManager.health)

    # ------------------------------------------------------------------------------------- clients

    def producer(
        self, *, wait: Wait = "written", on_full: OnFull = "wait", **settings: Any
    ) -> AsyncProducer:
        """
        Return a producer of records for all topics. Its first call opens it, or `async with`.

        Args:
            wait, on_full, settings: as for `LogManager.producer`. `linger_ms` is 0 if it is not
                set: records wait only for those that are sent at the same time.

        Raises:
            ConfigError, ValueError: a setting is unknown, or its value is wrong.
            LogClosedError: the manager is closed.
        """
        self._ensure_open()
        DeliveryRules(wait, on_full)
        writes_at_once = not settings.get("linger_ms", 0)
        if writes_at_once:
            # The thread writes all batches; the timer writes them if it cannot.
            settings.pop("linger_ms", None)
        config = producer_config(settings)
        manager = self.manager

        def open_producer() -> Producer:
            return manager.producer(wait=wait, on_full=on_full, **settings)

        made = AsyncProducer(open_producer, config, self._calls, writes_at_once=writes_at_once)
        self._producers.add(made)
        return made

    def consumer(
        self,
        group: str = "",
        *,
        on_corrupt: OnCorrupt = "raise",
        on_lost: Callable[[LostRecords], object] | None = None,
        **settings: Any,
    ) -> AsyncConsumer:
        """
        Return a consumer, which subscribes to topics or is assigned partitions.

        Args:
            group, on_corrupt, settings: as for `LogManager.consumer`.
            on_lost: as for it; a thread calls it.

        Raises:
            ConfigError: a setting is unknown, or its value is wrong.
            LogClosedError: the manager is closed.
        """
        self._ensure_open()
        config = consumer_config(settings)
        manager = self.manager
        made = AsyncConsumer(
            lambda: manager.consumer(group, on_corrupt=on_corrupt, on_lost=on_lost, **settings),
            config,
            self._calls,
        )
        self._consumers.add(made)
        return made

    # ------------------------------------------------------------------------------------- closing

    async def aclose(self, timeout: float | None = CLOSE_SECONDS) -> None:
        """
        Close consumers, producers and logs, and release the directories. Idempotent.

        Args:
            timeout: seconds that each producer gets for its deliveries, as for its `aclose`.

        Raises:
            LogStorageError: a directory could not be closed in order; all others are closed.
        """
        for consumer in list(self._consumers):
            await consumer.aclose()
        errors: list[KafkaLogError] = []
        for producer in list(self._producers):
            try:
                await producer.aclose(timeout)
            except KafkaLogError as error:
                errors.append(error)
        try:
            await self._calls.run(self.manager.close)
        except LogClosedError:
            # An earlier call has closed it.
            return
        except ForkedLogError:
            # In a forked child only descriptors are released.
            self.manager.close()
        finally:
            self._calls.close()
        if errors:
            raise errors[0]

    def _ensure_open(self) -> None:
        if self.manager.is_closed:
            raise LogClosedError("the manager is closed")


def open_manager(
    directories: Paths = (),
    config: ManagerConfig | None = None,
    *,
    threads: int = MANAGER_THREADS,
    **options: Unpack[ManagerOptions],
) -> PendingOpen[AsyncLogManager]:
    """
    Open data directories for event loops; recover them in threads if necessary.

    >>> async with kafkalog.aio.open_manager(["data"]) as manager: ...
    >>> manager = await kafkalog.aio.open_manager(["data"])

    If the task is cancelled during the opening, the manager is closed once it is open.

    Args:
        directories, config, options: as for `LogManager`.
        threads: largest number of threads for blocking calls.

    Raises:
        LogLockedError, ConfigError, LogStorageError, CorruptStateError: as for `LogManager`.
    """

    def open_blocking() -> LogManager:
        return LogManager(directories, config, **options)

    async def open_object() -> AsyncLogManager:
        calls = BlockingCalls(threads, "the manager")
        try:
            return AsyncLogManager(await calls.run(open_blocking, undo=LogManager.close), calls)
        except BaseException:
            calls.close()
            raise

    return PendingOpen(open_object)


def open_log(
    directory: str | PathLike[str], *, threads: int = LOG_THREADS, **options: Any
) -> PendingOpen[AsyncLog]:
    """
    Open the log of one partition for event loops; recover it in a thread if necessary.

    If the task is cancelled during the opening, the log is closed once it is open.

    Args:
        directory, options: as for `kafkalog.open_log`.
        threads: largest number of threads for blocking calls.

    Raises:
        KafkaLogError: as for `kafkalog.open_log`.
    """

    async def open_object() -> AsyncLog:
        calls = BlockingCalls(threads, "the log")
        try:
            log = await calls.run(partial(open_blocking_log, directory, **options), undo=Log.close)
        except BaseException:
            calls.close()
            raise

        def close() -> None:
            try:
                log.close()
            finally:
                calls.close()

        return AsyncLog(log, calls, log.flush, close)

    return PendingOpen(open_object)
