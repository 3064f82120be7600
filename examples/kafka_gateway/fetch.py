"""Fetch: slices of logs, sent as they are on the disk.

A response is bytes from `kio` with slices of logs between them; `sendfile` sends the slices, in a
thread, because they may have to come from the disk. A small response is read whole by the thread
that finds its slices, and sent by the loop: a second thread would cost more than the copy. A fetch
that finds less than `min_bytes` waits for appends to its partitions, which wake it, or for
`max_wait`. Until then its connection answers no later request, as with a broker.

Every fetch is complete in itself: no session is kept, and the session id is 0.
The high watermark is the end of the log: a consumer may get records that are not on the disk yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from connection import Response
from errors import code_of
from wire import NO_TIME, ErrorCode, Request, encode_entity, unsigned_varint

from kafkalog import FetchData, KafkaLogError, Log, LogManager, OffsetOutOfRangeError

__all__ = ["Fetching", "check_leader_epoch"]

T = TypeVar("T")

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
ISOLATIONS: Final = {READ_UNCOMMITTED: "read_uncommitted", READ_COMMITTED: "read_committed"}
# Size of the slices of a response up to which they are sent from memory.
_MEMORY_BYTES: Final = 64 * 1024
# First version of Fetch whose clients know zstd.
_ZSTD_VERSION: Final = 10
# Empty arrays at the end of what `kio` has written, with the tags after them.
_NO_ELEMENTS, _NO_ELEMENTS_FLEXIBLE = bytes(4), b"\x01\x00"
_NULL_RECORDS, _NULL_RECORDS_FLEXIBLE = b"\xff" * 4, b"\x00\x00"
_NO_TAGS: Final = b"\x00"


@dataclass(slots=True)
class _Slice:
    """Result for one partition: the log and a slice of it, or an error."""

    topic: str
    partition: int
    log: Log | None = None
    data: FetchData | None = None
    memory: memoryview | None = None
    code: ErrorCode = ErrorCode.none

    @property
    def size_bytes(self) -> int:
        return 0 if self.data is None else self.data.size_bytes


class Fetching:
    """
    Handler of Fetch.

    Args:
        manager: has the logs.
        threads: read, and register for appends.
        max_wait_seconds: largest wait of a fetch.
        max_bytes: largest response, unless its first batch alone is larger.
    """

    def __init__(
        self,
        manager: LogManager,
        threads: Executor,
        *,
        max_wait_seconds: float = 60.0,
        max_bytes: int = 64 << 20,
    ) -> None:
        self._manager = manager
        self._threads = threads
        self._max_wait_seconds = max_wait_seconds
        self._max_bytes = max_bytes
        self._waiting: set[_Appends] = set()
        self._is_stopping = False

    def stop(self) -> None:
        """Let no fetch wait any more."""
        self._is_stopping = True
        for appends in self._waiting:
            appends.is_new.set()

    async def fetch(self, request: Request) -> Response:
        """Return slices of the requested partitions."""
        body = request.body
        if getattr(body, "session_id", 0):
            return [_encode_refusal(request, ErrorCode.fetch_session_id_not_found)]
        if body.isolation_level not in ISOLATIONS:
            return [_encode_refusal(request, ErrorCode.invalid_request)]
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(body.max_wait.total_seconds(), self._max_wait_seconds)
        is_last = deadline <= loop.time()
        response = await self._run(self._try_read, request, is_last)
        if response is None:
            response = await self._read_later(request, deadline)
        return response

    async def _read_later(self, request: Request, deadline: float) -> Response:
        """Read again after each append to one of the partitions, until there is enough."""
        loop = asyncio.get_running_loop()
        appends = _Appends(loop)
        self._waiting.add(appends)
        try:
            await self._run(self._watch, request, appends)
            while True:
                appends.is_new.clear()
                is_last = self._is_stopping or deadline <= loop.time()
                response = await self._run(self._try_read, request, is_last)
                if response is not None:
                    return response
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(deadline):
                        await appends.is_new.wait()
        finally:
            self._waiting.discard(appends)
            appends.close()

    async def _run(self, function: Callable[..., T], *arguments: Any) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, function, *arguments)

    # ------------------------------------------------------------------------------ in threads

    def _watch(self, request: Request, appends: _Appends) -> None:
        for topic, partition in _partitions_of(request.body):
            try:
                appends.watch(self._manager.log(topic, partition.partition))
            except KafkaLogError:
                # The next read has the error.
                continue

    def _try_read(self, request: Request, is_last: bool) -> Response | None:
        """Return the response; None if there is not enough, and this is not the last try."""
        slices = self._read(request)
        if not is_last and not _is_enough(request.body, slices):
            return None
        if sum(each.size_bytes for each in slices) <= _MEMORY_BYTES:
            _read_bytes(slices)
        return _encode_slices(request, slices)

    def _read(self, request: Request) -> list[_Slice]:
        left = max(min(request.body.max_bytes, self._max_bytes), 0)
        is_first = True
        slices = []
        for topic, partition in _partitions_of(request.body):
            result = _Slice(topic, partition.partition)
            try:
                self._read_partition(request, partition, result, left, is_first=is_first)
            except KafkaLogError as error:
                result.code, result.data = code_of(error), None
            left -= result.size_bytes
            is_first = is_first and not result.size_bytes
            slices.append(result)
        return slices

    def _read_partition(
        self, request: Request, partition: Any, result: _Slice, left: int, *, is_first: bool
    ) -> None:
        log = result.log = self._manager.log(result.topic, result.partition)
        result.code = check_leader_epoch(log, getattr(partition, "current_leader_epoch", -1))
        if result.code:
            return
        if request.version < _ZSTD_VERSION and log.config.compression_type == "zstd":
            result.code = ErrorCode.unsupported_compression_type
            return
        offset, size = partition.fetch_offset, max(min(partition.partition_max_bytes, left), 0)
        if not is_first and not size:
            if not log.log_start_offset <= offset <= log.log_end_offset:
                raise OffsetOutOfRangeError(f"{log.topic_partition} has no offset {offset}")
            return
        isolation: Any = ISOLATIONS[request.body.isolation_level]
        data = log.read(offset, size, isolation=isolation)
        if is_first or data.size_bytes <= size:
            result.data = data


class _Appends:
    """
    Appends to some logs.

    Args:
        loop: the loop of the task that waits.

    Attributes:
        is_new: set by an append.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.is_new = asyncio.Event()
        self._loop = loop
        self._ends: list[Callable[[], None]] = []
        self._is_closed = False

    def watch(self, log: Log) -> None:
        """Register for the appends to a log."""
        self._ends.append(log.watch(self._notify))
        if self._is_closed:
            self.close()

    def close(self) -> None:
        """Register no more; may be called again."""
        self._is_closed = True
        with suppress(IndexError):
            # A thread may register, and so close, at the same time.
            while True:
                self._ends.pop()()

    def _notify(self) -> None:
        if self.is_new.is_set() or self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self.is_new.set)


