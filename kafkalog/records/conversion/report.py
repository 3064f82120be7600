"""Report of a conversion between formats, with the losses of the target format.

Thread-safety: a report is filled by one conversion; read it when that is done, or accept that it
grows.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import Any

from kafkalog._core.header import BatchHeader

__all__ = ["ConversionReport"]


@dataclass(slots=True)
class ConversionReport:
    """
    Counts of one conversion, or of several added up.

    Below, a message of format v0 or v1, plain or a wrapper of others, is a batch.

    Attributes:
        source_bytes_by_codec, result_bytes_by_codec: size of the batches before and after, by the
            name of their codec. Bits that are no codec go by their number.
        source_batches: batches read.
        batches_copied: those that went over byte for byte.
        records_converted: records that were rewritten in another format or codec.
        control_batches_dropped: transaction markers and the like, which old formats have not.
        empty_batches_dropped: batches without records, which old formats have not.
        records_below_start: records before the offset asked for, left out as a broker does.
        headers_lost: headers of records; formats v0 and v1 have none.
        timestamps_lost: records whose timestamp v0 could not keep.
        producer_states_lost: batches whose producer id, epoch and sequence were lost.
        transactional_flags_lost: batches that are no longer part of a transaction: aborted records
            can no longer be distinguished from others.
        leader_epochs_lost: batches whose leader epoch was lost.
        delete_horizons_lost: batches whose delete horizon was lost.
    """

    source_bytes_by_codec: Counter[str] = field(default_factory=Counter)
    result_bytes_by_codec: Counter[str] = field(default_factory=Counter)
    source_batches: int = 0
    batches_copied: int = 0
    records_converted: int = 0
    control_batches_dropped: int = 0
    empty_batches_dropped: int = 0
    records_below_start: int = 0
    headers_lost: int = 0
    timestamps_lost: int = 0
    producer_states_lost: int = 0
    transactional_flags_lost: int = 0
    leader_epochs_lost: int = 0
    delete_horizons_lost: int = 0

    @property
    def source_bytes(self) -> int:
        """Size before."""
        return self.source_bytes_by_codec.total()

    @property
    def result_bytes(self) -> int:
        """Size after."""
        return self.result_bytes_by_codec.total()

    def add_source(self, codec: str, size: int, batches: int) -> None:
        """Count batches that were read, and their size by the name of their codec."""
        self.source_batches += batches
        self.source_bytes_by_codec[codec] += size

    def add_result(self, codec: str, size: int) -> None:
        """Count the size of converted batches by the name of their codec."""
        self.result_bytes_by_codec[codec] += size

    def add_copied(self, batches: int = 1) -> None:
        """Count batches that were copied byte for byte."""
        self.batches_copied += batches

    def add_converted(self, records: int, *, headers: int = 0, timestamps: int = 0) -> None:
        """Count records that were written again, and what of them the format cannot hold."""
        self.records_converted += records
        self.headers_lost += headers
        self.timestamps_lost += timestamps

    def add_below_start(self, records: int) -> None:
        """Count records before the requested offset."""
        self.records_below_start += records

    def add_dropped(self, *, is_control: bool) -> None:
        """Count a batch that old formats do not have: a control batch, or one without records."""
        self.control_batches_dropped += is_control
        self.empty_batches_dropped += not is_control

    def add_losses(self, header: BatchHeader) -> None:
        """Count the fields of a batch header that old formats do not have."""
        self.producer_states_lost += header.producer_id >= 0
        self.transactional_flags_lost += header.is_transactional
        self.leader_epochs_lost += header.partition_leader_epoch >= 0
        self.delete_horizons_lost += header.delete_horizon_ms is not None

    def add(self, other: ConversionReport) -> None:
        """Add the counts of another report to this one."""
        for name in _NAMES:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def losses(self) -> dict[str, int]:
        """Return the losses by attribute; an empty dict if nothing was lost."""
        return {name: count for name in _LOSSES if (count := getattr(self, name))}

    def as_dict(self) -> dict[str, Any]:
        """Return all counts by attribute."""
        counts = {name: getattr(self, name) for name in _NAMES}
        for name in ("source_bytes", "result_bytes"):
            counts[name] = getattr(self, name)
            counts[f"{name}_by_codec"] = dict(counts[f"{name}_by_codec"])
        return counts


_NAMES = tuple(one.name for one in fields(ConversionReport))
_LOSSES = tuple(name for name in _NAMES if name.endswith("_lost"))
