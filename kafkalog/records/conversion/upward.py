"""Batches of any format to v2, and v2 to another codec.

A wrapper becomes one batch. Plain messages are merged, up to a size, into batches of consecutive
messages. Offsets are kept with their holes: base offset and last offset of a batch are those of its
records (a wrapper's last offset is the wrapper's). Timestamps are kept, also where there is none
(-1), and so is their type; v0, which has none, becomes CreateTime. There is no leader epoch and no
producer (-1).

A v2 batch changes its codec and nothing else. Control batches and batches without records, and
those that have the wanted codec already, are copied byte for byte.

Records go from columns to columns: nothing is made for a single one.

Thread-safety: none; one caller at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from typing_extensions import Buffer

from kafkalog._core.builder import BatchBuilder
from kafkalog._core.columns import RecordColumns
from kafkalog._core.recompress import replace_payload
from kafkalog.layout import LOG_APPEND_TIME
from kafkalog.records.batch_view import BatchView
from kafkalog.records.codecs import Codec, compress_if_smaller
from kafkalog.records.conversion.conversion_units import ConversionUnit, FileRecords
from kafkalog.records.conversion.decoding import Decoder
from kafkalog.records.conversion.options import ConversionOptions
from kafkalog.records.conversion.report import ConversionReport

__all__ = ["UpwardConverter"]

_NO_LIMIT: Final = 2**31 - 1


class UpwardConverter:
    """
    Converts unit after unit to v2.

    Args:
        options: the target format.
        report: counts what is done.
    """

    def __init__(self, options: ConversionOptions, report: ConversionReport) -> None:
        self._options = options
        self._report = report
        self._decoder = Decoder(options.limit_bytes)
        self._builder = BatchBuilder()
        self._base_offset = 0
        self._append_time: int | None = None

    def convert(self, run: FileRecords, unit: ConversionUnit) -> Iterator[Buffer]:
        """
        Yield the v2 batches that are complete; plain messages wait for more of them.

        Call `finish` before a unit of another kind.
        """
        if unit.is_plain:
            yield from self._merge(run, unit)
            return
        view = BatchView(
            run.data[unit.start : unit.end],
            path=run.path,
            position=run.position + unit.start,
        )
        if unit.magic < 2:
            yield from self._unwrap(view)
        else:
            yield self._recompress(view)

    def finish(self) -> Iterator[Buffer]:
        """Yield the batch under construction, if there is one."""
        if self._builder.count:
            yield self._close(self._options.codec or Codec.NONE)

    def abandon(self) -> None:
        """Remove the batch under construction, after an error."""
        self._builder.reset()

    def _merge(self, run: FileRecords, unit: ConversionUnit) -> Iterator[Buffer]:
        if self._append_time != unit.append_time_ms:
            yield from self.finish()
        for columns in self._decoder.plain(run, unit):
            self._report.add_converted(len(columns))
            yield from self._add(
                columns,
                run.data,
                unit.append_time_ms,
                self._options.codec or Codec.NONE,
                self._options.batch_bytes,
            )

    def _unwrap(self, view: BatchView) -> Iterator[Buffer]:
        header = view.header
        columns, buffer = self._decoder.batch(view)
        self._report.add_converted(len(columns))
        append_time = header.max_timestamp if header.timestamp_type == LOG_APPEND_TIME else None
        codec = view.codec if self._options.codec is None else self._options.codec
        # A wrapper at offset 0 may hold later ones: old producers counted from 0 and sent no more.
        last_offset = max(header.last_offset, int(columns.offset[-1]))
        yield from self._add(columns, buffer, append_time, codec, _NO_LIMIT)
        yield self._close(codec, last_offset=last_offset)

    def _add(
        self,
        columns: RecordColumns,
        buffer: Buffer,
        append_time: int | None,
        codec: Codec,
        size_limit: int,
    ) -> Iterator[Buffer]:
        """Add all rows to batches; the last batch stays under construction."""
        builder = self._builder
        start, count = 0, len(columns)
        while start < count:
            if not builder.count:
                self._base_offset = int(columns.offset[start])
                self._append_time = append_time
            start += builder.extend_decoded(
                buffer, columns, start, base_offset=self._base_offset, size_limit=size_limit
            )
            if start < count:
                yield self._close(codec)

    def _close(self, codec: Codec, last_offset: int | None = None) -> Buffer:
        builder = self._builder
        codec, payload = compress_if_smaller(
            codec, builder.payload(), self._options.level_of(codec)
        )
        append_time = self._append_time
        batch = builder.finish(
            base_offset=self._base_offset,
            codec=int(codec),
            payload=payload,
            timestamp_type=0 if append_time is None else LOG_APPEND_TIME,
            max_timestamp=append_time,
            last_offset_delta=None if last_offset is None else last_offset - self._base_offset,
        )
        builder.reset()
        return batch

    def _recompress(self, view: BatchView) -> Buffer:
        header, options = view.header, self._options
        same = options.codec is None or (options.codec == header.codec and options.level is None)
        if same or header.is_control or header.record_count == 0:
            self._report.add_copied()
            return view.data
        assert options.codec is not None
        buffer, start, end = view.payload(options.limit_bytes)
        plain = memoryview(buffer)[start:end]
        codec, payload = compress_if_smaller(options.codec, plain, options.level)
        if codec == header.codec == Codec.NONE:
            self._report.add_copied()
            return view.data
        self._report.add_converted(header.record_count)
        return replace_payload(view.data, int(codec), plain if payload is None else payload)
