"""Scan: request for the records of one log or many, evaluated each time it is read.

    scan -> partitions, one after the other -> slices of batches -> rows -> batches of columns

Nothing is read before a consumer asks for it: besides the batches that the consumer keeps, a scan
holds one batch of columns and the decoded rows for it.

Thread-safety: a Scan is immutable, and may be read by several threads at a time; an iterator or a
stream of it belongs to one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

from kafkalog._core.arrow_export import (
    ArrowBatch,
    fields_of_schema,
    schema_capsule,
    stream_capsule,
)
from kafkalog.errors import KafkaLogError, LogClosedError
from kafkalog.log.scan.arrays import ScanArrays, arrays_of, numpy_options
from kafkalog.log.scan.batch_slices import BatchSlice
from kafkalog.log.scan.options import ScanOptions
from kafkalog.log.scan.rows import RowReader
from kafkalog.model import TopicPartition

__all__ = ["LogBatchSlices", "Scan", "Scannable", "ScannedLog"]


class LogBatchSlices(NamedTuple):
    """
    Part of a log for a scan.

    Attributes:
        batch_slices: slices of batches.
        start, end: range of the offsets that are read.
        limit_bytes: largest size of the records of one batch uncompressed.
    """

    batch_slices: Iterator[BatchSlice]
    start: int
    end: int
    limit_bytes: int


class Scannable(Protocol):
    """Log of a scan: `LogReader`."""

    def batch_slices(
        self, start: int | None, end: int | None, options: ScanOptions
    ) -> LogBatchSlices: ...


class ScannedLog(NamedTuple):
    """
    One of the logs of a scan.

    Attributes:
        topic_partition: its name.
        open: returns the reader of the log; called when the scan reaches it.
        start, end: requested offsets, None for those of the log.
    """

    topic_partition: TopicPartition
    open: Callable[[], Scannable]
    start: int | None = None
    end: int | None = None


class Scan:
    """
    Records as columns, for readers of Arrow and for NumPy.

    Made by `Log.scan`, `LogManager.scan` and `kafkalog.scan`. It can be read any number of times,
    each time from the start with the logs as they are then:

    >>> table = pyarrow.table(log.scan(columns=["offset", "value"]))

    Consumers of a stream get an error as text that begins with its name; an iterator raises it.

    Attributes:
        options: options of the scan.
    """

    __slots__ = ("_sources", "options")

    def __init__(self, sources: Iterable[ScannedLog], options: ScanOptions) -> None:
        takes = options.conditions.matches_partition
        self._sources = tuple(each for each in sources if takes(*each.topic_partition))
        self.options = options

    def __repr__(self) -> str:
        names = ", ".join(str(source.topic_partition) for source in self._sources[:3])
        more = f" and {len(self._sources) - 3} more" if len(self._sources) > 3 else ""
        return f"<Scan of {names or 'nothing'}{more}: {', '.join(self.options.columns)}>"

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in their order."""
        return self.options.columns

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions that are read, in their order."""
        return tuple(source.topic_partition for source in self._sources)

    def __arrow_c_schema__(self) -> object:
        """Return the columns' names and types as an `arrow_schema` capsule."""
        return schema_capsule(self.options.fields())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """
        Return the batches as an `arrow_array_stream` capsule, which reads them one by one.

        Args:
            requested_schema: an `arrow_schema` capsule with the scan's columns, of which key and
                value may be `binary`, `large_binary` or `binary_view`, both the same, and the keys
                of headers `utf8` or `binary`. For any other the stream has the scan's own schema.
        """
        scan = self
        if requested_schema is not None:
            scan = Scan(self._sources, self.options.projected(fields_of_schema(requested_schema)))
        return stream_capsule(iter(scan), scan.options.fields())

    def to_numpy(self) -> ScanArrays:
        """
        Return all records as NumPy arrays, by the names of the columns; `n` is their number.

        A column of numbers is one array of shape (n,): `offset` and `timestamp` int64 (ms; -1 for
        none, as in all columns that may have none), `timestamp_type` and `partition` int32,
        `producer_id` int64, `producer_epoch` int16, `sequence` and `leader_epoch` int32.

        `key` and `value` are a BytesArray: `data`, uint8 of shape (bytes,); `offsets`, int64 of
        shape (n + 1,), the edges of the cells in it; `is_null`, bool of shape (n,), None if no cell
        is null. There are no arrays of `headers` and `topic`: a scan without named columns leaves
        these two out.

        All records are in memory at once. The arrays are read-only, without a further copy.

        Raises:
            ValueError: the scan has a column without an array.
            KafkaLogError: as for iteration; nothing is returned then.
        """
        options = numpy_options(self.options)
        return arrays_of(list(Scan(self._sources, options)), options.columns)

    def __iter__(self) -> Iterator[ArrowBatch]:
        """
        Yield the batches of columns, as `pyarrow.record_batch` takes them.

        Raises:
            OffsetOutOfRangeError: a log does not have the requested start offset.
            CorruptRecordError: at damage, after the records before it, unless it is skipped.
            InvalidRecordError: the key of a header is not UTF-8.
            LogClosedError: a log was closed.
        """
        reader = RowReader(self.options)
        try:
            for source in self._sources:
                log = source.open()
                found = log.batch_slices(source.start, source.end, self.options)
                yield from reader.read(
                    found.batch_slices,
                    found.start,
                    found.end,
                    topic=source.topic_partition.topic,
                    partition=source.topic_partition.partition,
                    limit_bytes=found.limit_bytes,
                )
        except LogClosedError:
            raise
        except KafkaLogError:
            # The records before the damage, before its error.
            yield from reader.flush()
            raise
        yield from reader.flush()
