"""What a thread cleans with: an engine, whose memory is taken when needed and given back when idle.

A map that has room for every offset that is dirty has room for all keys, whatever they are. Most
logs need far less than a thread may have, and get no more: what is taken is cleared for each log.

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

# So long a thread keeps the memory for the next log.
IDLE_MS = 60_000
# Memory for the map is a power of two times this, at most what a thread may have.
_LEAST_BYTES = 64 << 10


def memory_share(config: CleanerConfig) -> int:
    """Return the memory for the map of keys that one thread may have."""
    return config.dedupe_buffer_size // max(config.threads, 1)


def memory_for(span: CleanableRange, config: CleanerConfig) -> int:
    """Return the memory for the map of keys of a cleaning: enough, if one thread may have that."""
    offset_count = span.first_uncleanable - span.first_dirty
    needed = map_bytes_for(offset_count, config.io_buffer_load_factor)
    size = _LEAST_BYTES
    while size < needed:
        size *= 2
    return min(size, memory_share(config))


class CleanerBuffers:
    """
    Cleans one log after the other.

    Args:
        config: returns the settings of compaction; with other ones the memory is taken anew.
        throttle: what all buffers share.
        clock: source of time.
    """

    def __init__(
        self, config: Callable[[], CleanerConfig], throttle: Throttle, clock: Clock
    ) -> None:
        self._config = config
        self._throttle = throttle
        self._clock = clock
        self._engine: Cleaner | None = None
        # What the engine was made for: settings and memory.
        self._cleaner_key: tuple[CleanerConfig, int] | None = None
        self._used_ms = 0
        self._pay: Callable[[int], object] = _pay_nothing

    @property
    def holds_memory(self) -> bool:
        """True if there is an engine."""
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
            log: it.
            span: what of it.
            run: ends it when it was aborted, and shows how far it is.
            on_progress: told how far it is.

        Raises:
            LogCleaningAbortedError: it was aborted, or the log closed or taken offline.
        """

        def is_over() -> bool:
            return run.is_aborted or log.is_closed or log.offline_error is not None

        def check() -> None:
            run.check()
            if is_over():
                raise LogCleaningAbortedError(f"{log.directory} takes no more writes")

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
            # It holds the log.
            self._pay = _pay_nothing
            self._used_ms = self._clock.monotonic_ms()

    def release(self) -> None:
        """Give the memory back where it was not needed for a while."""
        if self._clock.monotonic_ms() - self._used_ms >= IDLE_MS:
            self._engine = None

    def _cleaner_for(self, span: CleanableRange) -> Cleaner:
        config = self._config()
        wanted = config, memory_for(span, config)
        if self._engine is None or self._cleaner_key != wanted:
            # Let go first: there must not be two.
            self._engine, self._cleaner_key = None, wanted
            self._engine = Cleaner(
                config,
                memory_bytes=wanted[1],
                clock=self._clock,
                throttle=lambda byte_count: self._pay(byte_count),
            )
        return self._engine


def _pay_nothing(_byte_count: int) -> None:
    """Do nothing: nothing is being cleaned."""
