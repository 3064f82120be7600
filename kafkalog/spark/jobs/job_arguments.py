"""Arguments and results of jobs: partitions and their settings, ids, reports.

Thread-safety: functions over the disk, and immutable plain data. Nothing here imports pyspark.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from kafkalog.config import LogConfig
from kafkalog.files.filesystem import FileSystem
from kafkalog.manager.overrides import SavedOverrides, read_overrides
from kafkalog.manager_config import ManagerConfig
from kafkalog.spark.options import ReadOptions
from kafkalog.spark.options.option import invalid
from kafkalog.spark.plan import LogSplit, QuerySnapshot
from kafkalog.topic_configs import TopicConfigs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "JobReport",
    "Paths",
    "configs_of",
    "cores_of",
    "ensure_task_bytes",
    "new_job_id",
    "ranges_as_json",
    "read_options",
    "shared_out",
    "with_internal_topics",
    "work_directory",
]

Paths = str | PathLike[str] | Sequence[str | PathLike[str]]

# A task costs some hundredths of a second, the time to read this much of a log.
_TASK_BYTES_MIN: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class JobReport:
    """
    Result of a job.

    Attributes:
        job: its kind.
        job_id: its name, with which it is run again.
        status: `done`, or `incomplete` if partitions failed.
        totals: sums over the partitions.
        partitions: of each, its directory, its result, and its error.
        duration_ms: of this run.
    """

    job: str
    job_id: str
    status: str
    totals: Mapping[str, int]
    partitions: tuple[Mapping[str, Any], ...]
    duration_ms: int

    def __str__(self) -> str:
        lines = [f"{self.job} {self.job_id}: {self.status} in {self.duration_ms / 1000:.1f} s"]
        lines += [f"  {name.replace('_', ' ')}: {count:,}" for name, count in self.totals.items()]
        for each in self.partitions:
            if each.get("error"):
                lines.append(f"  {each['directory']}: {each['status']}: {each['error']}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Return the report that `to_json` has written."""
        return cls(**{**value, "partitions": tuple(value["partitions"])})


def read_options(path: Paths, options: Mapping[str, str] | None, **fixed: str) -> dict[str, str]:
    """
    Return the read options of a job.

    Args:
        path: one directory or several.
        options: those of the data source, as a user gives them.
        fixed: options of the job, which override them.
    """
    import json

    texts = {name: str(value) for name, value in (options or {}).items()}
    if isinstance(path, (str, PathLike)):
        texts["path"] = str(Path(fspath(path)).absolute())
    else:
        texts["paths"] = json.dumps([str(Path(fspath(each)).absolute()) for each in path])
    return {**texts, **fixed}


def with_internal_topics(read: ReadOptions) -> ReadOptions:
    """Return options by which Kafka's internal topics belong to all topics."""
    return replace(read, topics=replace(read.topics, has_internal=True))


def new_job_id(job: str) -> str:
    """Return a unique name of a job."""
    return f"{job}-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:8]}"


def work_directory(path: Paths, work_dir: str | PathLike[str] | None) -> Path:
    """
    Return the directory of the ledgers of jobs over a directory.

    It is next to the directory, since a broker refuses to start if a data directory contains a
    directory that is no partition.
    """
    if work_dir is not None:
        return Path(fspath(work_dir)).absolute()
    first = path if isinstance(path, (str, PathLike)) else path[0]
    directory = Path(fspath(first)).absolute()
    return directory.with_name(f"{directory.name}.kafkalog-jobs")


def configs_of(
    filesystem: FileSystem, snapshot: QuerySnapshot, settings: Mapping[str, str]
) -> list[LogConfig]:
    """
    Return the settings of each partition of a snapshot.

    Kafka's defaults, over them the settings that a manager has stored in the data directory, over
    them the caller's.

    Args:
        filesystem: the disk.
        snapshot: the partitions.
        settings: of topics, by dotted keys.

    Raises:
        ConfigError: a setting is wrong.
    """
    by_parent: dict[Path, TopicConfigs] = {}
    configs = []
    for directory, topic in zip(snapshot.directories, snapshot.topics, strict=True):
        parent = Path(directory).parent
        if parent not in by_parent:
            saved = read_overrides(filesystem, parent) or SavedOverrides()
            manager_config = ManagerConfig().with_overrides(saved.defaults)
            by_parent[parent] = TopicConfigs(manager_config.log, saved.topics)
        configs.append(by_parent[parent].config_of(topic).with_overrides(settings))
    return configs


def cores_of(spark: SparkSession) -> int:
    """Return how many tasks may run in parallel; 1 in a session of Connect, which hides it."""
    context = getattr(spark, "sparkContext", None)
    return 1 if context is None else int(context.defaultParallelism)


def ensure_task_bytes(task_bytes: int) -> None:
    """
    Check the size of a task.

    Raises:
        KafkaLogSparkError: OPTION_INVALID.
    """
    if task_bytes < 1:
        raise invalid("task_bytes", task_bytes, "at least 1")


def shared_out(spark: SparkSession, task_bytes: int, total_bytes: int) -> int:
    """
    Return how much of logs a task reads, so that all cores of a cluster have work.

    Args:
        spark: the session.
        task_bytes: largest size of a task.
        total_bytes: size of all tasks together.

    Raises:
        KafkaLogSparkError: OPTION_INVALID.
    """
    ensure_task_bytes(task_bytes)
    share = -(-total_bytes // cores_of(spark))
    return min(task_bytes, max(share, _TASK_BYTES_MIN))


def ranges_as_json(
    split: LogSplit, numbers: Mapping[tuple[str, int], int]
) -> list[tuple[int, str, str, int, int, int, bool]]:
    """Return the ranges of a split with the numbers of their partitions."""
    return [
        (
            numbers[each.topic, each.partition],
            each.directory,
            each.topic,
            each.partition,
            each.start,
            each.end,
            each.follows,
        )
        for each in split.ranges
    ]
