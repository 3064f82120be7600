"""Plan of a conversion: its arguments, checked once and used for every log of it.

Thread-safety: immutable values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kafkalog.clock import Clock, SystemClock
from kafkalog.config import LogConfig
from kafkalog.errors import ConfigError
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.posix import PosixFileSystem
from kafkalog.log.conversion.outcome import ConversionProgress, LogConversion
from kafkalog.log.log import Log
from kafkalog.log.opening import open_log
from kafkalog.log.reading import OnCorrupt
from kafkalog.records.codecs import Codec
from kafkalog.records.conversion.options import ConversionOptions

__all__ = ["ConversionPlan", "ensure_one_target", "make_plan"]


@dataclass(frozen=True, slots=True)
class ConversionPlan:
    """
    Arguments of a conversion.

    Attributes:
        filesystem, clock: disk and time.
        config: sizes of segments, batches and indexes.
        options: format and codec.
        on_corrupt: what to do at damage.
        verify: whether the result is read and compared.
        on_progress: called with the progress.
        on_done: called with the result of each log in place, also after an error.
    """

    filesystem: FileSystem
    clock: Clock
    config: LogConfig
    options: ConversionOptions
    on_corrupt: OnCorrupt
    verify: bool
    on_progress: Callable[[ConversionProgress], None]
    on_done: Callable[[LogConversion], None]

    def open_read_only(self, directory: Path) -> Log:
        """Open a log without a change to it."""
        return open_log(
            directory,
            config=self.config,
            read_only=True,
            clock=self.clock,
            filesystem=self.filesystem,
        )


def make_plan(
    codec: Codec | None,
    level: int | None,
    on_corrupt: OnCorrupt,
    config: LogConfig | None,
    progress: Callable[[ConversionProgress], None] | None,
    filesystem: FileSystem | None,
    clock: Clock | None,
    *,
    verify: bool,
    done: Callable[[LogConversion], None] | None = None,
) -> ConversionPlan:
    """Return a checked plan, with the disk and clock of the machine for None."""
    if on_corrupt not in ("raise", "skip"):
        raise ValueError(f'on_corrupt must be "raise" or "skip", got {on_corrupt!r}')
    config = LogConfig() if config is None else config
    return ConversionPlan(
        filesystem=PosixFileSystem() if filesystem is None else filesystem,
        clock=SystemClock() if clock is None else clock,
        config=config,
        options=ConversionOptions(
            2,
            codec,
            level,
            batch_bytes=config.append_batch_bytes,
            limit_bytes=config.decompressed_max_bytes,
        ),
        on_corrupt=on_corrupt,
        verify=verify,
        on_progress=_no_progress if progress is None else progress,
        on_done=_no_progress if done is None else done,
    )


def ensure_one_target(target: object, *, in_place: bool, verify: bool) -> None:
    """Raise ConfigError unless a conversion has a target or is in place, and then verified."""
    if (target is None) != in_place:
        raise ConfigError("a conversion must have either a target directory or in_place=True")
    if in_place and not verify:
        raise ConfigError("verify must be True in place, where no other copy is kept")


def _no_progress(_news: object) -> None:
    """Ignore the progress."""
