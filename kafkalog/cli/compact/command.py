"""Execution of `kafkalog plan` and `kafkalog explain`.

Progress goes to standard error, results to standard output; with `--json` these are one object.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from rich.console import Console

from kafkalog.cleaner.explain import explain_compaction
from kafkalog.cleaner.plan import plan_compaction
from kafkalog.cleaner.plan_model import CompactionPlan
from kafkalog.cli.compact.plans import show_plan
from kafkalog.cli.compact.targets import LogTarget, TargetRequest, find_targets, select_compacted
from kafkalog.cli.printing import print_json, print_line, progress_bar
from kafkalog.errors import ConfigError
from kafkalog.files.filesystem import FileSystem
from kafkalog.log.log import Log
from kafkalog.log.opening import open_log

__all__ = ["CompactRequest", "run_explain", "run_plan"]


@dataclass(frozen=True, slots=True)
class CompactRequest:
    """
    Arguments of the command line.

    Attributes:
        targets: the logs.
        include_active: True to roll the active segment first.
        memory_bytes: for the map of keys; as in the settings if None.
        throttle: bytes a second that may be read and written; as in the settings if None.
        as_json: the result as one JSON object.
    """

    targets: TargetRequest
    include_active: bool = False
    memory_bytes: int | None = None
    throttle: float | None = None
    as_json: bool = False


def run_plan(
    output: Console, progress: Console, filesystem: FileSystem, request: CompactRequest
) -> None:
    """
    Show what a cleaning of each log would do.

    Raises:
        KafkaLogError: a log cannot be read, or must not be compacted.
    """
    targets = find_targets(filesystem, request.targets)
    plans: list[CompactionPlan] = []
    with progress_bar(progress) as move:
        for target in select_compacted(targets, request.targets):
            with open_read_only(filesystem, target) as log:
                plans.append(
                    plan_compaction(
                        log,
                        include_active=request.include_active,
                        config=targets.cleaner,
                        memory_bytes=request.memory_bytes,
                        on_progress=partial(move, f"planning {target.name}"),
                    )
                )
    if request.as_json:
        print_json(output, {"logs": [plan.as_dict() for plan in plans]})
        return
    for plan in plans:
        show_plan(output, plan)


def run_explain(
    output: Console, filesystem: FileSystem, request: CompactRequest, offset: int
) -> None:
    """
    Show what a cleaning would do with one record, and why.

    Raises:
        KafkaLogError: the log cannot be read, must not be compacted, or has no such offset.
    """
    targets = find_targets(filesystem, request.targets)
    if len(targets.logs) != 1:
        raise ConfigError(
            f"{targets.directory} holds {len(targets.logs)} partitions: name one of them"
            " with --partition"
        )
    (target,) = select_compacted(targets, request.targets)
    with open_read_only(filesystem, target) as log:
        found = explain_compaction(
            log,
            offset,
            include_active=request.include_active,
            config=targets.cleaner,
            memory_bytes=request.memory_bytes,
        )
    if request.as_json:
        print_json(output, found.as_dict())
    else:
        print_line(output, found.text)


def open_read_only(filesystem: FileSystem, target: LogTarget) -> Log:
    """Open a log that another process may write; NotALogError, LogStorageError as `open_log`."""
    return open_log(target.path, config=target.config, read_only=True, filesystem=filesystem)
