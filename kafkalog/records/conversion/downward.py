"""Batches of v2 and v1 to an older format, as a broker converts them for consumers of its time.

What is old enough already is copied. Control batches and batches without records are dropped. A
compressed batch becomes one wrapper of the same codec, an uncompressed one a message for each
record; offsets keep their holes. With LogAppendTime every message has the batch's append time.
Headers, producers, transactions, leader epochs and delete horizons have no place in old formats,
nor timestamps in v0; the report counts them.

zstd has no old form: such a batch is refused, unless another codec was asked for.

Thread-safety: none; one caller at a time.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from typing_extensions import Buffer

from kafkalog._core.columns import RecordColumns
from kafkalog._core.message_builder import MessageSetBuilder
from kafkalog.errors import UnsupportedCodecError
from kafkalog.layout import LOG_APPEND_TIME, NO_TIMESTAMP
from kafkalog.records.batch_view import BatchView
from kafkalog.records.codecs import Codec, codec_names, compress, is_codec_of
from kafkalog.records.conversion.conversion_units import ConversionUnit, FileRecords
from kafkalog.records.conversion.decoding import Decoder
from kafkalog.records.conversion.options import ConversionOptions
from kafkalog.records.conversion.report import ConversionReport

__all__ = ["DownwardConverter"]


class DownwardConverter:
    """
    Converts unit after unit to v1 or v0.

    Args:
        options: the target format.
        report: counts what is done and what is lost.
    """

    def __init__(self, options: ConversionOptions, report: ConversionReport) -> None:
        self._options = options
        self._report = report
        self._decoder = Decoder(options.limit_bytes)
        self._builder = MessageSetBuilder(options.magic)

    def convert(self, run: FileRecords, unit: ConversionUnit) -> Iterator[Buffer]:
        """Yield the messages that a unit becomes, whole ones back to back."""
        data = run.data[unit.start : unit.end]
        if unit.magic <= self._options.magic:
            self._report.add_copied(unit.batch_count)
            yield data
        elif unit.is_plain:
            for columns in self._decoder.plain(run, unit):
                yield from self._encode(
                    columns, run.data, self._options.codec or Codec.NONE, unit.append_time_ms
                )
        else:
            yield from self._batch(
                BatchView(data, path=run.path, position=run.position + unit.start)
            )

    def finish(self) -> Iterator[Buffer]:
        """Yield what waits for more: nothing ever does."""
        return iter(())

    def abandon(self) -> None:
        """Do nothing: every unit starts with an empty builder."""

    def _batch(self, view: BatchView) -> Iterator[Buffer]:
        header = view.header
        if header.is_control or header.record_count == 0:
            self._report.add_dropped(is_control=header.is_control)
            return
        codec = self._options.codec
        if codec is None:
            codec = view.codec
            if not is_codec_of(self._options.magic, codec):
                raise UnsupportedCodecError(
                    f"codec must be {codec_names(self._options.magic)} for"
                    f" v{self._options.magic}, got {codec.kafka_name} in the batch at offset"
                    f" {header.base_offset}: choose another codec",
                    path=view.path,
                    position=view.position,
                    base_offset=header.base_offset,
                )
        append_time = header.max_timestamp if header.timestamp_type == LOG_APPEND_TIME else None
        columns, buffer = self._decoder.batch(view)
        drop_below = header.codec == Codec.NONE
        encoded = list(self._encode(columns, buffer, codec, append_time, drop_below=drop_below))
        if encoded:
            self._report.add_losses(header)
        yield from encoded

    def _encode(
        self,
        columns: RecordColumns,
        buffer: Buffer,
        codec: Codec,
        append_time: int | None,
        *,
        drop_below: bool = True,
    ) -> Iterator[Buffer]:
        start = int(np.searchsorted(columns.offset, self._options.first_offset)) * drop_below
        self._report.add_below_start(start)
        count = len(columns) - start
        if count == 0:
            return
        lost = columns.timestamp[start:] != NO_TIMESTAMP
        self._report.add_converted(
            count,
            headers=int(columns.header_count[start:].sum()),
            timestamps=int(lost.sum()) if self._options.magic == 0 else 0,
        )
        columns.header_count[:] = 0
        builder = self._builder
        while start < len(columns):
            base_offset = int(columns.offset[start])
            builder.reset(append_time=append_time)
            # All of them, but for offsets or sizes that no set could hold.
            start += builder.extend_decoded(buffer, columns, start, base_offset=base_offset)
            yield self._message_set(codec, base_offset)

    def _message_set(self, codec: Codec, base_offset: int) -> bytes:
        """Return what was built, as plain messages or as one wrapper."""
        builder = self._builder
        # Copied: a view that a caller keeps would keep the whole memory of the builder.
        if codec is Codec.NONE:
            return bytes(builder.finish_plain(base_offset))
        compressed = compress(
            codec,
            builder.payload(base_offset),
            self._options.level_of(codec),
            magic=self._options.magic,
        )
        return bytes(builder.wrap(codec, compressed, base_offset=base_offset))