def check_leader_epoch(log: Log, epoch: int) -> ErrorCode:
    """Compare the leader epoch that a client has seen, -1 for none, with that of the log."""
    if epoch == -1 or epoch == log.leader_epoch:
        return ErrorCode.none
    if epoch < log.leader_epoch:
        return ErrorCode.fenced_leader_epoch
    return ErrorCode.unknown_leader_epoch


def _partitions_of(body: Any) -> Iterator[tuple[str, Any]]:
    for topic in body.topics:
        for partition in topic.partitions:
            yield topic.topic, partition


def _read_bytes(slices: list[_Slice]) -> None:
    for each in slices:
        if each.size_bytes and each.data is not None:
            try:
                each.memory = each.data.data
            except KafkaLogError as error:
                each.code, each.data = code_of(error), None


def _is_enough(body: Any, slices: list[_Slice]) -> bool:
    return (
        not slices
        or sum(each.size_bytes for each in slices) >= body.min_bytes
        or any(each.code for each in slices)
    )


# ------------------------------------------------------------------------------------- responses


def _encode_refusal(request: Request, code: ErrorCode) -> bytes:
    return request.encode(throttle_time=NO_TIME, error_code=code, session_id=0, responses=())


def _encode_slices(request: Request, slices: list[_Slice]) -> Response:
    by_topic: dict[str, list[_Slice]] = {}
    for each in slices:
        by_topic.setdefault(each.topic, []).append(each)
    is_flexible = request.is_flexible
    empty = _NO_ELEMENTS_FLEXIBLE if is_flexible else _NO_ELEMENTS
    end = _NO_TAGS if is_flexible else b""
    body = _Pieces(request.header())
    head = request.response(
        throttle_time=NO_TIME, error_code=ErrorCode.none, session_id=0, responses=()
    )
    body.add(encode_entity(head).removesuffix(empty), _array_length(len(by_topic), is_flexible))
    for name, found in by_topic.items():
        topic = request.make("FetchableTopicResponse", topic=name, partitions=())
        body.add(encode_entity(topic).removesuffix(empty), _array_length(len(found), is_flexible))
        for each in found:
            _add_partition(request, body, each, is_flexible=is_flexible)
        body.add(end)
    body.add(end)
    return body.with_length()


