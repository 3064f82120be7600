"""`partition.metadata`: the topic id that a partition directory belongs to.

    version: 0
    topic_id: AAECAwQFBgcICQoLDA0ODw        (no newline at the end)

A broker serves a directory only if this id equals the id of the topic in its cluster. The file is
replaced as a whole: after a crash it is the old one or the new one
(`kafkalog.files.atomic_files`).

Thread-safety: pure functions over the disk; the log's writer calls `write_partition_metadata`.
"""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import Final

from kafkalog.errors import CorruptStateError
from kafkalog.files.atomic_files import read_file, replace_file
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.names import PARTITION_METADATA
from kafkalog.state.kafka_uuid import ZERO_ID, format_id, parse_id

__all__ = ["read_partition_metadata", "write_partition_metadata"]

_MAX_BYTES: Final = 64 * 1024
_FIELD = re.compile(r"(?P<key>[a-z_]+):\s+(?P<value>\S+)\s*")


def read_partition_metadata(filesystem: FileSystem, directory: Path) -> uuid.UUID | None:
    """
    Return the topic id, or None if the file is missing.

    Raises:
        CorruptStateError: the file is damaged, or the id is all zeros.
        LogStorageError: the file cannot be read.
    """
    path = directory / PARTITION_METADATA
    try:
        with storage_errors(path, doing="reading"):
            data = read_file(filesystem, path, max_bytes=_MAX_BYTES)
        return None if data is None else _parse(data.decode("utf-8"))
    except ValueError as error:
        raise CorruptStateError(f"{path}: {error}", path=path) from error


def _parse(text: str) -> uuid.UUID:
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    if len(lines) != 2:
        raise ValueError(f"the file must have 2 lines, 'version' and 'topic_id', got {len(lines)}")
    version = _field(1, lines[0], "version")
    if re.fullmatch(r"[0-9]{1,10}", version) is None:
        raise ValueError(f"line 1: version must be a number, got {version[:40]!r}")
    try:
        topic_id = parse_id(_field(2, lines[1], "topic_id"))
    except ValueError as error:
        raise ValueError(f"line 2: {error}") from error
    if topic_id == ZERO_ID:
        raise ValueError("line 2: topic_id must not be all zeros")
    return topic_id


def _field(line_number: int, line: str, key: str) -> str:
    match = _FIELD.fullmatch(line)
    if match is None or match["key"] != key:
        raise ValueError(f"line {line_number}: must be '{key}: ...', got {line[:40]!r}")
    return match["value"]


def write_partition_metadata(filesystem: FileSystem, directory: Path, topic_id: uuid.UUID) -> None:
    """Write the topic id; it is on the disk when this returns."""
    if topic_id == ZERO_ID:
        raise ValueError("topic_id must not be all zeros, which means 'none'")
    path = directory / PARTITION_METADATA
    text = f"version: 0\ntopic_id: {format_id(topic_id)}"
    with storage_errors(path, doing="writing"):
        replace_file(filesystem, path, text.encode("ascii"))
