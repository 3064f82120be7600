"""Faults of the records of an append, by the settings of the log.

Packers and validation know the extremes of a whole batch (smallest and largest timestamp, number of
null keys), and check the rules with them first. Only if a record may be invalid are records checked
one by one, so that one error lists them all.

Thread-safety: one append, one object.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from kafkalog._core.columns import RecordColumns
from kafkalog.errors import InvalidTimestampError, RecordValidationError
from kafkalog.layout import NO_TIMESTAMP
from kafkalog.model import RecordError
from kafkalog.records.append_rules import AppendRules

__all__ = ["RecordFaults"]

# A hostile append could else have more errors than it has bytes.
_LISTED_MAX: Final = 1000
_SHOWN_MAX: Final = 3
_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1


class RecordFaults:
    """
    The records of one append that were found to break a rule.

    Args:
        rules: what the settings ask of records.
        now_ms: time of the append, sampled once.
    """

    __slots__ = ("_count", "_errors", "_has_timestamp_fault", "_now_ms", "_rules")

    def __init__(self, rules: AppendRules, now_ms: int) -> None:
        self._rules = rules
        self._now_ms = now_ms
        self._errors: list[RecordError] = []
        self._count = 0
        self._has_timestamp_fault = False

    def add(
        self,
        columns: RecordColumns,
        first_index: int,
        claim: str | None = None,
        *,
        claimed: npt.NDArray[np.bool_] | None = None,
        foreign: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        """
        Take note of every record that breaks a rule; the first rule it breaks counts.

        Args:
            columns: the decoded records.
            first_index: number of the first of them in the append.
            claim: what is wrong with the timestamp type of their batch, which is then a fault of
                each record; None where nothing is.
            claimed: which records the claim is a fault of, None for all.
            foreign: which messages have another format than the wrapper they are in.
        """
        size = len(columns)
        missing: npt.NDArray[np.bool_] = np.zeros(size, dtype=bool)
        if foreign is None:
            foreign = np.zeros(size, dtype=bool)
        if self._rules.is_key_required:
            missing = columns.key_size[:size] < 0
        timestamps = columns.timestamp[:size]
        early, late = self._outside(timestamps)
        if claimed is None:
            claimed = np.full(size, claim is not None)
        faulty = foreign | missing | claimed | early | late
        for row in np.flatnonzero(faulty)[: _LISTED_MAX - len(self._errors)]:
            if foreign[row]:
                message = "it has another message format than the wrapper that it is in"
            elif missing[row]:
                message = f"it has no key, and cleanup.policy is {self._rules.policy}"
            elif claim is not None and claimed[row]:
                message = claim
            else:
                message = self._timestamp_fault(int(timestamps[row]), is_early=bool(early[row]))
            self._errors.append(RecordError(first_index + int(row), message))
        self._count += int(np.count_nonzero(faulty))
        self._has_timestamp_fault |= bool(np.any(faulty & ~missing & ~foreign))

    def raise_if_any(self) -> None:
        """
        Raise what was found.

        Raises:
            InvalidTimestampError: a record's timestamp is out of bounds, or claimed to be ours.
            RecordValidationError: only keys are missing.
        """
        if not self._count:
            return
        shown = "; ".join(
            f"record {each.index}: {each.message}" for each in self._errors[:_SHOWN_MAX]
        )
        more = f"; and {self._count - _SHOWN_MAX} more" if self._count > _SHOWN_MAX else ""
        noun = "record is" if self._count == 1 else "records are"
        error = InvalidTimestampError if self._has_timestamp_fault else RecordValidationError
        raise error(
            f"{self._count} {noun} not allowed here: {shown}{more}",
            record_errors=self._errors,
        )

    def _outside(
        self, timestamps: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Return which timestamps lie too far in the past, and which too far in the future."""
        if self._rules.is_log_append_time:
            return np.zeros(len(timestamps), dtype=bool), np.zeros(len(timestamps), dtype=bool)
        lower = np.int64(max(self._now_ms - self._rules.before_ms, _INT64_MIN))
        upper = np.int64(min(self._now_ms + self._rules.after_ms, _INT64_MAX))
        is_timed = timestamps != NO_TIMESTAMP
        return is_timed & (timestamps < lower), is_timed & (timestamps > upper)

    def _timestamp_fault(self, timestamp: int, *, is_early: bool) -> str:
        side = "before" if is_early else "after"
        limit = self._rules.before_ms if is_early else self._rules.after_ms
        return (
            f"its timestamp {timestamp} is {abs(self._now_ms - timestamp)} ms {side} the time of"
            f" the append ({self._now_ms}), and message.timestamp.{side}.max.ms is {limit}"
        )
