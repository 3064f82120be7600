"""Conversion of batches between the formats v0, v1 and v2, in memory, batch by batch.

A conversion up loses nothing; a conversion down loses what the older format cannot hold, and the
report counts it. v2 to v2 with a codec compresses again. `upward` and `downward` describe the
conversion of a batch.

Memory is bounded by one batch decompressed, whatever the size of the log: `convert_runs` takes and
gives an iterator. The result is a run of whole batches with good checksums whose offsets rise as
those of the source did.

Thread-safety: pure functions; a Converter or a generator belongs to one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from typing_extensions import Buffer

from kafkalog._core.header import parse_header
from kafkalog.errors import CorruptRecordError, InvalidRecordError, KafkaLogError
from kafkalog.records.codecs import DEFAULT_LIMIT_BYTES, Codec
from kafkalog.records.conversion.conversion_units import ConversionUnit, FileRecords, UnitWalker
from kafkalog.records.conversion.downward import DownwardConverter
from kafkalog.records.conversion.options import DEFAULT_BATCH_BYTES, ConversionOptions
from kafkalog.records.conversion.report import ConversionReport
from kafkalog.records.conversion.upward import UpwardConverter

__all__ = [
    "ConversionResult",
    "Converter",
    "OnRefused",
    "codec_name",
    "convert_batches",
    "convert_runs",
]

# Called with a refused batch, its unit and the error; returns its replacement.
OnRefused: TypeAlias = Callable[[FileRecords, ConversionUnit, KafkaLogError], Buffer | None]

_CODEC_NAMES: Final = {int(codec): codec.kafka_name for codec in Codec}


@dataclass(frozen=True, slots=True)
class ConversionResult:
    """
    Converted batches.

    Attributes:
        data: the batches back to back; empty where all were dropped.
        report: what was converted, copied, dropped and lost.
    """

    data: bytes
    report: ConversionReport


def convert_batches(
    data: Buffer,
    magic: int,
    *,
    codec: Codec | None = None,
    level: int | None = None,
    first_offset: int = 0,
    batch_bytes: int = DEFAULT_BATCH_BYTES,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
) -> ConversionResult:
    """
    Convert batches of any formats, mixed ones too, to one format.

    Args:
        data: whole batches back to back; every CRC is checked.
        magic: the target format. Batches of an older one are only converted to 2.
        codec: the target codec, None to keep that of each batch.
        level: of the codec; None for its default.
        first_offset: what a fetch asked for: converting to 0 or 1, records below it are left out
            of uncompressed batches, as a broker leaves them out.
        batch_bytes: size, uncompressed, up to which plain messages are merged into one v2 batch.
        limit_bytes: largest size of one batch uncompressed.

    Raises:
        CorruptRecordError: a batch is damaged or cut, or offsets do not rise.
        UnsupportedCodecError: zstd below v2, or the codec's library is missing.
        InvalidRecordError: a record does not fit the other format (a timestamp below -1).
    """
    report = ConversionReport()
    options = ConversionOptions(magic, codec, level, first_offset, batch_bytes, limit_bytes)
    run = FileRecords(memoryview(data).cast("B"))
    converted = b"".join(convert_runs([run], options, report=report))
    return ConversionResult(converted, report)


def convert_runs(
    runs: Iterable[FileRecords],
    options: ConversionOptions,
    *,
    report: ConversionReport | None = None,
    check_crc: bool = True,
    on_refused: OnRefused | None = None,
) -> Iterator[Buffer]:
    """
    Yield converted batches, whole ones, as the runs of a large log come in.

    Args:
        runs: whole batches; offsets rise from run to run.
        options: the target format.
        report, check_crc, on_refused: as for `Converter`.

    Raises:
        As `convert_batches`; what was converted before has been yielded.
    """
    converter = Converter(options, report=report, check_crc=check_crc, on_refused=on_refused)
    for run in runs:
        yield from converter.convert(run)
    yield from converter.finish()


class Converter:
    """
    Converts run after run; what it reuses from batch to batch is made once.

    Args:
        options: the target format.
        report: is kept up to date; a fresh one if None.
        check_crc: False where the caller has checked every CRC.
        on_refused: called with each batch whose records cannot be read or converted, instead of an
            error; it returns the replacement of the batch, None for nothing.
    """

    def __init__(
        self,
        options: ConversionOptions,
        *,
        report: ConversionReport | None = None,
        check_crc: bool = True,
        on_refused: OnRefused | None = None,
    ) -> None:
        self.report = ConversionReport() if report is None else report
        # A message that may be refused must be a separate unit.
        self._walker = UnitWalker(check_crc=check_crc, merge=on_refused is None)
        self._on_refused = on_refused
        self._converter: UpwardConverter | DownwardConverter
        if options.magic == 2:
            self._converter = UpwardConverter(options, self.report)
        else:
            self._converter = DownwardConverter(options, self.report)

    def convert(self, run: FileRecords) -> Iterator[Buffer]:
        """Yield what a run becomes, whole batches; some may wait for the next run."""
        for unit in self._walker.units(run):
            size = unit.end - unit.start
            self.report.add_source(codec_name(unit.codec), size, unit.batch_count)
            if not unit.is_plain:
                yield from self.finish()
            pieces = self._converter.convert(run, unit)
            if self._on_refused is not None:
                pieces = self._replace_refused(run, unit, pieces, self._on_refused)
            yield from self._count_bytes(pieces)

    def finish(self) -> Iterator[Buffer]:
        """Yield what waits."""
        return self._count_bytes(self._converter.finish())

    def _count_bytes(self, pieces: Iterator[Buffer]) -> Iterator[Buffer]:
        for piece in pieces:
            # All batches of a piece have one codec.
            name = codec_name(parse_header(piece).codec)
            self.report.add_result(name, memoryview(piece).nbytes)
            yield piece

    def _replace_refused(
        self,
        run: FileRecords,
        unit: ConversionUnit,
        pieces: Iterator[Buffer],
        on_refused: OnRefused,
    ) -> Iterator[Buffer]:
        try:
            if unit.is_plain:
                # One message. What comes before it is refused had waited, and is whole.
                yield from pieces
            else:
                # All of a batch or nothing: half of it would be neither.
                yield from list(pieces)
        except (CorruptRecordError, InvalidRecordError) as error:
            if not unit.is_plain:
                self._converter.abandon()
            instead = on_refused(run, unit, error)
            if instead is not None:
                yield instead


def codec_name(number: int) -> str:
    """Return the name of codec bits; those that are no codec go by their number."""
    return _CODEC_NAMES.get(number, str(number))
