"""Produce: batches of clients are checked and appended as they are.

The engine does what a broker's leader does with a producer's batch: it checks sizes, CRC and
records, assigns offsets, and compares the sequence with the state of the producer. A batch that
was sent a second time gets the offset of the first time.

`acks=all` is answered when the records are on the disk; all requests that wait share the syncs.
`acks=1` is answered when the operating system has them, and `acks=0` not at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from commits import SharedCommits
from connection import CloseConnectionError, Reply, Response
from errors import code_of, message_of
from topics import INTERNAL_TOPICS, NO_TRANSACTIONS
from wire import NO_TIME, ErrorCode, Request

from kafkalog import (
    AppendInfo,
    AppendOrigin,
    InvalidRecordError,
    InvalidTopicError,
    InvalidTxnStateError,
    KafkaLogError,
    Log,
    LogManager,
    RecordValidationError,
    UnsupportedCodecError,
)
from kafkalog.aio import AsyncLogManager

__all__ = ["Producing"]

ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1

# In the header of a batch: the format, and the codec in the lowest bits of the attributes.
_MAGIC_AT, _ATTRIBUTES_AT, _CODEC_MASK, _TRANSACTIONAL = 16, 22, 7, 16
_MAGIC, _ZSTD = 2, 4
# First version of Produce whose clients know zstd.
_ZSTD_VERSION: Final = 7


@dataclass(slots=True)
class _Appended:
    """Result for one partition: either the append, or an error."""

    topic: str
    partition: int
    log: Log | None = None
    info: AppendInfo | None = None
    error: KafkaLogError | None = None
    code: ErrorCode = ErrorCode.none

    def fail(self, error: KafkaLogError) -> None:
        self.error, self.code = error, code_of(error)


class Producing:
    """
    Handler of Produce.

    Args:
        manager: has the logs.
    """

    def __init__(self, manager: AsyncLogManager) -> None:
        self._manager = manager
        self._commits = SharedCommits(manager)

    async def produce(self, request: Request) -> Reply:
        """Append the batches of a request; the reply of `acks=all` waits for the disk."""
        body, acks = request.body, request.body.acks
        refusal = _refusal_of(body)
        if refusal is not ErrorCode.none:
            results = [
                _Appended(topic, each.index, code=refusal) for topic, each in _partitions_of(body)
            ]
        else:
            results = await self._manager.run(partial(_append_all, request))
        # While it waits for the disk, the request does not keep the client's bytes.
        request, body = request._replace(body=None), None
        if acks == ACKS_NONE:
            failed = next((each for each in results if each.code), None)
            if failed is not None:
                raise CloseConnectionError(
                    f"a batch without acknowledgement for {failed.topic}-{failed.partition}:"
                    f" {failed.error or failed.code.name}"
                )
            return None
        if acks == ACKS_ALL and any(_must_wait(each) for each in results):
            return asyncio.ensure_future(self._respond_after_commit(request, results))
        return _response(request, results)

    async def _respond_after_commit(self, request: Request, results: list[_Appended]) -> Response:
        waiting = [(each.log, each) for each in results if each.log and _must_wait(each)]
        failures = await self._commits.wait({log for log, _ in waiting})
        for log, each in waiting:
            if log in failures:
                each.fail(failures[log])
        return _response(request, results)


def _refusal_of(body: Any) -> ErrorCode:
    if body.acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
        return ErrorCode.invalid_required_acks
    if body.transactional_id is not None:
        return NO_TRANSACTIONS
    return ErrorCode.none


def _partitions_of(body: Any) -> Iterator[tuple[str, Any]]:
    for topic in body.topic_data:
        for partition in topic.partition_data:
            yield topic.name, partition


def _must_wait(each: _Appended) -> bool:
    return (
        each.info is not None
        and each.log is not None
        and each.log.durable_offset <= each.info.last_offset
    )


def _append_all(request: Request, manager: LogManager) -> list[_Appended]:
    """Append to each partition, in a thread."""
    results = []
    for topic, partition in _partitions_of(request.body):
        result = _Appended(topic, partition.index)
        try:
            if topic in INTERNAL_TOPICS:
                raise InvalidTopicError(f"clients must not write to {topic}")
            _check_batch(partition.records, request.version)
            result.log = manager.log(topic, partition.index)
            result.info = result.log.append_batches(partition.records, origin=AppendOrigin.CLIENT)
        except KafkaLogError as error:
            result.fail(error)
        results.append(result)
    return results


def _check_batch(records: memoryview | None, version: int) -> None:
    """Check what this version of Produce requires, beyond the rules of all batches."""
    if records is None or len(records) <= _ATTRIBUTES_AT or records[_MAGIC_AT] != _MAGIC:
        raise InvalidRecordError("a request must have one batch of the newest format")
    if version < _ZSTD_VERSION and records[_ATTRIBUTES_AT] & _CODEC_MASK == _ZSTD:
        raise UnsupportedCodecError(f"zstd needs Produce {_ZSTD_VERSION} or later")
    if records[_ATTRIBUTES_AT] & _TRANSACTIONAL:
        raise InvalidTxnStateError("transactions are not served")


# ------------------------------------------------------------------------------------- responses


def _response(request: Request, results: list[_Appended]) -> Response:
    by_topic: dict[str, list[Any]] = {}
    for each in results:
        by_topic.setdefault(each.topic, []).append(_partition_response(request, each))
    topics = tuple(
        request.make("TopicProduceResponse", name=name, partition_responses=tuple(found))
        for name, found in by_topic.items()
    )
    return [request.encode(responses=topics, throttle_time=NO_TIME)]


def _partition_response(request: Request, each: _Appended) -> Any:
    offset, start, time = -1, -1, None
    if not each.code and each.info is not None and each.log is not None:
        offset, start = each.info.first_offset, each.log.log_start_offset
        if each.info.log_append_time_ms is not None:
            time = datetime.fromtimestamp(each.info.log_append_time_ms / 1000, UTC)
    return request.make(
        "PartitionProduceResponse",
        index=each.partition,
        error_code=each.code,
        base_offset=offset,
        log_append_time=time,
        log_start_offset=start,
        record_errors=_record_errors(request, each.error),
        error_message=None if each.error is None else message_of(each.error),
    )


def _record_errors(request: Request, error: KafkaLogError | None) -> tuple[Any, ...]:
    if request.version < 8 or not isinstance(error, RecordValidationError):
        return ()
    return tuple(
        request.make(
            "BatchIndexAndErrorMessage",
            batch_index=each.index,
            batch_index_error_message=each.message,
        )
        for each in error.record_errors
    )
