"""Content of the small files of a log: checkpoints, leader epochs, metadata, markers.

The readers of `kafkalog.state` decide what is right. If they refuse a file, the dump reports it,
and still shows the lines that can be parsed: the user may need them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from kafkalog.errors import CorruptStateError
from kafkalog.files import names
from kafkalog.files.atomic_files import read_file
from kafkalog.files.filesystem import FileSystem
from kafkalog.java_properties import ENCODING, PropertiesSyntaxError, parse_properties
from kafkalog.state.checkpoints import LeaderEpochCheckpoint, OffsetCheckpoint
from kafkalog.state.kafka_uuid import format_id
from kafkalog.state.meta_properties import read_meta_properties
from kafkalog.state.partition_metadata import read_partition_metadata
from kafkalog.state.shutdown_marker import read_shutdown_marker

from .facts import DamageFact, EntryFact, Fact

__all__ = ["SMALL_FILES"]

_MAX_BYTES: Final = 128 * 1024 * 1024
_OFFSET_LINE: Final = re.compile(r"(\S+)\s+(\d+)\s+(\d+)")
_EPOCH_LINE: Final = re.compile(r"(\d+)\s+(\d+)")
_PROPERTY_LINE: Final = re.compile(r"([\w.]+)\s*[:=]\s*(\S+)")


def offset_checkpoint(filesystem: FileSystem, path: Path) -> Iterator[Fact]:
    """Yield an offset for each partition."""
    try:
        entries = OffsetCheckpoint(filesystem, path).read()
    except CorruptStateError as error:
        yield refused(filesystem, path, error)
        for match in matching_lines(filesystem, path, _OFFSET_LINE):
            yield offset_entry(match[1], int(match[2]), int(match[3]))
        return
    for (topic, partition), offset in entries.items():
        yield offset_entry(topic, partition, offset)


def offset_entry(topic: str, partition: int, offset: int) -> EntryFact:
    values = {"topic": topic, "partition": partition, "offset": offset}
    return EntryFact("checkpoint_entry", values)


def leader_epochs(filesystem: FileSystem, path: Path) -> Iterator[Fact]:
    """Yield leader epochs and their start offsets."""
    try:
        entries = [tuple(each) for each in LeaderEpochCheckpoint(filesystem, path).read()]
    except CorruptStateError as error:
        yield refused(filesystem, path, error)
        entries = [
            (int(match[1]), int(match[2]))
            for match in matching_lines(filesystem, path, _EPOCH_LINE)
        ]
    for epoch, start_offset in entries:
        yield EntryFact("leader_epoch", {"epoch": epoch, "start_offset": start_offset})


def partition_metadata(filesystem: FileSystem, path: Path) -> Iterator[Fact]:
    """Yield the topic's id."""
    try:
        topic_id = read_partition_metadata(filesystem, path.parent)
    except CorruptStateError as error:
        yield refused(filesystem, path, error)
        for match in matching_lines(filesystem, path, _PROPERTY_LINE):
            yield EntryFact("partition_metadata", {match[1]: match[2]})
        return
    if topic_id is not None:
        yield EntryFact("partition_metadata", {"version": 0, "topic_id": format_id(topic_id)})


def meta_properties(filesystem: FileSystem, path: Path) -> Iterator[Fact]:
    """Yield every property of the data directory, known or not."""
    try:
        read_meta_properties(filesystem, path.parent)
    except CorruptStateError as error:
        yield refused(filesystem, path, error)
    text = (read_file(filesystem, path, max_bytes=_MAX_BYTES) or b"").decode(ENCODING)
    try:
        properties = {each.key: each.value for each in parse_properties(text)}
    except PropertiesSyntaxError:
        return
    for name in sorted(properties):
        yield EntryFact("property", {"name": name, "value": properties[name]})


def shutdown_marker(filesystem: FileSystem, path: Path) -> Iterator[Fact]:
    """Yield the epoch of the broker that closed the directory cleanly."""
    marker = read_shutdown_marker(filesystem, path.parent)
    if marker is not None:
        yield EntryFact("clean_shutdown", {"broker_epoch": marker.broker_epoch})


def quorum_state(filesystem: FileSystem, path: Path) -> Iterator[Fact]:
    """Yield a KRaft node's state of its quorum."""
    data = read_file(filesystem, path, max_bytes=_MAX_BYTES) or b""
    try:
        values = json.loads(data)
    except ValueError as error:
        yield DamageFact(0, len(data), "STATE_FILE", f"no JSON: {error}")
        return
    if not isinstance(values, dict):
        yield DamageFact(0, len(data), "STATE_FILE", "the JSON is not an object")
        return
    yield EntryFact("quorum_state", values)


def refused(filesystem: FileSystem, path: Path, error: CorruptStateError) -> DamageFact:
    facts = filesystem.stat(path)
    size = 0 if facts is None else facts.size_bytes
    # The reader's message begins with the path, which the dump has just printed.
    return DamageFact(None, size, "STATE_FILE", str(error).removeprefix(f"{path}: "))


def matching_lines(
    filesystem: FileSystem, path: Path, pattern: re.Pattern[str]
) -> Iterator[re.Match[str]]:
    """Yield a match for each line of a damaged file that still has the right form."""
    try:
        data = read_file(filesystem, path, max_bytes=_MAX_BYTES) or b""
    except ValueError:
        return
    for line in data.decode("utf-8", "backslashreplace").split("\n"):
        match = pattern.fullmatch(line.strip())
        if match is not None:
            yield match


SmallFileReader = Callable[[FileSystem, Path], Iterator[Fact]]

SMALL_FILES: Final[dict[str, tuple[str, SmallFileReader]]] = {
    names.RECOVERY_POINT_CHECKPOINT: ("offset checkpoint", offset_checkpoint),
    names.LOG_START_OFFSET_CHECKPOINT: ("offset checkpoint", offset_checkpoint),
    names.HIGH_WATERMARK_CHECKPOINT: ("offset checkpoint", offset_checkpoint),
    names.CLEANER_OFFSET_CHECKPOINT: ("offset checkpoint", offset_checkpoint),
    names.LEADER_EPOCH_CHECKPOINT: ("leader epochs", leader_epochs),
    names.PARTITION_METADATA: ("partition metadata", partition_metadata),
    names.META_PROPERTIES: ("meta properties", meta_properties),
    names.CLEAN_SHUTDOWN_MARKER: ("clean shutdown marker", shutdown_marker),
    "quorum-state": ("quorum state", quorum_state),
}