def _add_partition(request: Request, body: _Pieces, each: _Slice, *, is_flexible: bool) -> None:
    entity = encode_entity(_partition_data(request, each))
    size = each.size_bytes
    if is_flexible:
        body.add(entity.removesuffix(_NULL_RECORDS_FLEXIBLE), unsigned_varint(size + 1))
    else:
        body.add(entity.removesuffix(_NULL_RECORDS), size.to_bytes(4))
    if each.memory is not None:
        body.add(each.memory)
    elif each.data is not None and size:
        body.add_slice(each.data)
    if is_flexible:
        body.add(_NO_TAGS)


def _partition_data(request: Request, each: _Slice) -> Any:
    end, stable, start = -1, -1, -1
    if each.log is not None and not each.code:
        end, stable = each.log.high_watermark, each.log.last_stable_offset
        start = each.log.log_start_offset
    aborted = None if each.data is None else each.data.aborted_transactions
    if aborted is not None:
        aborted = tuple(
            request.make(
                "AbortedTransaction",
                producer_id=transaction.producer_id,
                first_offset=transaction.first_offset,
            )
            for transaction in aborted
        )
    return request.make(
        "PartitionData",
        partition_index=each.partition,
        error_code=each.code,
        high_watermark=end,
        last_stable_offset=stable,
        log_start_offset=start,
        aborted_transactions=aborted,
        preferred_read_replica=-1,
        records=None,
    )


def _array_length(count: int, is_flexible: bool) -> bytes:
    return unsigned_varint(count + 1) if is_flexible else count.to_bytes(4)


class _Pieces:
    """Bytes and slices of a response, in their order."""

    def __init__(self, head: bytes) -> None:
        self._size = 0
        self._pieces: list[bytes | FetchData] = []
        self._bytes = bytearray(head)

    def add(self, *parts: bytes | memoryview) -> None:
        for part in parts:
            self._bytes += part

    def add_slice(self, data: FetchData) -> None:
        self._end_bytes()
        self._pieces.append(data)
        self._size += data.size_bytes

    def with_length(self) -> Response:
        self._end_bytes()
        first = self._pieces[0]
        assert isinstance(first, bytes)
        self._pieces[0] = self._size.to_bytes(4) + first
        return self._pieces

    def _end_bytes(self) -> None:
        self._pieces.append(bytes(self._bytes))
        self._size += len(self._bytes)
        self._bytes = bytearray()
