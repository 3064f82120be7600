"""Offsets: ListOffsets of logs, OffsetCommit and OffsetFetch of groups without members.

Positions of groups are in `__consumer_offsets`, as those of the engine's own consumers, and a
commit is answered when it is on the disk. There are no members: a commit of a generation is
refused, and every client may commit for every group.

Thread-safety: methods belong to the loop; functions with a `LogManager` run in its threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

from connection import Response
from errors import code_of
from fetch import ISOLATIONS, check_leader_epoch
from wire import NO_TIME, ErrorCode, Request

from kafkalog import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    CommittedOffset,
    Consumer,
    KafkaLogError,
    Log,
    LogManager,
    TopicPartition,
)
from kafkalog.aio import AsyncLogManager

__all__ = ["OffsetRequests"]

# First version of ListOffsets with MAX_TIMESTAMP.
_MAX_TIMESTAMP_VERSION: Final = 7
# Largest text of a committed position (Kafka: `offset.metadata.max.bytes`).
_METADATA_BYTES_MAX: Final = 4096
# Largest name of a group in the records of `__consumer_offsets`.
_GROUP_BYTES_MAX: Final = 32767
_NO_GENERATION: Final = -1


class OffsetRequests:
    """
    Handlers of requests about offsets.

    Args:
        manager: has the logs and the positions of groups.
    """

    def __init__(self, manager: AsyncLogManager) -> None:
        self._manager = manager

    async def list_offsets(self, request: Request) -> Response:
        """Return the offset for a time, or the start or end of each partition."""
        return [await self._manager.run(partial(_encode_offsets, request))]

    async def commit(self, request: Request) -> Response:
        """Commit positions of a group."""
        return [await self._manager.run(partial(_encode_committed, request))]

    async def fetch(self, request: Request) -> Response:
        """Return positions of groups."""
        return [await self._manager.run(partial(_encode_positions, request))]


# ----------------------------------------------------------------------------------- ListOffsets


def _encode_offsets(request: Request, manager: LogManager) -> bytes:
    topics = tuple(
        request.make(
            "ListOffsetsTopicResponse",
            name=topic.name,
            partitions=tuple(
                _offset_of(request, manager, topic.name, each) for each in topic.partitions
            ),
        )
        for topic in request.body.topics
    )
    return request.encode(throttle_time=NO_TIME, topics=topics)


def _offset_of(request: Request, manager: LogManager, topic: str, each: Any) -> Any:
    code, offset, timestamp, epoch = ErrorCode.none, -1, -1, -1
    try:
        log = manager.log(topic, each.partition_index)
        code = check_leader_epoch(log, getattr(each, "current_leader_epoch", -1))
        if not code:
            code, offset, timestamp = _find_offset(request, log, each.timestamp)
            epoch = -1 if code or offset < 0 else log.leader_epoch
    except KafkaLogError as error:
        code = code_of(error)
    return request.make(
        "ListOffsetsPartitionResponse",
        partition_index=each.partition_index,
        error_code=code,
        offset=offset,
        timestamp=timestamp,
        leader_epoch=epoch,
    )


def _find_offset(request: Request, log: Log, timestamp: int) -> tuple[ErrorCode, int, int]:
    """Return error code, offset and timestamp."""
    isolation: Any = ISOLATIONS.get(getattr(request.body, "isolation_level", 0))
    if isolation is None:
        return ErrorCode.invalid_request, -1, -1
    if timestamp < 0 and timestamp not in _special_timestamps(request.version):
        return ErrorCode.unsupported_version, -1, -1
    found = log.offset_for_timestamp(timestamp, isolation=isolation)
    if found is None:
        return ErrorCode.none, -1, -1
    if timestamp in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP):
        return ErrorCode.none, found.offset, -1
    return ErrorCode.none, found.offset, found.timestamp_ms


def _special_timestamps(version: int) -> tuple[int, ...]:
    if version < _MAX_TIMESTAMP_VERSION:
        return EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
    return EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP


# ---------------------------------------------------------------------------------- OffsetCommit


def _encode_committed(request: Request, manager: LogManager) -> bytes:
    body = request.body
    codes: dict[tuple[str, int], ErrorCode] = {}
    positions: dict[TopicPartition, CommittedOffset | int | None] = {}
    refusal = _refusal_of(body)
    for topic in body.topics:
        for each in topic.partitions:
            code = refusal or _check_position(manager, topic.name, each)
            codes[topic.name, each.partition_index] = code
            if not code:
                where = TopicPartition(topic.name, each.partition_index)
                positions[where] = _position_of(each)
    if positions:
        try:
            with _consumer(manager, body.group_id) as consumer:
                consumer.commit(positions, wait="durable")
        except KafkaLogError as error:
            codes |= dict.fromkeys(positions, code_of(error))
    topics = tuple(
        request.make(
            "OffsetCommitResponseTopic",
            name=topic.name,
            partitions=tuple(
                request.make(
                    "OffsetCommitResponsePartition",
                    partition_index=each.partition_index,
                    error_code=codes[topic.name, each.partition_index],
                )
                for each in topic.partitions
            ),
        )
        for topic in body.topics
    )
    return request.encode(throttle_time=NO_TIME, topics=topics)


def _refusal_of(body: Any) -> ErrorCode:
    if not _is_group_id(body.group_id):
        return ErrorCode.invalid_group_id
    if body.generation_id_or_member_epoch > _NO_GENERATION:
        return ErrorCode.illegal_generation
    if body.member_id:
        return ErrorCode.unknown_member_id
    return ErrorCode.none


def _is_group_id(group: str) -> bool:
    return 0 < len(group.encode()) <= _GROUP_BYTES_MAX


def _check_position(manager: LogManager, topic: str, each: Any) -> ErrorCode:
    if not _has_partition(manager, topic, each.partition_index):
        return ErrorCode.unknown_topic_or_partition
    if len((each.committed_metadata or "").encode()) > _METADATA_BYTES_MAX:
        return ErrorCode.offset_metadata_too_large
    if each.committed_offset < 0:
        return ErrorCode.invalid_request
    return ErrorCode.none


def _has_partition(manager: LogManager, topic: str, partition: int) -> bool:
    try:
        manager.directory_of(topic, partition)
    except KafkaLogError:
        return False
    return True


def _position_of(each: Any) -> CommittedOffset:
    epoch = getattr(each, "committed_leader_epoch", -1)
    return CommittedOffset(
        each.committed_offset, each.committed_metadata or "", None if epoch < 0 else epoch
    )


def _consumer(manager: LogManager, group: str) -> Consumer:
    return manager.consumer(group, enable_auto_commit=False)


# ----------------------------------------------------------------------------------- OffsetFetch


def _encode_positions(request: Request, manager: LogManager) -> bytes:
    body = request.body
    if not hasattr(body, "groups"):
        code, topics = _positions_of(request, manager, body, "")
        return request.encode(throttle_time=NO_TIME, error_code=code, topics=topics)
    groups = []
    for each in body.groups:
        code, topics = _positions_of(request, manager, each, "s")
        groups.append(
            request.make(
                "OffsetFetchResponseGroup", group_id=each.group_id, topics=topics, error_code=code
            )
        )
    return request.encode(throttle_time=NO_TIME, groups=tuple(groups))


def _positions_of(
    request: Request, manager: LogManager, group: Any, suffix: str
) -> tuple[ErrorCode, tuple[Any, ...]]:
    """Return the error code and the topics of a group; names of their types end with `suffix`."""
    if not _is_group_id(group.group_id):
        return ErrorCode.invalid_group_id, ()
    try:
        with _consumer(manager, group.group_id) as consumer:
            committed = consumer.all_committed()
    except KafkaLogError as error:
        return code_of(error), ()
    wanted: Iterable[tuple[str, Sequence[int]]]
    if group.topics is None:
        wanted = _by_topic(committed).items()
    else:
        wanted = [(topic.name, topic.partition_indexes) for topic in group.topics]
    return ErrorCode.none, tuple(
        _topic_of(
            request,
            name,
            [(number, committed.get(TopicPartition(name, number))) for number in partitions],
            suffix,
        )
        for name, partitions in wanted
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        found.setdefault(topic, []).append(number)
    return found


def _topic_of(
    request: Request, name: str, positions: list[tuple[int, CommittedOffset | None]], suffix: str
) -> Any:
    partitions = []
    for number, position in positions:
        epoch = None if position is None else position.leader_epoch
        partitions.append(
            request.make(
                "OffsetFetchResponsePartition" + suffix,
                partition_index=number,
                committed_offset=-1 if position is None else position.offset,
                committed_leader_epoch=-1 if epoch is None else epoch,
                metadata="" if position is None else position.metadata,
                error_code=ErrorCode.none,
            )
        )
    return request.make(
        "OffsetFetchResponseTopic" + suffix, name=name, partitions=tuple(partitions)
    )
