"""Checks of the small files of a directory: identity, checkpoints, lock, clean shutdown.

Thread-safety: pure functions of a context.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kafkalog.doctor.check_context import CheckContext, size_text
from kafkalog.doctor.findings import Advice, Finding, Severity, named
from kafkalog.doctor.survey import DirectorySurvey, PartitionSurvey
from kafkalog.files.names import (
    CLEAN_SHUTDOWN_MARKER,
    CLEANER_OFFSET_CHECKPOINT,
    CLUSTER_METADATA_TOPIC,
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOCK_FILE,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    OFFSET_CHECKPOINTS,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    TOPIC_OVERRIDES,
)

__all__ = [
    "check_agreement",
    "check_damaged_files",
    "check_ends",
    "check_identity",
    "check_lock",
    "check_orphans",
    "check_partition_metadata",
    "check_shutdown",
    "check_topic_ids",
]

# Effect of an unusable file on the next opening, and the remedy.
_DAMAGE: Final = {
    META_PROPERTIES: Advice(
        Severity.ERROR,
        "a broker does not start on it, and a manager takes the directory offline",
        "restore it from a copy; without one, write version=1, node.id and cluster.id as they were",
    ),
    TOPIC_OVERRIDES: Advice(
        Severity.ERROR,
        "a manager takes the directory offline: with the defaults it would delete what a topic is"
        " to keep",
        "restore it from a copy, or of another directory of the manager; remove it if no topic has"
        " separate settings",
    ),
    RECOVERY_POINT_CHECKPOINT: Advice(
        Severity.WARNING,
        "recovery begins at the first segment of every log that was not closed cleanly, and what"
        " is missing at the end of one is not noticed",
        "remove it: it is rebuilt. The next opening reads all segments",
    ),
    LOG_START_OFFSET_CHECKPOINT: Advice(
        Severity.ERROR,
        "no partition of the directory is opened, or read: without it logs would begin at their"
        " first segment again, and records that were deleted come back",
        "restore it from a copy; without one, remove it, and delete the records again",
    ),
    HIGH_WATERMARK_CHECKPOINT: Advice(
        Severity.WARNING,
        "how far consumers could read is not known; with one replica it is the log end",
        "remove it: it is rebuilt",
    ),
    CLEANER_OFFSET_CHECKPOINT: Advice(
        Severity.WARNING,
        "compaction begins at the start of every log again",
        "remove it: it is rebuilt",
    ),
    PARTITION_METADATA: Advice(
        Severity.WARNING,
        "a broker cannot identify the topic",
        "restore it from a copy, or remove it; it is then written again",
    ),
    LEADER_EPOCH_CHECKPOINT: Advice(
        Severity.WARNING,
        "the epochs of the log are rebuilt from its batches",
        "nothing, or remove it: the next opening writes it",
    ),
}
_UNREADABLE: Final = Advice(
    Severity.ERROR,
    "the log in it cannot be opened",
    "look at the disk (`dmesg`) and at the permissions",
)


def check_damaged_files(context: CheckContext) -> Iterator[Finding]:
    """Report small files that cannot be parsed or read."""
    for survey in context.surveys:
        problems = dict(survey.problems)
        for partition in survey.partitions:
            problems |= partition.problems
        for path, problem in sorted(problems.items()):
            advice = _DAMAGE.get(path.name, _UNREADABLE)
            yield Finding(
                advice.severity, "files.damaged", problem, advice.matters, advice.remedy, (path,)
            )


def check_identity(context: CheckContext) -> Iterator[Finding]:
    """Report a missing `meta.properties`, or one of a version that current brokers refuse."""
    for survey in context.surveys:
        path = survey.path / META_PROPERTIES
        if survey.is_partition or path in survey.problems:
            continue
        if survey.meta is None:
            yield Finding(
                Severity.NOTE,
                "meta.properties",
                f"{survey.path} has no meta.properties",
                "a manager writes it when it first opens the directory; a broker does not start"
                " without it",
                "",
                (survey.path,),
            )
        elif survey.meta.version == 0:
            yield Finding(
                Severity.WARNING,
                "meta.properties",
                f"{path} is of version 0, of a broker with ZooKeeper",
                "brokers from 4.0 on do not start on it; here it makes no difference",
                "before a broker takes it: migrate it with a broker of 3.9 (see Kafka's upgrade"
                " notes)",
                (path,),
            )


def check_agreement(context: CheckContext) -> Iterator[Finding]:
    """Report if directories belong to different nodes, or hold a partition twice."""
    stated = [(survey.path, survey.meta) for survey in context.surveys if survey.meta is not None]
    paths = tuple(path for path, _ in stated)
    for name in ("cluster_id", "node_id"):
        values = {str(getattr(meta, name)) for _, meta in stated}
        if len(values) > 1:
            yield Finding(
                Severity.ERROR,
                "meta.properties.agreement",
                f"{name.replace('_', '.')} differs: {', '.join(sorted(values))}",
                "directories of one broker or manager must be of one node of one cluster; together"
                " they are refused",
                "use those of one node only",
                paths,
            )
    ids = [meta.directory_id for _, meta in stated if meta.directory_id is not None]
    if len(set(ids)) < len(ids):
        yield Finding(
            Severity.ERROR,
            "meta.properties.agreement",
            "two directories have the same directory.id",
            "one of them is a copy of the other; together they are refused",
            "remove the line directory.id from the copy, where it is to stay",
            paths,
        )
    places = defaultdict(list)
    for _survey, partition in context.partitions():
        places[partition.name.topic_partition].append(partition.path)
    for topic_partition, found in sorted(places.items()):
        if len(found) > 1:
            yield Finding(
                Severity.ERROR,
                "partitions.twice",
                f"{topic_partition} is in {len(found)} directories",
                "only one of them can be the log of that partition: together they are refused",
                "move the wrong one out of its data directory; `kafkalog dump` shows what each"
                " holds",
                tuple(found),
            )


def check_lock(context: CheckContext) -> Iterator[Finding]:
    """Report the process that has locked the directory."""
    for survey in context.surveys:
        if survey.lock_holder is not None:
            yield Finding(
                Severity.NOTE,
                "lock",
                f"process {survey.lock_holder} has {survey.state_directory} locked",
                "it may write there now: the other findings may be out of date",
                "",
                (survey.state_directory / LOCK_FILE,),
            )


def check_shutdown(context: CheckContext) -> Iterator[Finding]:
    """Report logs that were not closed cleanly, and the bytes that their recovery reads."""
    for survey in context.surveys:
        if survey.has_marker or survey.lock_holder is not None:
            continue
        unclean = [partition for partition in _openable(survey) if partition.live_sizes()]
        if not unclean:
            continue
        size = sum(_bytes_to_recover(survey, partition) for partition in unclean)
        yield Finding(
            Severity.WARNING,
            "shutdown.unclean",
            f"{survey.state_directory} has no {CLEAN_SHUTDOWN_MARKER}: {len(unclean)} logs"
            f" ({named([partition.path.name for partition in unclean])}) count as not closed in"
            " order",
            f"the next opening reads {size_text(size)} again, from the recovery points on, checks"
            " every batch and rebuilds the indexes; a torn end is cut",
            "nothing: open and close it cleanly",
            tuple(partition.path for partition in unclean),
        )


def _bytes_to_recover(survey: DirectorySurvey, partition: PartitionSurvey) -> int:
    """Return the size of the segments from the segment of the recovery point on."""
    sizes = partition.live_sizes()
    recovery_point = survey.checkpointed(RECOVERY_POINT_CHECKPOINT, partition) or 0
    first = max((base for base in sizes if base <= recovery_point), default=0)
    return sum(size for base, size in sizes.items() if base >= first)


def check_orphans(context: CheckContext) -> Iterator[Finding]:
    """Report lines of checkpoints about missing partitions."""
    for survey in context.surveys:
        if survey.is_partition:
            continue
        there = {partition.name.topic_partition for partition in survey.partitions}
        for name in OFFSET_CHECKPOINTS:
            lost = [str(each) for each in survey.checkpoints.get(name, {}) if each not in there]
            if lost:
                yield Finding(
                    Severity.NOTE,
                    "checkpoints.orphans",
                    f"{name} has {len(lost)} partitions that do not exist ({named(lost)})",
                    "of deleted topics such lines stay until the file is next written; otherwise"
                    " directories are missing",
                    "",
                    (survey.path / name,),
                )


def check_ends(context: CheckContext) -> Iterator[Finding]:
    """Compare the checkpoints of each log with its log end offset."""
    for survey, partition in context.partitions():
        end = partition.log_end_offset
        if end is None or survey.lock_holder is not None:
            continue
        recovery_point = survey.checkpointed(RECOVERY_POINT_CHECKPOINT, partition)
        if recovery_point is not None and recovery_point > end:
            yield Finding(
                Severity.ERROR,
                "checkpoints.recovery_point",
                f"{partition.path.name} ends at offset {end}, and everything below"
                f" {recovery_point} was on the disk",
                "records are missing at its end that were durable: the next opening reports them"
                " as a corrupt range, and does not assign their offsets again",
                "restore the last segments from a copy, if they matter, before it is opened",
                (partition.path,),
            )
        start = survey.checkpointed(LOG_START_OFFSET_CHECKPOINT, partition)
        if start is not None and start > end:
            yield Finding(
                Severity.WARNING,
                "checkpoints.log_start",
                f"{partition.path.name} ends at offset {end}, below its start {start}",
                "the next opening removes all segments of it, as they hold deleted records only",
                "nothing, if they were deleted; else restore log-start-offset-checkpoint first",
                (partition.path,),
            )
        for name in (HIGH_WATERMARK_CHECKPOINT, CLEANER_OFFSET_CHECKPOINT):
            offset = survey.checkpointed(name, partition)
            if offset is not None and offset > end:
                yield Finding(
                    Severity.NOTE,
                    "checkpoints.beyond_end",
                    f"{name} has {offset} for {partition.path.name}, which ends at {end}",
                    "the next opening takes the log end instead",
                    "",
                    (partition.path,),
                )


def check_partition_metadata(context: CheckContext) -> Iterator[Finding]:
    """Report partitions that a broker would not accept."""
    for survey in context.surveys:
        if survey.is_partition or survey.meta is None:
            continue
        without = [
            partition
            for partition in _openable(survey)
            if PARTITION_METADATA not in partition.files
            and partition.path not in partition.problems
        ]
        if without:
            yield Finding(
                Severity.NOTE,
                "partition.metadata",
                f"{len(without)} partitions"
                f" ({named([partition.path.name for partition in without])}) have no"
                f" {PARTITION_METADATA}",
                "a broker that opens the directory makes them stray, and begins new ones in"
                " their place",
                "before a broker takes it: write the topic ids of its cluster there",
                tuple(partition.path for partition in without),
            )


def check_topic_ids(context: CheckContext) -> Iterator[Finding]:
    """Report topics whose partitions have several ids."""
    topics = defaultdict(list)
    for survey, partition in context.partitions():
        if not survey.is_partition and partition.topic_id is not None:
            topics[partition.name.topic_partition.topic].append(partition)
    for topic, partitions in sorted(topics.items()):
        ids = {partition.topic_id for partition in partitions}
        if len(ids) > 1:
            yield Finding(
                Severity.ERROR,
                "partition.metadata.agreement",
                f"partitions of {topic} have {len(ids)} topic ids",
                "some are of a topic that was deleted and made again, or of another cluster: a"
                " manager and a broker serve those of one id only",
                "move those of the other id out of the data directories; `kafkalog dump` shows"
                " what each holds",
                tuple(partition.path for partition in partitions),
            )


def _openable(survey: DirectorySurvey) -> Iterator[PartitionSurvey]:
    return (each for each in survey.live() if not _is_metadata_log(each.path))


def _is_metadata_log(path: Path) -> bool:
    return path.name == f"{CLUSTER_METADATA_TOPIC}-0"
