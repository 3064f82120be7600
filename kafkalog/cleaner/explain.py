"""`explain_compaction`: the rule by which a cleaning would keep or remove the record at an offset.

The first pass is the same as that of a cleaning, so the keys in the map and its end are exact. Then
the rules are checked one by one for this record alone, in the order of the filter
(`record_filter`). Only for the marker of a transaction the log before it is read: the marker stays
while something of its transaction is left.

Thread-safety: pure functions over the log as it is at the call.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Final, Literal

import numpy as np

from kafkalog._core.header import parse_header
from kafkalog._core.offset_map import ABSENT, ELSEWHERE
from kafkalog.cleaner.decoded_chunks import ChunkReader, DecodedChunk
from kafkalog.cleaner.dry_run import FirstPass, first_pass
from kafkalog.cleaner.log_to_clean import LogToClean, log_to_clean
from kafkalog.cleaner.offset_map_buffer import OffsetMapBuffer
from kafkalog.cleaner.plan_model import BoundKind, SegmentState, bounds_of, moment_text, state_of
from kafkalog.errors import OffsetOutOfRangeError
from kafkalog.layout import CONTROL_MASK, DELETE_HORIZON_MASK, MAGIC_V2, TRANSACTIONAL_MASK
from kafkalog.log.log import Log
from kafkalog.manager_config import CleanerConfig
from kafkalog.records.control import ControlType

__all__ = ["CompactionExplanation", "CompactionRule", "explain_compaction"]

_KEY_BYTES_SHOWN_MAX: Final = 40


class CompactionRule(StrEnum):
    """Rules that decide about a record, in the order in which they are checked."""

    ACTIVE_SEGMENT = "active segment"
    LAST_STABLE_OFFSET = "last stable offset"
    MIN_LAG = "min lag"
    NOTHING_DIRTY = "nothing dirty"
    HOLE = "hole"
    EMPTY_BATCH = "empty batch"
    CONTROL = "control"
    MARKER_NEEDED = "marker needed"
    MARKER_WAITS = "marker waits"
    MARKER_EXPIRED = "marker expired"
    ABORTED = "aborted"
    MEMORY = "memory"
    KEYLESS = "keyless"
    SUPERSEDED = "superseded"
    TOMBSTONE_WAITS = "tombstone waits"
    TOMBSTONE_EXPIRED = "tombstone expired"
    LAST_MESSAGE = "last message"
    LATEST = "latest of its key"


Fate = Literal["stays", "goes", "is not there"]

_REMOVING_RULES: Final = frozenset(
    {
        CompactionRule.MARKER_EXPIRED,
        CompactionRule.ABORTED,
        CompactionRule.KEYLESS,
        CompactionRule.SUPERSEDED,
        CompactionRule.TOMBSTONE_EXPIRED,
    }
)
_RULES_WITHOUT_RECORD: Final = frozenset({CompactionRule.HOLE, CompactionRule.EMPTY_BATCH})


@dataclass(frozen=True, slots=True)
class CompactionExplanation:
    """
    Effect of a cleaning on one record, with the reason.

    Attributes:
        offset: the offset of the record.
        segment: base offset of its segment; `state`: the state of that segment.
        rule: the rule that decides.
        text: the rule in a sentence.
        key: key of the record; None for a control record, and for a record without a key.
        later_offset: the latest record with the key, or with another key of the same hash, for
            SUPERSEDED.
        horizon_ms: end of the retention of a tombstone or marker, past or future.
        until_ms: time at which a bound ends by itself, if known.
        producer_id: of the transaction, or of the batch that was left empty.
    """

    offset: int
    segment: int
    state: SegmentState
    rule: CompactionRule
    text: str
    key: bytes | None = None
    later_offset: int | None = None
    horizon_ms: int | None = None
    until_ms: int | None = None
    producer_id: int | None = None

    @property
    def fate(self) -> Fate:
        """Fate of the record: "stays", "goes" or "is not there"."""
        if self.rule in _RULES_WITHOUT_RECORD:
            return "is not there"
        return "goes" if self.rule in _REMOVING_RULES else "stays"

    def as_dict(self) -> dict[str, Any]:
        """Return the explanation as plain values; the key in base 16."""
        key = None if self.key is None else self.key.hex()
        return asdict(self) | {"fate": self.fate, "key": key}


def explain_compaction(
    log: Log,
    offset: int,
    *,
    include_active: bool = False,
    config: CleanerConfig | None = None,
    checkpoint: int | None = None,
    memory_bytes: int | None = None,
    now_ms: int | None = None,
) -> CompactionExplanation:
    """
    Return the rule by which a cleaning would keep or remove the record at an offset now.

    Arguments and errors as for `plan_compaction`.

    Raises:
        OffsetOutOfRangeError: the log has no such offset.
    """
    target = log_to_clean(log, include_active=include_active, checkpoint=checkpoint, now_ms=now_ms)
    facts = target.facts
    if not facts.log_start_offset <= offset < facts.log_end_offset:
        raise OffsetOutOfRangeError(
            f"offset must be {facts.log_start_offset} to {facts.log_end_offset - 1} in"
            f" {log.directory}, got {offset}",
            requested=offset,
            log_start_offset=facts.log_start_offset,
            log_end_offset=facts.log_end_offset,
            path=log.directory,
        )
    map_buffer = OffsetMapBuffer(config or CleanerConfig(), memory_bytes)
    return _Explainer(target, offset, map_buffer).explain()


class _Explainer:
    """
    Explanation of one record.

    Args:
        target: the log.
        offset: the offset of the record.
        map_buffer: memory for the keys.
    """

    def __init__(self, target: LogToClean, offset: int, map_buffer: OffsetMapBuffer) -> None:
        self._target = target
        self._offset = offset
        self._map_buffer = map_buffer
        self._span = target.span()
        self._boundary = target.boundary(self._span)
        self._slot = target.slot_of(offset)
        self._explanation = CompactionExplanation(
            offset,
            target.facts.segments[self._slot].base_offset,
            state_of(target, self._slot, self._span.first_dirty, self._boundary),
            CompactionRule.HOLE,
            "",
        )

    def explain(self) -> CompactionExplanation:
        """Check one rule after the other."""
        chunk = self._target.chunk_at(self._offset)
        row = -1 if chunk is None else int(np.searchsorted(chunk.columns.offset, self._offset))
        is_there = chunk is not None and (
            row < len(chunk.columns) and int(chunk.columns.offset[row]) == self._offset
        )
        if chunk is None or not is_there:
            return self._hole(chunk)
        is_control = bool(chunk.has_bits(CONTROL_MASK)[0])
        if not is_control:
            self._explanation = replace(self._explanation, key=chunk.key_of(row))
        if self._explanation.segment >= self._boundary:
            return self._untouched()
        span = self._span
        if span.first_dirty >= self._boundary:
            text = "nothing after it can be cleaned, and without that the clean part is left alone"
            return self._explain_rule(CompactionRule.NOTHING_DIRTY, text)
        first = first_pass(self._target, span.first_dirty, self._boundary, self._map_buffer)
        if self._explanation.segment >= first.end_offset:
            return self._beyond_map(first)
        return self._control(chunk) if is_control else self._data(chunk, row, first)

    def _explain_rule(
        self, rule: CompactionRule, text: str, **fields: Any
    ) -> CompactionExplanation:
        found = replace(self._explanation, rule=rule, **fields)
        what = "control record" if rule.startswith(("control", "marker")) else "record"
        key = "" if found.key is None else f" with key {_format_key(found.key)}"
        if rule in _RULES_WITHOUT_RECORD:
            return replace(found, text=f"No record exists at offset {self._offset}: {text}.")
        begins = f"The {what} at offset {self._offset}{key} {found.fate}"
        return replace(found, text=f"{begins}: {text}.")

    # ---- positions ----

    def _hole(self, chunk: DecodedChunk | None) -> CompactionExplanation:
        if chunk is None:
            text = "an earlier compaction removed its batch, or there never was one"
            return self._explain_rule(CompactionRule.HOLE, text)
        if len(chunk.columns):
            text = "its batch is there, and an earlier compaction took the record out of it"
            return self._explain_rule(CompactionRule.HOLE, text)
        header = parse_header(memoryview(chunk.run.data)[chunk.start : chunk.end])
        producer = header.producer_id if header.producer_id >= 0 else None
        text = "compaction left the header of its batch, which shows how far the log was cleaned"
        last = None if producer is None else self._target.last_batches.get(producer)
        if last is not None and last.last_offset in (None, header.last_offset):
            text = f"compaction left the header of its batch, the last of producer {producer}"
        return self._explain_rule(CompactionRule.EMPTY_BATCH, text, producer_id=producer)

    def _untouched(self) -> CompactionExplanation:
        bound = bounds_of(self._target, self._span)[0]
        rules = {
            BoundKind.LAST_STABLE_OFFSET: CompactionRule.LAST_STABLE_OFFSET,
            BoundKind.MIN_LAG: CompactionRule.MIN_LAG,
        }
        rule = rules.get(bound.kind, CompactionRule.ACTIVE_SEGMENT)
        text = bound.text
        if self._explanation.state is SegmentState.ACTIVE:
            rule, text = CompactionRule.ACTIVE_SEGMENT, "the active segment is never cleaned"
            return self._explain_rule(rule, text)
        if bound.until_ms is not None:
            text += f", until {moment_text(bound.until_ms)}"
        if bound.offset < self._explanation.segment:
            text = f"it is after offset {bound.offset}, where cleaning ends: {text}"
        return self._explain_rule(
            rule, text, until_ms=bound.until_ms, producer_id=bound.producer_id
        )

    # ---- records of the system ----

    def _control(self, chunk: DecodedChunk) -> CompactionExplanation:
        kind = chunk.control_type(0)
        producer = int(chunk.header("producer_id")[0])
        if kind not in (ControlType.ABORT, ControlType.COMMIT):
            text = "it is not the marker of a transaction, and such records are never removed"
            return self._explain_rule(CompactionRule.CONTROL, text, producer_id=producer)
        verb = "aborted" if kind is ControlType.ABORT else "committed"
        what = f"the transaction that producer {producer} {verb}"
        if not self._is_empty_marker():
            text = f"it is the marker of {what}, of which something is left"
            return self._explain_rule(CompactionRule.MARKER_NEEDED, text, producer_id=producer)
        horizon = self._horizon_of(chunk)
        nothing = f"nothing is left of {what}"
        if horizon is None:
            horizon = self._target.now_ms + self._target.config.delete_retention_ms
            text = (
                f"{nothing}, and this cleaning would find that first: until {moment_text(horizon)}"
            )
            rule = CompactionRule.MARKER_WAITS
        elif horizon > self._target.now_ms:
            rule, text = CompactionRule.MARKER_WAITS, f"{nothing}: until {moment_text(horizon)}"
        else:
            rule = CompactionRule.MARKER_EXPIRED
            text = f"{nothing}, and its time was over on {moment_text(horizon)}"
        return self._explain_rule(rule, text, horizon_ms=horizon, producer_id=producer)

    def _is_empty_marker(self) -> bool:
        """Return whether nothing of the transaction of a marker is left before it."""
        target = self._target
        start = target.facts.segments[0].base_offset
        tracker = target.tracker(start, self._boundary)
        reader = ChunkReader(target.config.decompressed_max_bytes)
        for slot in range(self._slot + 1):
            for run in target.runs(slot):
                for chunk in reader.chunks(run):
                    offsets = chunk.header("base_offset")
                    for batch, _is_control, is_gone in tracker.judge(chunk):
                        if int(offsets[batch]) == self._offset:
                            return is_gone
        raise AssertionError(f"the marker at offset {self._offset} was seen, and is not there")

    # ---- data ----

    def _data(self, chunk: DecodedChunk, row: int, first: FirstPass) -> CompactionExplanation:
        if (aborted := self._aborted(chunk)) is not None:
            return aborted
        is_old = int(chunk.magic[0]) < MAGIC_V2
        found = self._judge(chunk, row, first, is_old=is_old)
        if found.fate == "goes" and is_old and self._offset + 1 == self._boundary:
            text = "it is the last message of what is cleaned, and shows how far that goes"
            return self._explain_rule(CompactionRule.LAST_MESSAGE, text)
        return found

    def _judge(
        self, chunk: DecodedChunk, row: int, first: FirstPass, *, is_old: bool
    ) -> CompactionExplanation:
        if self._offset >= first.end_offset:
            return self._beyond_map(first)
        key = self._explanation.key
        if key is None:
            text = "a compacted log cannot keep what has no key"
            return self._explain_rule(CompactionRule.KEYLESS, text)
        later = _latest(first, key)
        if later > self._offset:
            text = f"offset {later} has the same key"
            if self._target.key_at(later) != key:
                text = (
                    f"offset {later} has another key with the same hash, which"
                    " log.cleaner.hash.algorithm=siphash or exact would distinguish"
                )
            return self._explain_rule(CompactionRule.SUPERSEDED, text, later_offset=later)
        if chunk.columns.value_size[row] < 0:
            return self._old_tombstone() if is_old else self._tombstone(chunk)
        return self._explain_rule(
            CompactionRule.LATEST, "nothing that is cleaned has its key later"
        )

    def _beyond_map(self, first: FirstPass) -> CompactionExplanation:
        text = (
            f"the memory for keys is full with those below offset {first.end_offset}, and later"
            " records wait for the next cleaning"
        )
        return self._explain_rule(CompactionRule.MEMORY, text)

    def _aborted(self, chunk: DecodedChunk) -> CompactionExplanation | None:
        if not chunk.has_bits(TRANSACTIONAL_MASK)[0]:
            return None
        producer, last = int(chunk.header("producer_id")[0]), int(chunk.header("last_offset")[0])
        first = int(chunk.header("base_offset")[0])
        if not self._target.tracker(first, last + 1).is_aborted(producer, last):
            return None
        text = f"producer {producer} aborted the transaction that it belongs to"
        return self._explain_rule(CompactionRule.ABORTED, text, producer_id=producer)

    def _tombstone(self, chunk: DecodedChunk) -> CompactionExplanation:
        horizon, now_ms = self._horizon_of(chunk), self._target.now_ms
        if horizon is None:
            horizon = now_ms + self._target.config.delete_retention_ms
            text = (
                "it is the latest of its key, a tombstone that this cleaning would see first: it"
                f" stays until {moment_text(horizon)}"
            )
            rule = CompactionRule.TOMBSTONE_WAITS
        elif now_ms < horizon:
            text = (
                f"it is the latest of its key, a tombstone that stays until {moment_text(horizon)}"
            )
            rule = CompactionRule.TOMBSTONE_WAITS
        else:
            text = f"it is a tombstone whose time was over on {moment_text(horizon)}"
            rule = CompactionRule.TOMBSTONE_EXPIRED
        return self._explain_rule(rule, text, horizon_ms=horizon)

    def _old_tombstone(self) -> CompactionExplanation:
        target = self._target
        horizon = target.modified_ms[self._slot] + target.config.delete_retention_ms
        if target.old_tombstones_stay(self._slot, self._span.first_dirty):
            text = (
                "it is the latest of its key, a tombstone of an old format: it stays until a"
                " cleaning finds a clean segment that was written on"
                f" {moment_text(horizon)} or later"
            )
            return self._explain_rule(CompactionRule.TOMBSTONE_WAITS, text, horizon_ms=horizon)
        text = (
            "it is a tombstone of an old format, and the last clean segment was written"
            f" on {moment_text(horizon)} or later"
        )
        return self._explain_rule(CompactionRule.TOMBSTONE_EXPIRED, text, horizon_ms=horizon)

    @staticmethod
    def _horizon_of(chunk: DecodedChunk) -> int | None:
        has_horizon = bool(chunk.has_bits(DELETE_HORIZON_MASK)[0])
        return int(chunk.header("base_timestamp")[0]) if has_horizon else None


def _latest(first: FirstPass, key: bytes) -> int:
    """Return the latest offset of a key; below 0 if the dirty part does not have it."""
    for offset_map in first.maps():
        found = offset_map.get(key)
        if found != ELSEWHERE:
            return found
    return ABSENT


def _format_key(key: bytes) -> str:
    return (
        repr(key)
        if len(key) <= _KEY_BYTES_SHOWN_MAX
        else f"{key[:_KEY_BYTES_SHOWN_MAX]!r}... ({len(key)} bytes)"
    )
