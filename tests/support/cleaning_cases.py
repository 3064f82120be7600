"""Logs to be cleaned, as hypothesis draws them: keys that repeat, tombstones, transactions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from kafkalog._core.assign_offsets import assign_offsets
from kafkalog._core.builder import BatchBuilder
from kafkalog.indexes.transaction_index import AbortedTransaction
from kafkalog.records.codecs import Codec, compress
from kafkalog.records.control import encode_marker
from tests.support.reference_messages import LOG_APPEND_TIME, Message, encode_set

__all__ = ["DirtyLog", "add_records", "dirty_logs"]

Fields = tuple[bytes | None, bytes | None, int]
CODECS = (Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD)


@dataclass
class DirtyLog:
    """
    Batches back to back, and what belongs to them.

    Attributes:
        batches: their bytes; `ends`: the next offset after each.
        aborted: transactions that were.
        lasts: of each producer, the last offset of its last batch of data.
    """

    batches: list[bytes] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    aborted: list[AbortedTransaction] = field(default_factory=list)
    lasts: dict[int, int] = field(default_factory=dict)
    _first_offsets: dict[int, int] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """The next offset after the last batch."""
        return self.ends[-1] if self.ends else 0

    @property
    def data(self) -> bytes:
        """All batches."""
        return b"".join(self.batches)

    def add(self, data: bytes, last_offset: int) -> None:
        """Add a batch."""
        self.batches.append(data)
        self.ends.append(last_offset + 1)

    def add_data(
        self,
        records: Sequence[Fields],
        deltas: Sequence[int],
        *,
        codec: Codec,
        append_time: bool,
        horizon: int | None,
        producer_id: int,
        transactional: bool,
        hole: int,
    ) -> None:
        """Add a batch of data, which may have lost records before; `deltas` rise."""
        builder = BatchBuilder()
        builder.reset(base_timestamp=horizon)
        for delta, (key, value, timestamp) in zip(deltas, records, strict=True):
            builder.append_at(delta, key, value, timestamp)
        payload = builder.payload()
        base_offset = self.end + hole
        last_delta = deltas[-1] + (hole if horizon is not None else 0)
        has_records = bool(records)
        data = builder.finish(
            base_offset=base_offset,
            partition_leader_epoch=3,
            codec=int(codec) if has_records else 0,
            payload=compress(codec, payload) if has_records and codec else None,
            timestamp_type=int(append_time),
            max_timestamp=2000 if append_time else None,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=base_offset if producer_id >= 0 else -1,
            transactional=transactional,
            delete_horizon=horizon is not None,
            last_offset_delta=last_delta,
        )
        self.add(bytes(data), base_offset + last_delta)
        if producer_id >= 0:
            self.lasts[producer_id] = base_offset + last_delta
        if transactional:
            self._first_offsets.setdefault(producer_id, base_offset)

    def add_old(
        self, records: Sequence[Fields], magic: int, codec: Codec, *, append_time: bool
    ) -> None:
        """Add plain messages, or a wrapper of them."""
        messages = [
            Message(self.end + i, magic, 0, timestamp if magic else -1, key, value)
            for i, (key, value, timestamp) in enumerate(records)
        ]
        arguments = {"append_time": 2000, "timestamp_type": int(append_time and magic > 0)}
        assert LOG_APPEND_TIME == 1
        if codec is Codec.NONE:
            for message in messages:
                self.add(encode_set([message], **arguments), message.offset)
        else:
            self.add(encode_set(messages, codec=int(codec), **arguments), messages[-1].offset)

    def end_transaction(self, producer_id: int, horizon: int | None, *, abort: bool) -> None:
        """Add a marker, of a transaction that may have nothing left of it."""
        offset = self.end
        marker = bytearray(
            encode_marker(producer_id, 0, 7, 1500, is_abort=abort)
            if horizon is None
            else _marker_with_horizon(producer_id, horizon, abort=abort)
        )
        assign_offsets(marker, base_offset=offset)
        self.add(bytes(marker), offset)
        first_offset = self._first_offsets.pop(producer_id, None)
        if abort and first_offset is not None:
            self.aborted.append(AbortedTransaction(producer_id, first_offset, offset, offset + 1))


def _marker_with_horizon(producer_id: int, horizon: int, *, abort: bool) -> bytes:
    """Return a marker that already has a delete horizon."""
    builder = BatchBuilder()
    builder.reset(base_timestamp=horizon)
    builder.append(bytes([0, 0, 0, not abort]), bytes([0, 0, 0, 0, 0, 7]), 1500)
    return bytes(
        builder.finish(
            producer_id=producer_id,
            producer_epoch=0,
            transactional=True,
            control=True,
            delete_horizon=True,
        )
    )


def add_records(log: DirtyLog, *records: tuple[bytes | None, bytes | None], **header: Any) -> None:
    """Add a batch of data with records of consecutive offsets; `header` as for `add_data`."""
    settings = {
        "codec": Codec.NONE,
        "append_time": False,
        "horizon": None,
        "producer_id": -1,
        "transactional": False,
        "hole": 0,
    } | header
    rows = [(key, value, 100 + delta) for delta, (key, value) in enumerate(records)]
    log.add_data(rows, list(range(len(rows))), **settings)


KEYS = st.sampled_from([None, b"", b"a", b"b", b"c", b"d" * 40])
VALUES = st.one_of(st.none(), st.binary(max_size=4), st.just(b"v" * 80))
RECORD_LISTS = st.lists(st.tuples(KEYS, VALUES, st.integers(-1, 3000)), min_size=1, max_size=6)
HORIZONS = st.one_of(st.none(), st.sampled_from([500, 999, 1000, 1001, 5000]))


@st.composite
def dirty_logs(draw: st.DrawFn, *, old_formats: bool = True) -> DirtyLog:
    """Draw a log: perhaps messages of old formats, then batches of any producers."""
    log = DirtyLog()
    for _ in range(draw(st.integers(0, 4)) if old_formats else 0):
        magic = draw(st.integers(0, 1))
        codec = draw(st.sampled_from([Codec.NONE, Codec.GZIP]))
        log.add_old(draw(RECORD_LISTS), magic, codec, append_time=draw(st.booleans()))
    kinds = st.sampled_from(["plain", "idempotent", "transaction", "transaction", "end", "end"])
    for _ in range(draw(st.integers(1, 14))):
        kind = draw(kinds)
        producer_id = draw(st.integers(1, 2))
        if kind == "end":
            log.end_transaction(producer_id, draw(HORIZONS), abort=draw(st.booleans()))
            continue
        producer_id = {"plain": -1, "idempotent": 9}.get(kind, producer_id)
        records = draw(RECORD_LISTS)
        deltas = draw(
            st.lists(
                st.integers(0, 12), min_size=len(records), max_size=len(records), unique=True
            ).map(sorted)
        )
        log.add_data(
            records,
            deltas,
            codec=draw(st.sampled_from(CODECS)),
            append_time=draw(st.booleans()),
            horizon=draw(HORIZONS),
            producer_id=producer_id,
            transactional=kind == "transaction",
            hole=draw(st.integers(0, 2)),
        )
    for producer_id in (1, 2):
        # Only decided transactions are ever cleaned.
        log.end_transaction(producer_id, None, abort=draw(st.booleans()))
    return log
