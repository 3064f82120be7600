"""Contents of a directory, by the slow reference codecs: a list of rows, and their visibility.

Nothing of the engine is used here. A row is one record with the fields of its batch; control
records are not rows. Aborted transactions are found from the batches and markers, first to last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from tests.support import reference, reference_messages, reference_records
from tests.support import reference_codecs as codecs
from tests.support.reference import Header

__all__ = ["Isolation", "Row", "Transaction", "Truth", "rows_of_bytes", "truth_of"]

Isolation = Literal["log_end", "read_uncommitted", "read_committed"]
HeaderPair = tuple[bytes, bytes | None]


class Row(NamedTuple):
    """One record; numbers that stand for none are -1, the keys of headers are bytes."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[HeaderPair, ...] = ()
    producer_id: int = -1
    producer_epoch: int = -1
    sequence: int = -1
    leader_epoch: int = -1


@dataclass
class Transaction:
    """A transaction of a producer: its first offset, its marker's, and the offsets of its rows."""

    first_offset: int
    marker_offset: int | None = None
    is_aborted: bool = False
    offsets: list[int] = field(default_factory=list)


@dataclass
class Truth:
    """
    Contents of a directory.

    Attributes:
        rows: every record, in the order of the log.
        control_rows: every control record, which readers do not see.
        headers: of every batch and plain message, in the same order.
        transactions: in the order of their ends, those that have none last.
        end_offset: what the next record gets.
    """

    rows: list[Row] = field(default_factory=list)
    control_rows: list[Row] = field(default_factory=list)
    headers: list[Header] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    end_offset: int = 0

    def limit(self, isolation: Isolation, start: int, high_watermark: int | None) -> int:
        """
        Return how far a reader may go in a log that begins at `start`.

        The high watermark was set when the ends of all transactions were known.
        """
        limit = self.end_offset
        if high_watermark is not None and isolation != "log_end":
            limit = high_watermark
        if isolation == "read_committed":
            for each in self.transactions:
                if each.marker_offset is None:
                    limit = min(limit, max(each.first_offset, start))
        return limit

    def whole_below(self, limit: int) -> int:
        """Return where the last batch ends that does not reach a limit."""
        ends = [header.last_offset + 1 for header in self.headers]
        return max((end for end in ends if end <= limit), default=0)

    def visible(
        self, isolation: Isolation, start: int, end: int, high_watermark: int | None = None
    ) -> list[Row]:
        """Return what a reader from `start` to `end` is given."""
        end = min(end, self.limit(isolation, start, high_watermark))
        hidden: set[int] = set()
        if isolation == "read_committed":
            hidden = {
                offset for each in self.transactions if each.is_aborted for offset in each.offsets
            }
        return [row for row in self.rows if start <= row.offset < end and row.offset not in hidden]


def rows_of_bytes(data: bytes) -> list[Row]:
    """Return the records of whole batches and messages back to back, in any format and codec."""
    walk = reference.scan_batches(data, check_order=False)
    assert (walk.status, walk.position) == ("OK", len(data))
    rows = []
    for start, header in walk.batches:
        entry = data[start : start + header.size_bytes]
        rows += [] if is_control(header) else rows_of_entry(entry, header)
    return rows


def is_control(header: Header) -> bool:
    """Return whether a batch holds control records."""
    return header.magic == 2 and bool(header.attributes & 32)


def rows_of_entry(entry: bytes, header: Header) -> list[Row]:
    """Return the records of one batch or message."""
    if header.magic < 2:
        return [
            Row(each.offset, each.timestamp, each.timestamp_type, each.key, each.value)
            for each in reference_messages.decode_entry(entry, header)
        ]
    return [
        Row(
            each.offset,
            each.timestamp,
            header.attributes >> 3 & 1,
            each.entry.key,
            each.entry.value,
            each.entry.headers,
            header.producer_id,
            header.producer_epoch,
            _sequence(header, each.offset),
            header.partition_leader_epoch,
        )
        for each in reference_records.decode(_payload(entry, header), header)
    ]


def _payload(entry: bytes, header: Header) -> bytes:
    codec = header.attributes & 7
    return entry[61:] if codec == codecs.NONE else codecs.decompress(codec, entry[61:])


def _sequence(header: Header, offset: int) -> int:
    if header.base_sequence < 0:
        return -1
    return (header.base_sequence + offset - header.base_offset) % 2**31


def truth_of(directory: Path) -> Truth:
    """Return what the segments of a directory hold, by the names and bytes of their files."""
    paths = sorted(directory.glob("*.log"))
    return truth_of_segments({int(path.stem): path.read_bytes() for path in paths})


def truth_of_segments(segments: Mapping[int, bytes]) -> Truth:
    """Return what segments hold, given by their base offsets."""
    truth = Truth()
    opened: dict[int, Transaction] = {}
    for base_offset, data in sorted(segments.items()):
        walk = reference.scan_batches(data, next_offset=base_offset)
        assert (walk.status, walk.position) == ("OK", len(data))
        for start, header in walk.batches:
            entry = data[start : start + header.size_bytes]
            truth.headers.append(header)
            rows = rows_of_entry(entry, header)
            if is_control(header):
                truth.control_rows += rows
                _end(truth, opened, rows[0])
                continue
            truth.rows += rows
            if header.magic == 2 and header.attributes & 16:
                first = Transaction(header.base_offset)
                transaction = opened.setdefault(header.producer_id, first)
                transaction.offsets += [row.offset for row in rows]
        truth.end_offset = max(truth.end_offset, walk.next_offset, base_offset)
    truth.transactions += opened.values()
    return truth


def _end(truth: Truth, opened: dict[int, Transaction], marker: Row) -> None:
    """Take in a marker; it may end a transaction whose batches have all gone."""
    transaction = opened.pop(marker.producer_id, None)
    if transaction is not None:
        transaction.marker_offset = marker.offset
        transaction.is_aborted = (marker.key or b"")[2:4] == b"\0\0"
        truth.transactions.append(transaction)
