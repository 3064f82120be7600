"""The reference of compaction: slow, record by record, from whole lists: the oracle.

Batches are read by the reference codecs. A dictionary is the offset map; transactions are looked up
in the whole log instead of being tracked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kafkalog.cleaner.record_filter import CleaningRules
from kafkalog.indexes.transaction_index import AbortedTransaction
from tests.support.reference import Header
from tests.support.reference_conversion import PlainBatch, PlainRecord, decode_run

__all__ = ["Kept", "ReferenceCleaning", "kept_of"]

CODEC, TYPE, TRANSACTIONAL, CONTROL, HORIZON = 0x07, 0x08, 0x10, 0x20, 0x40
COMMIT = 1


@dataclass(frozen=True)
class Kept:
    """A batch after a cleaning, without the fields that depend on a codec's bytes."""

    header: Header
    records: tuple[PlainRecord, ...]


def kept_of(data: bytes) -> list[Kept]:
    """Return what the batches of a run are, to be compared with what they should be."""
    return [_comparable(batch.header, batch.records) for batch in decode_run(data)]


def _comparable(header: Header, records: Sequence[PlainRecord]) -> Kept:
    return Kept(replace(header, crc=0, batch_length=0), tuple(records))


@dataclass(frozen=True)
class ReferenceCleaning:
    """A cleaning of one run, whose records up to `latest_offset` are in the map."""

    data: bytes
    rules: CleaningRules
    first_dirty: int
    latest_offset: int
    aborted: Sequence[AbortedTransaction]
    old_tombstones_stay: bool

    def latest(self) -> Mapping[bytes, int]:
        """Return the latest offset of each key of the dirty part."""
        found = {}
        for batch in decode_run(self.data):
            if batch.is_control or self.is_aborted(batch):
                continue
            for record in batch.records:
                in_range = self.first_dirty <= record.offset <= self.latest_offset
                if record.key is not None and in_range:
                    found[record.key] = record.offset
        return found

    def kept(self) -> list[Kept]:
        """Return what stays of each batch of which something does."""
        latest = self.latest()
        result = []
        for batch in decode_run(self.data):
            kept = self._kept_batch(batch, latest)
            if kept is not None:
                result.append(kept)
        return result

    def kept_transactions(self) -> list[AbortedTransaction]:
        """Return the aborted transactions of which a batch is still in the run."""
        return [
            transaction
            for transaction in self.aborted
            if any(
                self._belongs(batch, transaction)
                for batch in decode_run(self.data)
                if not batch.is_control
            )
            and any(
                batch.header.base_offset == transaction.last_offset and batch.records
                for batch in decode_run(self.data)
            )
        ]

    # ---- transactions ----

    @staticmethod
    def _belongs(batch: PlainBatch, transaction: AbortedTransaction) -> bool:
        header = batch.header
        return (
            bool(header.attributes & TRANSACTIONAL)
            and header.magic == 2
            and header.producer_id == transaction.producer_id
            and transaction.first_offset <= header.last_offset < transaction.last_offset
        )

    def is_aborted(self, batch: PlainBatch) -> bool:
        """Return whether a batch with data belongs to an aborted transaction."""
        return not batch.is_control and any(
            self._belongs(batch, transaction) for transaction in self.aborted
        )

    def _marker_is_empty(self, marker: PlainBatch) -> bool:
        """Return whether no batch of the marker's transaction is left before it."""
        if not marker.records:
            return True
        key = marker.records[0].key or b""
        if int.from_bytes(key[2:4], "big") not in (0, COMMIT):
            return False
        before: list[PlainBatch] = []
        for batch in decode_run(self.data):
            if batch.header.base_offset >= marker.header.base_offset:
                break
            if batch.header.producer_id != marker.header.producer_id:
                continue
            if batch.is_control and batch.records:
                before = []
            elif not batch.is_control and batch.header.attributes & TRANSACTIONAL:
                before.append(batch)
        return not before

    # ---- batches ----

    def _kept_batch(self, batch: PlainBatch, latest: Mapping[bytes, int]) -> Kept | None:
        header = batch.header
        horizon = header.base_timestamp if _has_horizon(header) else None
        empty_marker = batch.is_control and self._marker_is_empty(batch)
        if batch.is_control:
            over = horizon is not None and horizon <= self.rules.now_ms
            records = () if empty_marker and over else batch.records
        elif self.is_aborted(batch):
            records = ()
        else:
            records = tuple(
                record for record in batch.records if self._stays(record, batch, latest)
            )
        if not records:
            return self._without_records(batch)
        is_known = header.last_offset <= self.latest_offset
        tombstones = is_known and any(record.value is None for record in records)
        if header.magic == 2 and horizon is None and (tombstones or empty_marker):
            horizon = self.rules.now_ms + self.rules.delete_retention_ms
        elif records == batch.records:
            return _comparable(header, records)
        if header.magic < 2:
            return self._old_rewritten(header, records)
        append_time = bool(header.attributes & TYPE)
        return _comparable(
            replace(
                header,
                attributes=header.attributes & ~HORIZON | (HORIZON if horizon is not None else 0),
                base_timestamp=records[0].timestamp if horizon is None else horizon,
                max_timestamp=header.max_timestamp
                if append_time
                else max(-1, *(record.timestamp for record in records)),
                record_count=len(records),
            ),
            records,
        )

    @staticmethod
    def _old_rewritten(header: Header, records: Sequence[PlainRecord]) -> Kept:
        append_time = header.magic == 1 and header.attributes & TYPE
        timestamp = (
            header.max_timestamp
            if append_time or header.magic == 0
            else max(record.timestamp for record in records)
        )
        offset = records[-1].offset
        header = replace(
            header, base_offset=offset, base_timestamp=timestamp, max_timestamp=timestamp
        )
        return _comparable(header, records)

    def _stays(self, record: PlainRecord, batch: PlainBatch, latest: Mapping[bytes, int]) -> bool:
        if record.offset > self.latest_offset:
            return True
        if batch.header.magic < 2 and record.offset + 1 == self.rules.end_offset:
            return True
        if record.key is None or record.offset < latest.get(record.key, -1):
            return False
        if record.value is not None:
            return True
        header = batch.header
        if header.magic < 2:
            return self.old_tombstones_stay
        return not _has_horizon(header) or self.rules.now_ms < header.base_timestamp

    def _without_records(self, batch: PlainBatch) -> Kept | None:
        header = batch.header
        if header.magic < 2:
            return None
        ends_range = header.last_offset + 1 == self.rules.end_offset
        last = self.rules.last_batches.get(header.producer_id)
        ends_producer = last is not None and (
            last.last_offset == header.last_offset
            if last.last_offset is not None
            else batch.is_control and last.producer_epoch == header.producer_epoch
        )
        if not ends_range and not ends_producer:
            return None
        emptied = replace(
            header,
            attributes=header.attributes & (TYPE | TRANSACTIONAL | CONTROL),
            base_timestamp=-1,
            record_count=0,
        )
        return _comparable(emptied, ())


def _has_horizon(header: Header) -> bool:
    return header.magic == 2 and bool(header.attributes & HORIZON)
