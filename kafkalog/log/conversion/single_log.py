"""`convert_log`: one log to format v2 or to another codec, into a new directory or in place.

Thread-safety: pure functions over the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from os import PathLike
from pathlib import Path

from kafkalog.clock import Clock
from kafkalog.config import LogConfig
from kafkalog.errors import NotALogError
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileSystem
from kafkalog.log.checkpoint_store import FileCheckpointStore
from kafkalog.log.conversion.in_place import convert_partition_in_place
from kafkalog.log.conversion.new_directory import building
from kafkalog.log.conversion.outcome import ConversionProgress, LogConversion
from kafkalog.log.conversion.partition import convert_partition
from kafkalog.log.conversion.plan import ensure_one_target, make_plan
from kafkalog.log.partition_paths import find_partition_paths
from kafkalog.log.reading import OnCorrupt
from kafkalog.records.codecs import Codec
from kafkalog.state.shutdown_marker import write_shutdown_marker

__all__ = ["convert_log"]


def convert_log(
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
) -> LogConversion:
    """
    Convert the log of one partition to format v2: into a new directory, or in place.

    Args:
        source: the partition directory; with a target it is only read.
        target: the new partition directory; it must not exist, nor be in a data directory.
        in_place: rewrite the source, segment by segment, instead of making a target.
        codec: codec of all batches; None keeps that of each.
        level: level of the codec; None for its default.
        on_corrupt: "raise" at damage, or "skip" and report it; in place, its segment is unchanged.
        verify: read the result and compare it; always done in place.
        config: sizes of segments, batches and indexes; Kafka's defaults if None.
        progress: called with the progress.
        done: in place, called with the result of the log, also after an error.
        filesystem, clock: those of the machine if None.

    Raises:
        CorruptRecordError, CorruptIndexError: the source is damaged, or the result differs.
        LogStorageError: the target exists, or the disk failed. The target is removed then; in
            place, the log is whole, and converted segments stay converted.
        LogLockedError: in place, another process writes it.
        NotALogError: the source is not a log, or the target is not a place for one.
    """
    plan = make_plan(
        codec, level, on_corrupt, config, progress, filesystem, clock, verify=verify, done=done
    )
    ensure_one_target(target, in_place=in_place, verify=verify)
    if target is None:
        return convert_partition_in_place(plan, Path(source).absolute())
    target_path = Path(target).absolute()
    with storage_errors(target_path, doing="converting"):
        paths = find_partition_paths(plan.filesystem, target_path)
        if not paths.is_standalone:
            raise NotALogError(
                f"target must be outside of a data directory, got {target_path}: convert to another"
                " directory and move the log there",
                path=target_path,
            )
        with building(plan.filesystem, target_path) as directory:
            made = convert_partition(plan, Path(source).absolute(), directory)
            own = FileCheckpointStore(paths.standalone_at(directory))
            own.write_recovery_point(made.log_end_offset)
            own.write_start_offset(made.log_start_offset)
            write_shutdown_marker(plan.filesystem, directory)
    return replace(made, target=target_path)
