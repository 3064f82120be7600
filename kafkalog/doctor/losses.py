"""Checks for missing records in logs, and for indexes that contradict their batches.

Of each log the checks read the last batches of every segment, from the last entry of its offset
index on, and the headers of the segments that have a transaction index. A log that a process has
locked is not read: its `Log.corrupt_ranges` and `LogManager.health` report the damage that it
found.

Thread-safety: functions of a check context, of which they change only `unseen`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from kafkalog.clock import Clock
from kafkalog.config import LogConfig
from kafkalog.doctor.check_context import CheckContext
from kafkalog.doctor.findings import Finding, Severity, named
from kafkalog.doctor.survey import DirectorySurvey, PartitionSurvey
from kafkalog.errors import KafkaLogError
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.names import (
    CLEANER_OFFSET_CHECKPOINT,
    CLUSTER_METADATA_TOPIC,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    FileKind,
)
from kafkalog.log.corrupt_ranges import CorruptRange
from kafkalog.log.holes import record_holes
from kafkalog.log.loader import load_log
from kafkalog.log.report import RepairedIndex
from kafkalog.log.segment_types import SegmentContext, make_context
from kafkalog.log.transactions import verify_index

__all__ = ["examine_losses"]


@dataclass(slots=True)
class _Losses:
    """Damage found in the logs."""

    corrupt_ranges: list[CorruptRange] = field(default_factory=list)
    contradicted: list[RepairedIndex] = field(default_factory=list)

    def add_ranges(self, corrupt_ranges: Iterable[CorruptRange]) -> None:
        """Add corrupt ranges of a log."""
        self.corrupt_ranges += corrupt_ranges

    def add_index(self, index: RepairedIndex) -> None:
        """Add a transaction index that contradicts its segment."""
        self.contradicted.append(index)


def examine_losses(
    check_context: CheckContext, filesystem: FileSystem, clock: Clock
) -> Iterator[Finding]:
    """Yield missing records of logs, and transaction indexes that contradict them."""
    losses = _Losses()
    for survey, partition in check_context.partitions():
        if partition.name.topic_partition.topic == CLUSTER_METADATA_TOPIC:
            continue
        if not partition.live_sizes() or partition.problems:
            continue
        if survey.lock_holder is not None:
            check_context.skip(f"the batches of {survey.path}, which a process has locked")
            continue
        context = _context_of(check_context, filesystem, clock, survey, partition)
        try:
            _check_partition(context, survey, partition, losses)
        except (KafkaLogError, OSError) as error:
            check_context.skip(f"{partition.path}: {error}")
        finally:
            context.pool.close()
    yield from _findings(losses)


def _context_of(
    check_context: CheckContext,
    filesystem: FileSystem,
    clock: Clock,
    survey: DirectorySurvey,
    partition: PartitionSurvey,
) -> SegmentContext:
    """Return the segment context of a log, which knows if a cleaner has cleaned the log."""
    context = make_context(filesystem, partition.path, check_context.config, clock, read_only=True)
    is_cleaned = (
        "compact" in _policy(check_context.config, survey, partition)
        or survey.checkpointed(CLEANER_OFFSET_CHECKPOINT, partition) is not None
    )
    context.set_callbacks(on_storage_error=None, was_cleaned=lambda: is_cleaned)
    return context


def _policy(config: LogConfig, survey: DirectorySurvey, partition: PartitionSurvey) -> str:
    """Return the cleanup policies of a partition: those of its topic, else the defaults."""
    policy = ",".join(config.cleanup_policy)
    saved = survey.overrides
    if saved is None:
        return policy
    policy = saved.defaults.get("log.cleanup.policy", policy)
    return saved.topics.get(partition.name.topic_partition.topic, {}).get("cleanup.policy", policy)


def _check_partition(
    context: SegmentContext, survey: DirectorySurvey, partition: PartitionSurvey, losses: _Losses
) -> None:
    """Add the corrupt ranges of a log, and its indexes that contradict its batches."""
    start_offset = survey.checkpointed(LOG_START_OFFSET_CHECKPOINT, partition)
    # Opened like a cleanly closed log, even if it was not: a recovery would read it all.
    loaded = load_log(context, clean=True, recovery_point=0, start_offset=start_offset)
    snapshot = loaded.local.snapshot
    if not survey.has_marker:
        recovery_point = survey.checkpointed(RECOVERY_POINT_CHECKPOINT, partition) or 0
        settled_offset = min(recovery_point, snapshot.end_offset)
        context = replace(context, settled_offset=settled_offset)
    segments = snapshot.segments.segments
    record_holes(segments)
    indexes = partition.live_sizes(FileKind.TRANSACTION_INDEX)
    for slot, segment in enumerate(segments):
        if segment.base_offset in indexes:
            repaired = verify_index(context, snapshot, slot)
            if repaired is not None:
                losses.add_index(repaired)
    # A torn tail of a log that was not closed cleanly is left to its recovery.
    judged = segments if survey.has_marker else segments[:-1]
    losses.add_ranges(
        corrupt_range
        for segment in judged
        for corrupt_range in segment.corrupt_ranges
        if corrupt_range.next_offset > snapshot.start_offset
    )


def _findings(losses: _Losses) -> Iterator[Finding]:
    holes = [
        corrupt_range for corrupt_range in losses.corrupt_ranges if not corrupt_range.size_bytes
    ]
    if holes:
        yield Finding(
            Severity.ERROR,
            "logs.holes",
            f"{len(holes)} segments end below the base offset of the next one"
            f" ({named([_text(corrupt_range) for corrupt_range in holes])})",
            "the records at these offsets are missing, and no compaction has removed them",
            "restore the segments from a copy, if they matter; readers continue after the hole",
            tuple(corrupt_range.path for corrupt_range in holes),
        )
    damaged = [corrupt_range for corrupt_range in losses.corrupt_ranges if corrupt_range.size_bytes]
    if damaged:
        yield Finding(
            Severity.ERROR,
            "logs.damaged",
            f"{len(damaged)} damaged ranges ({named([_text(each) for each in damaged])})",
            "the records in them cannot be read; readers raise there, or skip them as they are"
            " asked to",
            "restore the segments from a copy, if they matter",
            tuple(corrupt_range.path for corrupt_range in damaged),
        )
    if losses.contradicted:
        paths = tuple(index.path for index in losses.contradicted)
        first = losses.contradicted[0]
        yield Finding(
            Severity.ERROR,
            "indexes.contradicted",
            f"{len(paths)} transaction indexes contradict the batches of their segments"
            f" ({first.path.parent.name}/{first.path.name}: {first.reason})",
            "a broker trusts them, and returns records of aborted transactions as committed, or"
            " leaves committed ones out; readers here do not",
            "open the log for writing and read it once with isolation='read_committed', which"
            " rewrites them from the batches",
            paths,
        )


def _text(corrupt_range: CorruptRange) -> str:
    place = f"{corrupt_range.path.parent.name}/{corrupt_range.path.name}"
    return f"{place}: offsets {corrupt_range.first_offset} to {corrupt_range.next_offset - 1}"
