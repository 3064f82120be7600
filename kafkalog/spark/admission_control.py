"""Size of a micro-batch: limits of offsets and bytes, shared out in proportion to backlogs.

All partitions get to their ends together, and none with a backlog is left out: each gets an offset,
or a batch where bytes are limited, even if that exceeds the limit.

A minimum delays a micro-batch, but not longer than `maxTriggerDelay` after the last one; the first
is not delayed, as in Spark's Kafka source.

Thread-safety: one stream's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from kafkalog.clock import Clock, SystemClock
from kafkalog.spark.options import StreamLimits

__all__ = ["AdmissionControl", "ByteEstimator", "share_out"]

Int64Array: TypeAlias = npt.NDArray[np.int64]


class ByteEstimator(Protocol):
    """Estimator of the bytes of offsets, which decodes nothing."""

    def bytes_between(self, starts: Int64Array, ends: Int64Array) -> Int64Array:
        """Return about how many bytes each range has."""
        ...

    def advance(self, starts: Int64Array, ends: Int64Array, sizes: Int64Array) -> Int64Array:
        """Return for each range the offset after about `sizes` bytes: a batch at least, if any."""
        ...


def share_out(limit: int, backlogs: Int64Array) -> Int64Array:
    """
    Return the share of each partition: in proportion, at most its backlog, at least one.

    The sum is the limit, or the whole backlog; more only if more than `limit` have a backlog.
    """
    total = int(backlogs.sum())
    if total <= limit:
        return backlogs.copy()
    exact = backlogs * (limit / total)
    shares = np.minimum(np.maximum(exact.astype(np.int64), backlogs > 0), backlogs)
    while (missing := limit - int(shares.sum())) > 0:
        # To the shares that rounding reduced most.
        wanting = np.flatnonzero(shares < backlogs)
        order = np.argsort((shares - exact)[wanting], kind="stable")
        shares[wanting[order[:missing]]] += 1
    while (excess := int(shares.sum()) - limit) > 0:
        # From the largest shares, if they got one more than their part.
        having = np.flatnonzero(shares > 1)
        if not len(having):
            break
        order = np.argsort(-shares[having], kind="stable")
        shares[having[order[:excess]]] -= 1
    return shares


class AdmissionControl:
    """
    The limits of one stream.

    Args:
        limits: as the options have them.
        clock: for the delay; the machine's if None.
    """

    def __init__(self, limits: StreamLimits, clock: Clock | None = None) -> None:
        self._limits = limits
        self._clock = SystemClock() if clock is None else clock
        self._last_ms: int | None = None

    def admit(
        self,
        starts: Int64Array,
        ends: Int64Array,
        estimator: Callable[[], ByteEstimator],
        *,
        may_wait: bool,
    ) -> Int64Array:
        """
        Return the end of the next micro-batch in each partition.

        Args:
            starts, ends: the unread offsets, int64 of shape (p,); no end below its start.
            estimator: makes an estimator, if bytes are limited.
            may_wait: True if the micro-batch may be delayed; a query that ends must not wait.
        """
        limits = self._limits
        backlogs = ends - starts
        total = int(backlogs.sum())
        if total == 0 or (may_wait and self._holds_back(total)):
            return starts
        if limits.max_offsets_per_trigger is not None:
            ends = starts + share_out(limits.max_offsets_per_trigger, backlogs)
        if limits.max_bytes_per_trigger is not None:
            measure = estimator()
            sizes = measure.bytes_between(starts, ends)
            if int(sizes.sum()) > limits.max_bytes_per_trigger:
                shares = share_out(limits.max_bytes_per_trigger, np.maximum(sizes, ends > starts))
                ends = measure.advance(starts, ends, shares)
        return ends

    def _holds_back(self, backlog: int) -> bool:
        limits = self._limits
        if limits.min_offsets_per_trigger is None:
            return False
        now_ms = self._clock.monotonic_ms()
        is_late = self._last_ms is None or now_ms - self._last_ms >= limits.max_trigger_delay_ms
        if not is_late and backlog < limits.min_offsets_per_trigger:
            return True
        self._last_ms = now_ms
        return False
