"""Requests about the server and its topics: ApiVersions, Metadata, CreateTopics, InitProducerId.

There is one broker, the gateway, which leads every partition. The leader epoch of a partition is
that of its log, because clients wait for a leader whose epoch is as high as that of the records
that they have read.

Thread-safety: methods belong to the loop; functions with a `LogManager` run in its threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from connection import CloseConnectionError, Response
from errors import code_of, message_of
from wire import API_VERSIONS, NO_TIME, SUPPORTED, ErrorCode, Request, UnsupportedRequestError

from kafkalog import (
    ConfigError,
    InvalidTopicError,
    KafkaLogError,
    LogConfig,
    LogManager,
    TopicExistsError,
)
from kafkalog.aio import AsyncLogManager
from kafkalog.files.names import ensure_topic_name

__all__ = ["INTERNAL_TOPICS", "NO_TRANSACTIONS", "Broker", "TopicRequests", "refuse"]

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state"})

# Code for transactional ids. Clients end with it; after others they try again for a minute.
NO_TRANSACTIONS: Final = ErrorCode.transactional_id_authorization_failed

GROUP_KEY: Final = 0
_NO_NODE: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """
    The server as its metadata describes it, and its rules for new topics.

    Attributes:
        node_id, cluster_id: of the data directories.
        host, port: address for clients.
        auto_create_partitions: partitions of a topic that is created because a client asks for its
            metadata; 0 to create none.
        max_partitions: partitions of all topics, above which clients create none.
    """

    node_id: int
    cluster_id: str
    host: str
    port: int
    auto_create_partitions: int
    max_partitions: int


def refuse(error: UnsupportedRequestError) -> Response:
    """
    Return the response to a request that is not served: ApiVersions 0 for another ApiVersions.

    Raises:
        CloseConnectionError: for every other request; the client cannot read any response.
    """
    if error.api_key != API_VERSIONS:
        raise CloseConnectionError(str(error)) from error
    request = Request(API_VERSIONS, 0, error.correlation_id, None, None)
    return [_encode_versions(request, ErrorCode.unsupported_version)]


def _encode_versions(request: Request, code: ErrorCode) -> bytes:
    keys = tuple(
        request.make("ApiVersion", api_key=key, min_version=lowest, max_version=highest)
        for key, (lowest, highest) in SUPPORTED.items()
    )
    return request.encode(error_code=code, api_keys=keys, throttle_time=NO_TIME)


class TopicRequests:
    """
    Handlers of requests about the server and its topics.

    Args:
        manager: has the topics.
        broker: see there.
    """

    def __init__(self, manager: AsyncLogManager, broker: Broker) -> None:
        self._manager = manager
        self._broker = broker

    async def api_versions(self, request: Request) -> Response:
        """Return the versions of all APIs."""
        return [_encode_versions(request, ErrorCode.none)]

    async def init_producer_id(self, request: Request) -> Response:
        """Return a new producer id; transactional producers are refused."""
        if request.body.transactional_id is not None:
            return [self._producer_id(request, -1, -1, NO_TRANSACTIONS)]
        producer_id = await self._manager.run(LogManager.new_producer_id)
        return [self._producer_id(request, producer_id, 0, ErrorCode.none)]

    def _producer_id(
        self, request: Request, producer_id: int, epoch: int, code: ErrorCode
    ) -> bytes:
        return request.encode(
            throttle_time=NO_TIME, error_code=code, producer_id=producer_id, producer_epoch=epoch
        )

    async def find_coordinator(self, request: Request) -> Response:
        """Return this server for every group; transactional ids have no coordinator."""
        body = request.body
        is_group = getattr(body, "key_type", GROUP_KEY) == GROUP_KEY
        found = {
            "node_id": self._broker.node_id if is_group else _NO_NODE,
            "host": self._broker.host if is_group else "",
            "port": self._broker.port if is_group else -1,
            "error_code": ErrorCode.none if is_group else NO_TRANSACTIONS,
            "error_message": None if is_group else "transactions are not served",
        }
        keys = getattr(body, "coordinator_keys", ())
        coordinators = tuple(request.make("Coordinator", key=key, **found) for key in keys)
        return [request.encode(throttle_time=NO_TIME, coordinators=coordinators, **found)]

    # ------------------------------------------------------------------------------- metadata

    async def metadata(self, request: Request) -> Response:
        """Return the broker and the requested topics, which may be created for it."""
        return [await self._manager.run(partial(self._encode_metadata, request))]

    def _encode_metadata(self, request: Request, manager: LogManager) -> bytes:
        broker = self._broker
        node = request.make(
            "MetadataResponseBroker", node_id=broker.node_id, host=broker.host, port=broker.port
        )
        return request.encode(
            throttle_time=NO_TIME,
            brokers=(node,),
            cluster_id=broker.cluster_id,
            controller_id=broker.node_id,
            topics=self._topics(request, manager),
        )

    def _topics(self, request: Request, manager: LogManager) -> tuple[Any, ...]:
        existing = manager.topics()
        wanted = request.body.topics
        if wanted is None or (request.version == 0 and not wanted):
            return tuple(
                self._topic(request, manager, name, existing[name]) for name in sorted(existing)
            )
        found = []
        for each in wanted:
            if each.name is None:
                topic = _failed_topic(request, "", ErrorCode.unknown_topic_id, each.topic_id)
            else:
                topic = self._wanted_topic(request, manager, each.name, existing.get(each.name, ()))
            found.append(topic)
        return tuple(found)

    def _wanted_topic(
        self, request: Request, manager: LogManager, name: str, partitions: tuple[int, ...]
    ) -> Any:
        may_create = getattr(request.body, "allow_auto_topic_creation", True)
        code = ErrorCode.unknown_topic_or_partition
        if not partitions and may_create and self._broker.auto_create_partitions:
            partitions, code = self._create_for_client(manager, name)
        if not partitions:
            return _failed_topic(request, name, code)
        return self._topic(request, manager, name, partitions)

    def _create_for_client(
        self, manager: LogManager, name: str
    ) -> tuple[tuple[int, ...], ErrorCode]:
        count = self._broker.auto_create_partitions
        if not self._may_create(manager, count):
            return (), ErrorCode.policy_violation
        try:
            manager.create_topic(name, count)
        except TopicExistsError:
            return manager.topics().get(name, ()), ErrorCode.unknown_topic_or_partition
        except KafkaLogError as error:
            return (), code_of(error)
        return tuple(range(count)), ErrorCode.none

    def _may_create(self, manager: LogManager, count: int) -> bool:
        return len(manager.partitions()) + count <= self._broker.max_partitions

    def _topic(
        self, request: Request, manager: LogManager, name: str, partitions: tuple[int, ...]
    ) -> Any:
        return request.make(
            "MetadataResponseTopic",
            error_code=ErrorCode.none,
            name=name,
            topic_id=None,
            is_internal=name in INTERNAL_TOPICS,
            partitions=tuple(
                self._partition(request, manager, name, partition) for partition in partitions
            ),
        )

    def _partition(self, request: Request, manager: LogManager, name: str, partition: int) -> Any:
        node, epoch, code = self._broker.node_id, -1, ErrorCode.none
        try:
            epoch = manager.log(name, partition).leader_epoch
        except KafkaLogError:
            node, code = _NO_NODE, ErrorCode.leader_not_available
        nodes = () if node == _NO_NODE else (node,)
        return request.make(
            "MetadataResponsePartition",
            error_code=code,
            partition_index=partition,
            leader_id=node,
            leader_epoch=epoch,
            replica_nodes=(self._broker.node_id,),
            isr_nodes=nodes,
            offline_replicas=() if nodes else (self._broker.node_id,),
        )

    # ------------------------------------------------------------------------------- creation

    async def create_topics(self, request: Request) -> Response:
        """Create topics, each with all of its partitions or none."""
        return [await self._manager.run(partial(self._encode_created, request))]

    def _encode_created(self, request: Request, manager: LogManager) -> bytes:
        names = [each.name for each in request.body.topics]
        results = []
        for each in request.body.topics:
            code, reason = ErrorCode.none, None
            count = _partition_count(each, max(self._broker.auto_create_partitions, 1))
            try:
                if names.count(each.name) > 1:
                    code, reason = ErrorCode.invalid_request, "the topic is named twice"
                else:
                    code, reason = self._create(request, manager, each, count)
            except ConfigError as error:
                code, reason = ErrorCode.invalid_config, str(error)
            except KafkaLogError as error:
                code, reason = code_of(error), message_of(error)
            results.append(_creation_result(request, each.name, count, code, reason))
        return request.encode(throttle_time=NO_TIME, topics=tuple(results))

    def _create(
        self, request: Request, manager: LogManager, topic: Any, count: int
    ) -> tuple[ErrorCode, str | None]:
        if topic.assignments:
            if not _is_own_assignment(topic, self._broker.node_id):
                return ErrorCode.invalid_replica_assignment, "there is only one broker"
        elif topic.replication_factor not in (-1, 1):
            return ErrorCode.invalid_replication_factor, "there is only one broker"
        if count < 1:
            return ErrorCode.invalid_partitions, f"partitions must be >= 1, got {count}"
        if topic.name in manager.topics():
            raise TopicExistsError(f"topic {topic.name} exists already")
        if topic.name in INTERNAL_TOPICS:
            raise InvalidTopicError(f"clients must not create {topic.name}")
        if not self._may_create(manager, count):
            limit = self._broker.max_partitions
            return ErrorCode.policy_violation, f"there may be {limit} partitions"
        config = {each.name: each.value for each in topic.configs if each.value is not None}
        if request.body.validate_only:
            _ensure_name(topic.name)
            LogConfig.from_properties(config)
        else:
            manager.create_topic(topic.name, count, config)
        return ErrorCode.none, None


def _failed_topic(request: Request, name: str, code: ErrorCode, topic_id: Any = None) -> Any:
    return request.make(
        "MetadataResponseTopic",
        error_code=code,
        name=name if topic_id is None or request.version < 12 else None,
        topic_id=topic_id,
        is_internal=name in INTERNAL_TOPICS,
        partitions=(),
    )


def _partition_count(topic: Any, default: int) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return default if topic.num_partitions == -1 else int(topic.num_partitions)


def _is_own_assignment(topic: Any, node_id: int) -> bool:
    numbers = sorted(each.partition_index for each in topic.assignments)
    return numbers == list(range(len(numbers))) and all(
        tuple(each.broker_ids) == (node_id,) for each in topic.assignments
    )


def _ensure_name(topic: str) -> None:
    try:
        ensure_topic_name(topic)
    except ValueError as error:
        raise InvalidTopicError(str(error)) from error


def _creation_result(
    request: Request, name: str, count: int, code: ErrorCode, reason: str | None
) -> Any:
    return request.make(
        "CreatableTopicResult",
        name=name,
        topic_id=None,
        error_code=code,
        error_message=reason,
        num_partitions=-1 if code else count,
        replication_factor=-1 if code else 1,
        configs=(),
    )
