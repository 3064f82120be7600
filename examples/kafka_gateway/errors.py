"""Error codes of Kafka's protocol for the errors of kafkalog."""

from __future__ import annotations

from wire import ErrorCode

from kafkalog import KafkaLogError, LogClosedError, LogStorageError

__all__ = ["code_of"]


def code_of(error: KafkaLogError) -> ErrorCode:
    """Return the code that a client gets for an error of the engine."""
    if error.kafka_code is not None:
        return ErrorCode(error.kafka_code)
    if isinstance(error, LogStorageError):
        return ErrorCode.kafka_storage_error
    if isinstance(error, LogClosedError):
        # Deleted or closed during the call: the client asks for metadata, and tries again.
        return ErrorCode.not_leader_or_follower
    return ErrorCode.unknown_server_error
