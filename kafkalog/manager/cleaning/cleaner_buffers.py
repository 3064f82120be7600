"""Buffers of a cleaner thread: allocated on demand, freed when idle.

The offset map is sized for the number of dirty offsets, which is an upper bound of the number of
keys. Most logs need much less memory than a thread may use, and get no more, because the memory is
cleared for each log.

Thread-safety: one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable

from kafkalog.cleaner.cleaning import Cleaner, CleaningProgress, CleaningResult
from kafkalog.cleaner.grouping import map_bytes_for
from kafkalog.cleaner.selection import CleanableRange
from kafkalog.clock import Clock
from kafkalog.errors import LogCleaningAbortedError
from kafkalog.log.log import Log
from kafkalog.manager.cleaning.states import CleaningRun
from kafkalog.manager.cleaning.throttle import Throttle
from kafkalog.manager_config import CleanerConfig

__all__ = ["CleanerBuffers", "memory_for", "memory_share"]

# Time for which an idle thread keeps the memory.
IDLE_MS = 60_000
# Memory for the map is a power of two times this, up to the share of a thread.
_LEAST_BYTES = 64 << 10


def memory_share(config: CleanerConfig) -> int:
    """Return the largest memory of one thread for the map of keys."""
    return config.dedupe_buffer_size // max(config.threads, 1)


def memory_for(span: CleanableRange, config: CleanerConfig) -> int:
    """Return the memory for the map of keys of a cleaning, limited to the share of a thread."""
    offset_count = span.first_uncleanable - span.first_dirty
    needed = map_bytes_for(offset_count, config.io_buffer_load_factor)
    size = _LEAST_BYTES
    while size < needed:
        size *= 2
    return min(size, memory_share(config))


class CleanerBuffers:
    """
    Cleaner of one thread with its memory.

    Args:
        config: returns the settings of compaction; changed settings reallocate the memory.
        throttle: the common limit of bytes per second.
        clock: source of time.
    """

    def __init__(
        self, config: Callable[[], CleanerConfig], throttle: Throttle, clock: Clock
    ) -> None:
        self._config = config
        self._throttle = throttle
        self._clock = clock
        self._engine: Cleaner | None = None
        # Settings and memory of the engine.
        self._cleaner_key: tuple[CleanerConfig, int] | None = None
        self._used_ms = 0
        self._pay: Callable[[int], object] = _pay_nothing

    @property
    def holds_memory(self) -> bool:
        """True if memory is allocated."""
        return self._engine is not None

    def clean(
        self,
        log: Log,
        span: CleanableRange,
        run: CleaningRun,
        on_progress: Callable[[CleaningProgress], object] | None = None,
    ) -> CleaningResult:
        """
        Clean a log.

        Args:
            log: the log.
            span: its range to clean.
            run: aborts the cleaning, and gets its progress.
            on_progress: called with the progress.

        Raises:
            LogCleaningAbortedError: it was aborted, or the log closed or taken offline.
        """

        def is_over() -> bool:
            return run.is_aborted or log.is_closed or log.offline_error is not None

        def check() -> None:
            run.check()
            if is_over():
                raise LogCleaningAbortedError(f"{log.directory} refuses writes")

        def pay(byte_count: int) -> None:
            self._throttle.pay(byte_count, run.wait, is_over)

        def note(progress: CleaningProgress) -> None:
            run.record_progress(progress)
            if on_progress is not None:
                on_progress(progress)

        engine = self._cleaner_for(span)
        self._pay = pay
        try:
            return engine.clean(log, span, check=check, on_progress=note)
        finally:
            # The function refers to the log.
            self._pay = _pay_nothing
            self._used_ms = self._clock.monotonic_ms()

    def release(self) -> None:
        """Free the memory if it was idle for IDLE_MS."""
        if self._clock.monotonic_ms() - self._used_ms >= IDLE_MS:
            self._engine = None

    def _cleaner_for(self, span: CleanableRange) -> Cleaner:
        config = self._config()
        key = config, memory_for(span, config)
        if self._engine is None or self._cleaner_key != key:
            # The old engine is freed first, so that memory is not allocated twice.
            self._engine, self._cleaner_key = None, key
            self._engine = Cleaner(
                config,
                memory_bytes=key[1],
                clock=self._clock,
                throttle=lambda byte_count: self._pay(byte_count),
            )
        return self._engine


def _pay_nothing(_byte_count: int) -> None:
    """Ignore the bytes: no cleaning is running."""
