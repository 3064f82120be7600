"""Digest of all fields of records, independent of their format and batches.

Offset, timestamp and its type, key, value, headers; producer, sequence, transaction, leader epoch
and delete horizon of their batches; the headers of batches without records. Formats v0 and v1 have
fewer fields: a missing one counts as absent (-1), and the missing timestamp type of v0 as
CreateTime, the value of the same records in v2.

Thread-safety: none; one caller at a time.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Container, Iterable
from os import PathLike
from pathlib import Path
from typing import Final

from kafkalog._core.columns import RecordColumns
from kafkalog._core.decoded_rows import pack_rows
from kafkalog._core.header import BatchHeader
from kafkalog.errors import CorruptRecordError
from kafkalog.layout import CREATE_TIME, LOG_APPEND_TIME
from kafkalog.records.batch_view import BatchView
from kafkalog.records.conversion.conversion_units import ConversionUnit, FileRecords, UnitWalker
from kafkalog.records.conversion.decoding import Decoder

__all__ = ["RecordDigest", "ensure_equal"]

_TAG: Final = struct.Struct(">qhiiqBB")
_TRANSACTIONAL, _CONTROL = 1, 2


class RecordDigest:
    """
    Digest of runs of batches; equal digests mean equal records.

    Args:
        limit_bytes: largest size of one batch uncompressed.
        without: (path, position) of batches to skip.

    Attributes:
        record_count: number of records.
        next_offset: one above the last offset, with or without a record.
    """

    def __init__(
        self,
        limit_bytes: int,
        without: Container[tuple[str | PathLike[str] | None, int]] = frozenset(),
    ) -> None:
        self.record_count = 0
        self.next_offset = 0
        self._limit_bytes = limit_bytes
        self._without = without
        self._decoder = Decoder(limit_bytes)
        self._hash = hashlib.blake2b(digest_size=32)

    def update(self, runs: Iterable[FileRecords]) -> None:
        """
        Add the batches of runs, whose CRCs are checked.

        Raises:
            CorruptRecordError: messages of an old format cannot be read. (Of a batch of v2 that
            cannot be read, the bytes count.)
        """
        single = bool(self._without)
        walker = UnitWalker(check_crc=False, merge=not single)
        for run in runs:
            for unit in walker.units(run):
                if single and (run.path, run.position + unit.start) in self._without:
                    continue
                self._add_unit(run, unit)

    def hexdigest(self) -> str:
        """Return the digest so far."""
        return self._hash.hexdigest()

    def _add_unit(self, run: FileRecords, unit: ConversionUnit) -> None:
        if unit.is_plain:
            tag = _tag(None, unit.append_time_ms is not None)
            for columns in self._decoder.plain(run, unit):
                self._rows(columns, run.data, tag)
            return
        data = run.data[unit.start : unit.end]
        view = BatchView(data, path=run.path, position=run.position + unit.start)
        header = view.header
        self.next_offset = header.next_offset
        if header.record_count == 0:
            self._hash.update(data)
            return
        tag = _tag(header, header.timestamp_type == LOG_APPEND_TIME)
        try:
            columns, buffer = self._decoder.batch(view)
        except CorruptRecordError:
            if header.magic < 2:
                raise
            self._bytes_of(view, tag)
        else:
            self._rows(columns, memoryview(buffer).cast("B"), tag)

    def _rows(self, columns: RecordColumns, buffer: memoryview, tag: bytes) -> None:
        self._hash.update(pack_rows(buffer, columns, tag=tag))
        self.record_count += len(columns)
        if len(columns):
            # A wrapper may have later offsets than its header.
            self.next_offset = max(self.next_offset, int(columns.offset[-1]) + 1)

    def _bytes_of(self, view: BatchView, tag: bytes) -> None:
        """Add the bytes of records that cannot be read, decompressed if possible."""
        self._hash.update(tag)
        try:
            buffer, start, end = view.payload(self._limit_bytes)
        except CorruptRecordError:
            self._hash.update(view.data)
        else:
            self._hash.update(memoryview(buffer)[start:end])


def ensure_equal(ours: RecordDigest, theirs: RecordDigest, source: Path) -> None:
    """
    Compare the digest of a result with that of its source.

    Raises:
        CorruptRecordError: they differ.
    """
    if ours.hexdigest() != theirs.hexdigest() or ours.next_offset != theirs.next_offset:
        raise CorruptRecordError(
            f"the conversion of {source} has different records:"
            f" {theirs.record_count} to offset {theirs.next_offset - 1}, where the source has"
            f" {ours.record_count} to {ours.next_offset - 1}",
            path=source,
        )


def _tag(header: BatchHeader | None, has_append_time: bool) -> bytes:
    """Return the fields of a batch that apply to all its records; None for plain old messages."""
    timestamp_type = LOG_APPEND_TIME if has_append_time else CREATE_TIME
    if header is None or header.magic < 2:
        return _TAG.pack(-1, -1, -1, -1, -1, 0, timestamp_type)
    horizon = header.delete_horizon_ms
    return _TAG.pack(
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.partition_leader_epoch,
        -1 if horizon is None else horizon,
        _TRANSACTIONAL * header.is_transactional | _CONTROL * header.is_control,
        timestamp_type,
    )
