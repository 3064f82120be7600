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
        target: the partition directory to make; it must not exist, nor lie in a data directory.
        in_place: rewrite the source, segment by segment, instead of making a target.
        codec: codec of all batches; None keeps that of each.
        level: of the codec; None for its default.
        on_corrupt: "raise" at damage, or "skip" it and tell; in place, its segment is left alone.
        verify: read the result back and compare; always, in place.
        config: sizes of segments, batches and indexes; Kafka's defaults if None.
        progress: is called now and then.
        done: in place, is called with what was done of a log, also where an error ended it there.
        filesystem, clock: the machine's if None.

    Raises:
        CorruptRecordError, CorruptIndexError: the source is damaged, or the result differs.
        LogStorageError: the target exists, or the disk failed. Nothing is left of a target then; in
            place, the log is whole, and what was converted before stays so.
        LogLockedError: in place, somebody else writes it.
        NotALogError: the source is no log, or the target has no place for one.
    """
    plan = make_plan(
        codec, level, on_corrupt, config, progress, filesystem, clock, verify=verify, done=done
    )
    ensure_one_target(target, in_place=in_place, verify=verify)
    if target is None:
        return convert_partition_in_place(plan, Path(source).absolute())
    wanted = Path(target).absolute()
    with storage_errors(wanted, doing="converting"):
        paths = find_partition_paths(plan.filesystem, wanted)
        if not paths.is_standalone:
            raise NotALogError(
                f"{wanted} lies in a data directory, where a half-made log has no place: convert"
                " to another place and move it there",
                path=wanted,
            )
        with building(plan.filesystem, wanted) as directory:
            made = convert_partition(plan, Path(source).absolute(), directory)
            own = FileCheckpointStore(paths.standalone_at(directory))
            own.write_recovery_point(made.log_end_offset)
            own.write_start_offset(made.log_start_offset)
            write_shutdown_marker(plan.filesystem, directory)
    return replace(made, target=wanted)
