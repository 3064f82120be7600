"""Execution of `kafkalog compact`: each log in turn is opened for writing, and cleaned.

If memory does not suffice for the dirty part, the next cleaning resumes after it, until nothing is
left that may be cleaned. If an error ends the command, the completed cleanings are shown.

Thread-safety: one caller at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from kafkalog.cleaner.cleaning_result import CleaningProgress, CleaningResult
from kafkalog.cleaner.compaction import compact_log
from kafkalog.cli.compact.command import CompactRequest
from kafkalog.cli.compact.targets import LogTarget, find_targets, select_compacted
from kafkalog.cli.printing import print_json, print_line, progress_bar
from kafkalog.clock import SystemClock
from kafkalog.files.filesystem import FileSystem
from kafkalog.log.opening import open_log
from kafkalog.manager.cleaning.throttle import Throttle
from kafkalog.manager_config import CleanerConfig

__all__ = ["run_compact"]

Move = Callable[[str, int, int], None]


def run_compact(
    output: Console, progress: Console, filesystem: FileSystem, request: CompactRequest
) -> None:
    """
    Clean every requested log, and show the results.

    Raises:
        KafkaLogError: a log cannot be opened, must not be compacted, is damaged, or the disk
            refused; the logs before it are done.
    """
    targets = find_targets(filesystem, request.targets)
    config = targets.cleaner
    if request.throttle is not None:
        config = config.replace(io_max_bytes_per_second=request.throttle)
    throttle = Throttle(config.io_max_bytes_per_second, SystemClock())
    done: list[tuple[Path, CleaningResult]] = []
    try:
        with progress_bar(progress) as move:
            for target in select_compacted(targets, request.targets):
                cleanings = _compact_log(filesystem, target, config, request, throttle, move)
                # One after the other: an error may end them.
                done.extend((target.path, cleaning) for cleaning in cleanings)
    finally:
        if request.as_json:
            shown = [_as_dict(path, cleaning) for path, cleaning in done]
            print_json(output, {"cleanings": shown})
        else:
            for _path, cleaning in done:
                print_line(output, _text(cleaning))


def _compact_log(
    filesystem: FileSystem,
    target: LogTarget,
    config: CleanerConfig,
    request: CompactRequest,
    throttle: Throttle,
    move: Move,
) -> Iterator[CleaningResult]:
    """Clean a log until nothing is left to clean; yield each cleaning."""

    def on_progress(step: CleaningProgress) -> None:
        what = f"{step.stage} {target.name}"
        if step.pass_number > 1:
            what += f", pass {step.pass_number}"
        move(what, step.done_bytes, step.total_bytes)

    def pay(size: int) -> None:
        throttle.pay(size, _wait)

    include_active = request.include_active
    with open_log(target.path, config=target.config, filesystem=filesystem, create=False) as log:
        while True:
            cleaning = compact_log(
                log,
                include_active=include_active,
                config=config,
                memory_bytes=request.memory_bytes,
                throttle=pay,
                on_progress=on_progress,
            )
            yield cleaning
            if cleaning.is_complete:
                return
            # It was rolled; the rest after the first cleaning is sealed.
            include_active = False


def _wait(duration_ms: float) -> None:
    time.sleep(duration_ms / 1000)


def _text(cleaning: CleaningResult) -> str:
    if cleaning.passes:
        return cleaning.describe()
    return (
        f"{cleaning.topic_partition}: nothing after offset {cleaning.first_dirty} may be cleaned;"
        " kafkalog plan shows the reason"
    )


def _as_dict(path: Path, cleaning: CleaningResult) -> dict[str, Any]:
    return asdict(cleaning) | {
        "path": str(path),
        "topic_partition": str(cleaning.topic_partition),
        "complete": cleaning.is_complete,
    }
