"""Checks of the process limits of descriptors and mappings against the needs of the logs.

Each log with appends holds a few files; the manager's pool holds the files and mappings that are
read, and closes those that were not used for long. Where the limit is low, a manager closes the
files of idle logs, so it needs fewer, and takes longer. A broker on the same directory can do
neither: it keeps every segment open and both its indexes mapped.

Thread-safety: pure functions of a context.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

from kafkalog.doctor.check_context import CheckContext
from kafkalog.doctor.findings import Finding, Severity
from kafkalog.files.names import FileKind
from kafkalog.log.idle_files import FILES_OF_OPEN_LOG

__all__ = ["WRITER_DESCRIPTORS", "check_descriptors", "check_mappings", "needs"]

# Of a log with appends.
WRITER_DESCRIPTORS: Final = FILES_OF_OPEN_LOG
# The interpreter, its libraries, sockets, and checkpoints during a write.
OTHER_DESCRIPTORS: Final = 64
OTHER_MAPPINGS: Final = 1024
# A segment file and two indexes are read through the pool.
POOLED_KINDS: Final = (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX)
# Python before 3.13 keeps a duplicate of the descriptor with each mapping.
MAPPINGS_HOLD_DESCRIPTORS: Final = sys.version_info < (3, 13)

_PERMANENT: Final = "LimitNOFILE= of the service, or /etc/security/limits.conf"


def needs(context: CheckContext) -> tuple[int, int]:
    """Return the number of descriptors and mappings if every log is written and read."""
    partitions = [partition for _survey, partition in context.partitions()]
    files = sum(len(each.live_sizes(kind)) for each in partitions for kind in POOLED_KINDS)
    opened = min(files, context.config.open_files_max)
    mapped = min(files, context.config.mappings_max)
    held = opened + (mapped if MAPPINGS_HOLD_DESCRIPTORS else 0)
    descriptors = OTHER_DESCRIPTORS + held + WRITER_DESCRIPTORS * len(partitions)
    return descriptors, OTHER_MAPPINGS + mapped


def check_descriptors(context: CheckContext) -> Iterator[Finding]:
    """Compare the limit of descriptors with the needs of the logs, here and in a broker."""
    soft, hard = context.machine.descriptor_limits()
    if soft is None:
        return
    needed, _ = needs(context)
    partitions = sum(1 for _ in context.partitions())
    if needed > soft:
        is_allowed = hard is None or hard >= needed
        yield Finding(
            Severity.WARNING,
            "limits.descriptors",
            f"this process may have {soft} descriptors; {partitions} partitions, all written and"
            f" read, take up to {needed}",
            "a manager closes the files of idle logs, which costs a sync, and opens their files"
            " again for the next append; without a manager an opening fails if none is left",
            f"ulimit -n {needed}   ({'' if is_allowed else 'as root: '}{_PERMANENT})",
        )
    segments = _segment_count(context)
    broker = segments + OTHER_DESCRIPTORS
    if broker > soft:
        yield Finding(
            Severity.NOTE,
            "limits.descriptors.broker",
            f"{segments} segments, and {soft} descriptors",
            "a broker keeps every segment open; it would not start on this directory with this"
            " limit",
            f"ulimit -n {max(100_000, 2 * broker)} for the broker",
        )


def check_mappings(context: CheckContext) -> Iterator[Finding]:
    """Compare `vm.max_map_count` with the needs of the logs, here and in a broker."""
    limit = context.kernel_setting("max_map_count")
    if limit is None:
        return
    _, needed = needs(context)
    if needed > limit:
        yield Finding(
            Severity.WARNING,
            "vm.max_map_count",
            f"vm.max_map_count = {limit}; all logs together map up to {needed} files",
            "a mapping that is refused is an error of that read or that opening",
            f"sysctl -w vm.max_map_count={2 * needed}, or a lower kafkalog.mappings.max",
        )
    segments = _segment_count(context)
    broker = 2 * segments + OTHER_MAPPINGS
    if broker > limit:
        yield Finding(
            Severity.NOTE,
            "vm.max_map_count.broker",
            f"{segments} segments, and vm.max_map_count = {limit}",
            "a broker maps two indexes of each segment; it would end with 'Map failed' on this"
            " directory",
            f"sysctl -w vm.max_map_count={max(262_144, 2 * broker)} before a broker takes it",
        )


def _segment_count(context: CheckContext) -> int:
    return sum(len(partition.live_sizes()) for _survey, partition in context.partitions())
