"""Reply to a fetch of an old version: batches converted down, with a size that is promised first.

A fetch of version 0 or 1 knows format v0, one of version 2 or 3 format v1. A broker promises the
size of its answer before it has converted everything, so:

  * the first chunk is one batch (and those before it that were dropped); if it cannot be converted
    the fetch fails at once;
  * promised is the size of the source or of the first chunk, whichever is larger;
  * further chunks are of at most 128 KiB of source batches, at least one;
  * what is too much is cut, as a fetch may always be; what is missing is filled with the beginning
    of one batch that claims to be longer than the answer, which every consumer takes for a cut one;
  * a batch that cannot be converted, after the first chunk, ends the data: the consumer comes back
    for it and then gets the error.

Nothing at all to send is no bytes; a source whose batches were all dropped is 12 bytes of filler,
so that the consumer sees that there was something. (A source without one whole batch goes out as it
is: an old consumer takes it for a fetch size that is too small.)

Thread-safety: none; one caller at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kafkalog.errors import CorruptRecordError, InvalidRecordError
from kafkalog.layout import BATCH_FRAME, RECORD_BATCH_OVERHEAD
from kafkalog.records.batch_view import BatchView
from kafkalog.records.conversion.conversion_units import FileRecords
from kafkalog.records.conversion.convert import Converter
from kafkalog.records.conversion.options import ConversionOptions
from kafkalog.records.conversion.report import ConversionReport

__all__ = ["CHUNK_BYTES", "ConvertedFetch"]

CHUNK_BYTES: Final = 128 * 1024

# The smallest filler is the frame of a batch and nothing else.
_LENGTH_MAX: Final = 2**31 - 1


class ConvertedFetch:
    """
    The answer to an old fetch.

    Args:
        batches: the whole batches of the slice, CRC checked.
        source: the whole slice, which may end in a part of a batch.
        options: target format, and the requested offset.

    Attributes:
        size_bytes: the promised size: `chunks()` gives exactly so many bytes.
        report: what was converted and lost so far.

    Raises:
        UnsupportedCodecError: the first batch is compressed with zstd.
        CorruptRecordError, InvalidRecordError: it cannot be read, or not be represented so.
    """

    def __init__(
        self, batches: Iterator[BatchView], source: memoryview, options: ConversionOptions
    ) -> None:
        self.report = ConversionReport()
        self._batches = batches
        self._converter = Converter(options, report=self.report, check_crc=False)
        self._waiting: BatchView | None = None
        first: bytes | None = None
        seen = False
        for view in batches:
            seen = True
            first = self._convert(view)
            if first:
                break
        if first:
            self.size_bytes = max(len(source), len(first))
        else:
            self.size_bytes = BATCH_FRAME.size if seen else len(source)
        self._first: bytes | None = first if seen else bytes(source)

    def chunks(self) -> Iterator[bytes]:
        """Convert and yield the reply piece by piece; once only."""
        left = self.size_bytes
        piece, self._first = self._first, None
        if piece is None:
            raise ValueError("the chunks of a converted fetch can be taken once")
        while piece and left:
            piece = piece[:left]
            left -= len(piece)
            yield piece
            piece = self._next_chunk() if left else b""
        if left:
            yield _filler(left)

    def read(self) -> bytes:
        """Return the whole answer."""
        return b"".join(self.chunks())

    def _next_chunk(self) -> bytes:
        """Convert the next chunk that gives anything; empty at the end of what can be converted."""
        while True:
            views = self._next_converted()
            if not views:
                return b""
            converted = bytearray()
            for view in views:
                try:
                    converted += self._convert(view)
                except (CorruptRecordError, InvalidRecordError):
                    self._batches = iter(())
                    self._waiting = None
                    return bytes(converted)
            if converted:
                return bytes(converted)

    def _next_converted(self) -> list[BatchView]:
        views: list[BatchView] = []
        size = 0
        while True:
            # A view counts its records for its truth, and of a wrapper that takes decompressing.
            view = self._next_view() if self._waiting is None else self._waiting
            self._waiting = None
            if view is None:
                return views
            size += view.header.size_bytes
            if views and size > CHUNK_BYTES:
                self._waiting = view
                return views
            views.append(view)

    def _next_view(self) -> BatchView | None:
        try:
            return next(self._batches, None)
        except CorruptRecordError:
            # The consumer fetches the damaged batch next, and gets the error then.
            self._batches = iter(())
            return None

    def _convert(self, view: BatchView) -> bytes:
        run = FileRecords(view.data, view.path, view.position)
        # Downwards nothing waits for the next batch.
        return b"".join(self._converter.convert(run))


def _filler(size: int) -> bytes:
    """Return the beginning of a batch that is longer than the answer."""
    length = min(max(size + 1, RECORD_BATCH_OVERHEAD), _LENGTH_MAX)
    return (BATCH_FRAME.pack(-1, length) + bytes(max(size - BATCH_FRAME.size, 0)))[:size]
