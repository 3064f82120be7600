"""Validation of appends with an old message format: of the batches, of the log, or of both.

The rules are those of Kafka's LogValidator, by its three paths. Plain messages in the format of the
log stay unchanged except for offset and timestamp. A wrapper of magic 1 stays if it has the
configured codec and its messages count from 0. All other batches are decoded to columns and
rewritten; plain messages that get a codec or format v2 become one batch together. Offsets and
codecs are those of `leader`, and so are its stricter rules; also refused are undeclared bytes
(after a value, after the last message), which Kafka's leader stores or drops.

Offsets inside a wrapper are ignored, since all are assigned again: old producers wrote any.

Two differences in the stored bytes. Kafka makes a wrapper even if the messages grow by it; here
they stay plain. And if Kafka rewrites magic 0 for a log with LogAppendTime, its time index gets a
time that no message has; here it gets none.

Thread-safety: one append, one object.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from kafkalog._core.assign_offsets import assign_offsets, set_max_timestamp, set_max_timestamps
from kafkalog._core.batch_metadata import BatchMetadata
from kafkalog._core.builder import BatchBuilder
from kafkalog._core.columns import RecordColumns, decode_columns, decode_run
from kafkalog._core.header import BatchHeader, parse_header
from kafkalog._core.memory_records import MemoryRecords
from kafkalog._core.message import MessageSummary, decode_message_columns, summarize_messages
from kafkalog._core.message_builder import MessageSetBuilder
from kafkalog._core.status import STATUS_CODES, status_meaning
from kafkalog._core.summary import RecordSummary
from kafkalog.errors import (
    CorruptRecordError,
    InvalidRecordError,
    UnsupportedCodecError,
    UnsupportedForMessageFormatError,
)
from kafkalog.layout import CREATE_TIME, LOG_APPEND_TIME, MAGIC_V2, NO_TIMESTAMP
from kafkalog.model import NOTHING_REWRITTEN, AppendOrigin, Rewriting
from kafkalog.records.append_rules import AppendRules
from kafkalog.records.codecs import Codec, codec_names, is_codec_of
from kafkalog.records.entry_columns import EntryColumns, scan_entries
from kafkalog.records.old_format_batches import (
    EncodedBatches,
    OldFormatBatches,
    close_batch,
    facts_of_messages,
)
from kafkalog.records.record_faults import RecordFaults
from kafkalog.records.validation.batch_rules import (
    as_create_time,
    check_header,
    check_records,
    claim_fault,
    second_batch,
    with_base_offset,
)
from kafkalog.records.validation.entries import (
    Payload,
    add_offset_to_error,
    check_sizes,
    plain_records,
    refusal,
)

__all__ = ["OldFormatAppend"]

_OK: Final = STATUS_CODES["OK"]
_CRC: Final = STATUS_CODES["CRC"]
_TRUNCATED: Final = STATUS_CODES["TRUNCATED"]
_OFFSETS: Final = (STATUS_CODES["OFFSET_ORDER"], STATUS_CODES["OFFSET_DELTA"])
_NO_LIMIT: Final = 2**31 - 1

_Mask: TypeAlias = npt.NDArray[np.bool_]


class OldFormatAppend:
    """Check of one append with an old format."""

    def __init__(
        self, data: bytearray, rules: AppendRules, now_ms: int, origin: AppendOrigin
    ) -> None:
        self._data = data
        self._rules = rules
        self._now_ms = now_ms
        self._origin = origin
        self._append_time = now_ms if rules.is_log_append_time else None
        self._size_limit = min(rules.max_message_bytes, rules.segment_bytes)
        self._faults = RecordFaults(rules, now_ms)
        self._old_batches = OldFormatBatches(rules, self._append_time)
        self._source_codec = self._target_codec = 0
        self._recompressed_count = self._converted_count = 0

    def run(self) -> MemoryRecords:
        """Check everything and return the run."""
        if self._data:
            entries = scan_entries(self._data)
            self._check_entries(entries)
            for first, stop in _units(entries):
                if entries.magic[first] < MAGIC_V2 and not entries.codec[first]:
                    self._collect_messages(entries, first, stop)
                else:
                    self._convert_batch(self._header(entries, first))
        self._faults.raise_if_any()
        facts = (
            self._source_codec,
            self._target_codec,
            self._recompressed_count,
            self._converted_count,
        )
        return self._old_batches.run(Rewriting(*facts) if any(facts) else NOTHING_REWRITTEN)

    # --------------------------------------------------------------------------------- entries

    def _check_entries(self, entries: EntryColumns) -> None:
        """Check the outer entries."""
        count = len(entries.position)
        for slot in np.flatnonzero(entries.size_bytes > self._size_limit)[:1]:
            check_sizes(self._header(entries, slot), int(entries.size_bytes[slot]), self._rules)
        for slot in np.flatnonzero(entries.magic != entries.magic[0])[:1]:
            raise refusal(
                self._header(entries, slot),
                f"magic {entries.magic[slot]}, and those before have {entries.magic[0]}: one append"
                " has one format",
            )
        takes_one = entries.magic[0] >= MAGIC_V2 or entries.codec.any()
        if count > 1 and takes_one and self._origin is not AppendOrigin.EMBEDDED:
            raise second_batch(self._header(entries, 1))

    def _header(self, entries: EntryColumns, slot: int) -> BatchHeader:
        return parse_header(self._data, int(entries.position[slot]))

    # -------------------------------------------------------------------------- plain messages

    def _collect_messages(self, entries: EntryColumns, first: int, stop: int) -> None:
        """Take plain messages of one magic."""
        start = int(entries.position[first])
        end = int(entries.position[stop - 1] + entries.size_bytes[stop - 1])
        header = self._header(entries, first)
        columns = self._decode_messages(start, end, stop - first)
        claims = entries.has_append_time[first:stop]
        self._find_message_faults(columns, claims)
        codec = self._rules.wanted_codec or Codec.NONE
        if header.magic == self._rules.magic and codec is Codec.NONE:
            self._keep_messages(entries, first, stop, columns)
            return
        view = memoryview(self._data).toreadonly()
        # A broker makes one batch of all messages; an embedded log may append more than one holds.
        is_split = self._origin is AppendOrigin.EMBEDDED
        limit = self._rules.batch_bytes if is_split else _NO_LIMIT
        self._rewrite(header, columns, view, codec, limit)

    def _decode_messages(self, start: int, end: int, count: int) -> RecordColumns:
        columns = RecordColumns(count)
        _, _, position, status = decode_run(self._data, start, columns, end=end, check_crc=False)
        if status != _OK:
            # The CRC was correct, so the writer of the message is at fault, not the transport.
            why = "its fields end early" if status == _TRUNCATED else status_meaning(status)
            raise refusal(parse_header(self._data, position), why)
        return columns

    def _find_message_faults(self, columns: RecordColumns, claims: _Mask) -> None:
        times = columns.timestamp[: len(columns)]
        claimed = claims if self._rules.is_log_append_time else claims & (times == NO_TIMESTAMP)
        timed = times[times != NO_TIMESTAMP]
        lower, upper = (
            (int(timed.min()), int(timed.max())) if len(timed) else (NO_TIMESTAMP, NO_TIMESTAMP)
        )
        null_keys = int(np.count_nonzero(columns.key_size[: len(columns)] < 0))
        if claimed.any() or self._rules.has_invalid_record(self._now_ms, null_keys, lower, upper):
            why = "only the log may give" if self._rules.is_log_append_time else "it has not"
            claim = f"it claims an append time, which {why}"
            self._faults.add(columns, self._old_batches.record_count, claim, claimed=claimed)

    def _keep_messages(
        self, entries: EntryColumns, first: int, stop: int, columns: RecordColumns
    ) -> None:
        """Keep plain messages; set their timestamps and timestamp types if the format has them."""
        start = int(entries.position[first])
        positions = entries.position[first:stop] - start
        end = int(positions[-1] + entries.size_bytes[stop - 1])
        data = self._data[start : start + end]
        count = stop - first
        times = columns.timestamp[:count]
        kind = CREATE_TIME
        if self._rules.magic == 0:
            rows: npt.NDArray[np.intp] = np.empty(0, dtype=np.intp)
        elif self._append_time is not None:
            kind, rows = LOG_APPEND_TIME, np.arange(count)
            times = np.full_like(times, self._append_time)
        else:
            # Below -1 is none, as in Kafka.
            claims = entries.has_append_time[first:stop]
            rows = np.flatnonzero(claims | (times < NO_TIMESTAMP))
            times = np.maximum(times, NO_TIMESTAMP)
        if len(rows):
            set_max_timestamps(data, positions[rows], times[rows], timestamp_type=kind)
        self._old_batches.keep(
            EncodedBatches(data, facts_of_messages(positions, end, times, 0)), count
        )

    # ------------------------------------------------------------------- wrappers, v2 batches

    def _convert_batch(self, header: BatchHeader) -> None:
        """Take a wrapper, or a batch of v2 for a log of an old format."""
        if header.magic >= MAGIC_V2:
            check_header(header, self._origin)
            self._check_format_of_header(header)
        payload = plain_records(self._data, header, self._rules)
        log_codec = self._rules.wanted_codec
        codec = Codec.of(header.codec) if log_codec is None else log_codec
        self._source_codec = header.codec or self._source_codec
        if not is_codec_of(self._rules.magic, codec):
            raise UnsupportedCodecError(
                f"codec must be {codec_names(self._rules.magic)} for v{self._rules.magic}, got"
                f" {codec.kafka_name} in the batch at position {header.position}",
                position=header.position,
                base_offset=header.base_offset,
            )
        if header.magic >= MAGIC_V2:
            columns = self._decode_records(header, payload)
            self._rewrite(header, columns, payload[0], codec, _NO_LIMIT)
            return
        payload, summary, is_counted = self._check_messages(header, payload)
        columns = RecordColumns(summary.record_count)
        sent = with_base_offset(header, 0)
        decode_message_columns(payload[0], sent, payload[1], payload[2], columns)
        foreign = _foreign(payload, header.magic) if summary.other_magic_count else None
        self._find_faults(header, columns, summary, foreign)
        kept_by_format = header.magic == self._rules.magic == 1 and codec == header.codec
        if kept_by_format and is_counted and header.base_offset in (0, summary.record_count - 1):
            self._keep_wrapper(header, summary)
        else:
            self._rewrite(header, columns, payload[0], codec, _NO_LIMIT)

    def _check_format_of_header(self, header: BatchHeader) -> None:
        what = None
        if header.is_control:
            what = "control records"
        elif header.is_transactional:
            what = "transactions"
        elif header.producer_id >= 0:
            what = "producer ids"
        if what is not None:
            raise _unsupported(header, what, self._rules.magic)

    def _decode_records(self, header: BatchHeader, payload: Payload) -> RecordColumns:
        """Check the records of a v2 batch."""
        buffer, start, end = payload
        summary = check_records(header, payload)
        columns = RecordColumns(header.record_count)
        decode_columns(buffer, as_create_time(header), start, end, columns)
        self._find_faults(header, columns, summary)
        if columns.header_count[: len(columns)].any():
            raise _unsupported(header, "headers", self._rules.magic)
        return columns

    def _check_messages(
        self, header: BatchHeader, payload: Payload
    ) -> tuple[Payload, MessageSummary, bool]:
        """Check every message of a wrapper; whether their offsets count 0, 1, 2 comes last."""
        buffer, start, end = payload
        sent = with_base_offset(header, 0)
        summary = summarize_messages(buffer, sent, start, end)
        is_counted = summary.is_dense
        if summary.status in _OFFSETS:
            # Offsets are assigned again, and no CRC covers them: check the messages counted from 0.
            counted = bytearray(memoryview(buffer)[start:end])
            assign_offsets(counted, base_offset=0)
            buffer, start, end = bytes(counted), 0, len(counted)
            summary = summarize_messages(buffer, sent, start, end)
            is_counted = False
        if summary.status == _OK:
            return (buffer, start, end), summary, is_counted
        if summary.status == _CRC:
            # The error of a broker: the sender may retry.
            raise CorruptRecordError(
                f"the batch at position {header.position}: the CRC of a message inside is wrong",
                position=header.position,
                base_offset=header.base_offset,
            )
        why = status_meaning(summary.status)
        raise refusal(header, "its messages end early" if summary.status == _TRUNCATED else why)

    def _find_faults(
        self,
        header: BatchHeader,
        columns: RecordColumns,
        summary: MessageSummary | RecordSummary,
        foreign: _Mask | None = None,
    ) -> None:
        """Hold the records of one batch against the settings."""
        claim = claim_fault(header, self._rules, self._now_ms)
        has_invalid_record = self._rules.has_invalid_record(
            self._now_ms, summary.null_key_count, summary.min_timestamp, summary.max_timestamp
        )
        if has_invalid_record or claim is not None or foreign is not None:
            self._faults.add(columns, self._old_batches.record_count, claim, foreign=foreign)

    def _keep_wrapper(self, header: BatchHeader, summary: MessageSummary) -> None:
        """Set timestamp and type of a wrapper right, and leave its messages alone."""
        data = self._data[header.position : header.end_position]
        kind, largest = CREATE_TIME, max(summary.max_timestamp, NO_TIMESTAMP)
        if self._append_time is not None:
            kind, largest = LOG_APPEND_TIME, self._append_time
        set_max_timestamp(data, 0, timestamp_type=kind, max_timestamp=largest)
        last = summary.record_count - 1
        # As Kafka's leader: a wrapper that stays has an offset here whatever its times.
        facts = BatchMetadata([(len(data), 0, last, largest, last)])
        self._old_batches.keep(EncodedBatches(data, facts), summary.record_count)
        self._target_codec = header.codec

    # ---------------------------------------------------------------------------------- writing

    def _rewrite(
        self,
        header: BatchHeader,
        columns: RecordColumns,
        buffer: memoryview | bytes,
        codec: Codec,
        size_limit: int,
    ) -> None:
        """Write decoded records in the log's format, as few batches as the limit allows."""
        start = 0
        while start < len(columns):
            builder = self._builder()
            with add_offset_to_error(header):
                start += builder.extend_decoded(buffer, columns, start, size_limit=size_limit)
            encoded = self._close_builder(builder, codec)
            for facts in encoded.batches.batches_above(self._size_limit):
                check_sizes(header, facts.size_bytes, self._rules)
            written = parse_header(encoded.data).codec
            self._target_codec = written or self._target_codec
            self._recompressed_count += bool(written or header.codec)
        if header.magic != self._rules.magic:
            self._converted_count += len(columns)

    def _builder(self) -> BatchBuilder | MessageSetBuilder:
        if self._rules.magic >= MAGIC_V2:
            return BatchBuilder()
        builder = MessageSetBuilder(self._rules.magic)
        builder.reset(append_time=self._append_time)
        return builder

    def _close_builder(
        self, builder: BatchBuilder | MessageSetBuilder, codec: Codec
    ) -> EncodedBatches:
        """Take what a builder holds into the run."""
        if isinstance(builder, MessageSetBuilder):
            return self._old_batches.close(builder, codec)
        batch = close_batch(builder, self._rules, codec, 0, self._append_time)
        largest = builder.max_timestamp if self._append_time is None else self._append_time
        last = builder.last_offset_delta
        shallow = last if largest >= 0 else -1
        encoded = EncodedBatches(batch, BatchMetadata([(len(batch), 0, last, largest, shallow)]))
        self._old_batches.keep(encoded, builder.count)
        return encoded


def _units(entries: EntryColumns) -> Iterator[tuple[int, int]]:
    """Yield (first, stop) of what is taken at once: one batch, or plain messages side by side."""
    is_plain = (entries.magic < MAGIC_V2) & (entries.codec == 0)
    joins = is_plain[1:] & is_plain[:-1]
    starts = [0, *(np.flatnonzero(~joins) + 1).tolist()]
    yield from zip(starts, [*starts[1:], len(is_plain)], strict=True)


def _foreign(payload: Payload, magic: int) -> _Mask:
    """Return which messages of a wrapper have another format."""
    buffer, start, end = payload
    inner = scan_entries(memoryview(buffer)[start:end], check_crc=False)
    mask: _Mask = inner.magic != magic
    return mask


def _unsupported(header: BatchHeader, what: str, magic: int) -> InvalidRecordError:
    return UnsupportedForMessageFormatError(
        f"the batch at position {header.position} has {what}, for which messages of v{magic} have"
        " no place",
        position=header.position,
        base_offset=header.base_offset,
    )
