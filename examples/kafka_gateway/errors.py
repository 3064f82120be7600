"""Error codes and messages of Kafka's protocol for the errors of kafkalog."""

from __future__ import annotations

from pathlib import Path

from wire import ErrorCode

from kafkalog import KafkaLogError, LogClosedError, LogStorageError

__all__ = ["code_of", "message_of"]


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


def message_of(error: KafkaLogError) -> str:
    """Return the message of an error without the directories of this machine."""
    message = str(error)
    return message if error.path is None else message.replace(error.path, Path(error.path).name)
