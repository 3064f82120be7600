"""Conversion of a whole data directory of partitions, log by log: into a new one, or in place.

Every live partition is converted as in `partition` and `in_place`. In place, nothing else is
changed. Other files of a new data directory:

    meta.properties                       copied
    high watermarks, log starts, cleaner  copied: offsets stay
    recovery points                       the end of each log
    marker of a clean shutdown            kept if it was there: only then are the producer
                                          snapshots those of the end of each log
    `__cluster_metadata-0`                copied file by file: it is a controller's, not a log of
                                          records
    directories `-delete`, `-stray`, ...  left out

It is built under a temporary name, and renamed after the last partition.

Thread-safety: functions over the disk, from any thread. A conversion in place holds the lock of the
directory; of a conversion into a new one the source must have no writer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Final

from kafkalog.clock import Clock
from kafkalog.config import LogConfig
from kafkalog.errors import NotALogError
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.locking import acquire_directory_lock
from kafkalog.files.names import (
    CLEAN_SHUTDOWN_MARKER,
    CLUSTER_METADATA_TOPIC,
    LOCK_FILE,
    RECOVERY_POINT_CHECKPOINT,
    DirectoryState,
    try_parse_partition_directory,
)
from kafkalog.log.conversion.in_place import convert_partition_in_place
from kafkalog.log.conversion.new_directory import building, copy_file
from kafkalog.log.conversion.outcome import ConversionProgress, LogConversion
from kafkalog.log.conversion.partition import convert_partition
from kafkalog.log.conversion.plan import ConversionPlan, ensure_one_target, make_plan
from kafkalog.log.reading import OnCorrupt
from kafkalog.model import TopicPartition
from kafkalog.records.codecs import Codec
from kafkalog.state.checkpoints import OffsetCheckpoint

__all__ = [
    "DirectoryConversion",
    "convert_directory",
    "convertible_partitions",
    "is_data_directory",
]

logger = logging.getLogger(__name__)

_OWN_FILES: Final = frozenset({LOCK_FILE, CLEAN_SHUTDOWN_MARKER, RECOVERY_POINT_CHECKPOINT})


@dataclass(frozen=True, slots=True)
class DirectoryConversion:
    """
    Conversion of a data directory.

    Attributes:
        source, target: data directories; the same for a conversion in place.
        logs: conversion of each partition, by name.
        copied: names of files and directories that were copied unchanged.
        left_out: names of directories that were left out.
    """

    source: Path
    target: Path
    logs: tuple[LogConversion, ...]
    copied: tuple[str, ...]
    left_out: tuple[str, ...]


def is_data_directory(filesystem: FileSystem, path: Path) -> bool:
    """Return whether a path is a directory with live partitions in it."""
    facts = filesystem.stat(path)
    return facts is not None and facts.is_directory and bool(_live_partitions(filesystem, path))


def convertible_partitions(filesystem: FileSystem, directory: Path) -> dict[str, TopicPartition]:
    """Return the partitions of a data directory that are logs of records, by their directories."""
    return {
        name: partition
        for name, partition in _live_partitions(filesystem, directory).items()
        if partition.topic != CLUSTER_METADATA_TOPIC
    }


def _live_partitions(filesystem: FileSystem, directory: Path) -> dict[str, TopicPartition]:
    """Return the live partitions of a data directory, by the names of their directories."""
    found = {}
    for name in filesystem.list(directory):
        parsed = try_parse_partition_directory(name)
        facts = filesystem.stat(directory / name)
        if parsed is None or facts is None or not facts.is_directory:
            continue
        if parsed.state is DirectoryState.LIVE:
            found[name] = parsed.topic_partition
    return found


def convert_directory(
    source: str | PathLike[str],
    target: str | PathLike[str] | None = None,
    *,
    in_place: bool = False,
    codec: Codec | None = None,
    level: int | None = None,
    on_corrupt: OnCorrupt = "raise",
    verify: bool = True,
    config: LogConfig | None = None,
    progress: Callable[[ConversionProgress], None] | None = None,
    done: Callable[[LogConversion], None] | None = None,
    filesystem: FileSystem | None = None,
    clock: Clock | None = None,
) -> DirectoryConversion:
    """
    Convert every partition of a data directory to format v2: into a new one, or in place.

    Arguments and errors as for `convert_log`. A partition that cannot be converted ends the whole
    conversion: the target is removed; in place, the partitions before it stay converted, and `done`
    was called with each.
    """
    plan = make_plan(
        codec, level, on_corrupt, config, progress, filesystem, clock, verify=verify, done=done
    )
    ensure_one_target(target, in_place=in_place, verify=verify)
    origin = Path(source).absolute()
    with storage_errors(origin, doing="converting"):
        partitions = _live_partitions(plan.filesystem, origin)
        if not partitions:
            raise NotALogError(f"{origin} holds no partition directory", path=origin)
        if target is None:
            return _convert_in_place(plan, origin)
        target_path = Path(target).absolute()
        with building(plan.filesystem, target_path) as directory:
            logs, copied = _convert_all(plan, origin, directory, partitions)
            copied += _copy_root_files(plan.filesystem, origin, directory)
            ends = {partitions[log.source.name]: log.log_end_offset for log in logs}
            OffsetCheckpoint(plan.filesystem, directory / RECOVERY_POINT_CHECKPOINT).write(ends)
            # Last: it confirms the whole directory.
            marker = CLEAN_SHUTDOWN_MARKER
            if copy_file(plan.filesystem, origin / marker, directory / marker):
                copied.append(marker)
    return DirectoryConversion(
        source=origin,
        target=target_path,
        logs=tuple(replace(log, target=target_path / log.source.name) for log in logs),
        copied=tuple(copied),
        left_out=_left_out(plan.filesystem, origin, partitions),
    )


def _convert_in_place(plan: ConversionPlan, origin: Path) -> DirectoryConversion:
    # One lock and one session for all: the marker of a clean shutdown is restored at the end.
    lock = acquire_directory_lock(plan.filesystem, origin)
    try:
        logs = tuple(
            convert_partition_in_place(plan, origin / name)
            for name in convertible_partitions(plan.filesystem, origin)
        )
    finally:
        lock.release()
    return DirectoryConversion(source=origin, target=origin, logs=logs, copied=(), left_out=())


def _convert_all(
    plan: ConversionPlan, origin: Path, directory: Path, partitions: dict[str, TopicPartition]
) -> tuple[list[LogConversion], list[str]]:
    logs: list[LogConversion] = []
    copied: list[str] = []
    for name, partition in partitions.items():
        plan.filesystem.make_directory(directory / name)
        if partition.topic == CLUSTER_METADATA_TOPIC:
            for file in plan.filesystem.list(origin / name):
                copy_file(plan.filesystem, origin / name / file, directory / name / file)
            copied.append(name)
            continue
        logs.append(convert_partition(plan, origin / name, directory / name))
    return logs, copied


def _copy_root_files(filesystem: FileSystem, origin: Path, directory: Path) -> list[str]:
    """Copy the files of the data directory itself."""
    copied = []
    for name in filesystem.list(origin):
        facts = filesystem.stat(origin / name)
        if facts is None or facts.is_directory or name in _OWN_FILES or name.endswith(".tmp"):
            continue
        if copy_file(filesystem, origin / name, directory / name):
            copied.append(name)
    return copied


def _left_out(
    filesystem: FileSystem, origin: Path, partitions: dict[str, TopicPartition]
) -> tuple[str, ...]:
    names = []
    for name in filesystem.list(origin):
        facts = filesystem.stat(origin / name)
        if facts is not None and facts.is_directory and name not in partitions:
            names.append(name)
    return tuple(names)
