"""Estimate of the size of a log with each codec, measured on samples; nothing is written.

Samples are slices at evenly spaced offsets. Each is converted to v2 as by a conversion, without a
codec; the records of its batches are then compressed and decompressed with every codec, and timed.
Sizes are good estimates if the samples are like the rest of the log; speeds are those of this
machine at this time, one thread, and of the codec alone.

Thread-safety: pure functions; as for reading.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Final

from kafkalog._engine.fetch_data import FetchData
from kafkalog.config import LogConfig
from kafkalog.errors import UnsupportedCodecError
from kafkalog.files.filesystem import FileSystem
from kafkalog.layout import RECORD_BATCH_OVERHEAD
from kafkalog.log.log import Log
from kafkalog.log.opening import open_log
from kafkalog.records.codecs import Codec, compress, decompress
from kafkalog.records.conversion.conversion_units import FileRecords
from kafkalog.records.conversion.convert import convert_runs
from kafkalog.records.conversion.options import ConversionOptions

__all__ = ["CodecEstimate", "LogEstimate", "estimate_codecs"]

DEFAULT_SAMPLES: Final = 64
DEFAULT_SAMPLE_BYTES: Final = 256 * 1024

_NANOSECONDS: Final = 1e9


@dataclass(frozen=True, slots=True)
class CodecEstimate:
    """
    Estimate for one codec.

    Attributes:
        codec, level: the codec and its level; None for its default.
        result_bytes: size of the samples in v2 with this codec.
        compress_bytes_per_s, decompress_bytes_per_s: uncompressed bytes a second; 0 for no codec.
        problem: why it could not be measured, else None.
    """

    codec: Codec
    level: int | None
    result_bytes: int
    compress_bytes_per_s: float
    decompress_bytes_per_s: float
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class LogEstimate:
    """
    Estimates for a log.

    Attributes:
        log_bytes: size of all segments.
        sampled_bytes: current size of the samples.
        uncompressed_bytes: their size in v2 without a codec.
        sample_count: number of samples.
        codecs: one estimate for each codec, in the requested order.
    """

    log_bytes: int
    sampled_bytes: int
    uncompressed_bytes: int
    sample_count: int
    codecs: tuple[CodecEstimate, ...]

    def ratio(self, estimate: CodecEstimate) -> float:
        """Return the size with a codec as a ratio of the current size."""
        return estimate.result_bytes / self.sampled_bytes if self.sampled_bytes else 1.0

    def expected_bytes(self, estimate: CodecEstimate) -> int:
        """Return the size that the whole log would have."""
        return round(self.log_bytes * self.ratio(estimate))


def estimate_codecs(
    source: str | PathLike[str],
    *,
    codecs: Sequence[Codec] = tuple(Codec),
    level: int | None = None,
    samples: int = DEFAULT_SAMPLES,
    sample_bytes: int = DEFAULT_SAMPLE_BYTES,
    config: LogConfig | None = None,
    filesystem: FileSystem | None = None,
    timer: Callable[[], int] = time.perf_counter_ns,
) -> LogEstimate:
    """
    Measure codecs on samples of a log.

    Args:
        source: the partition directory, which is only read.
        codecs: the codecs.
        level: level of a single codec; None for the default of each.
        samples: largest number of samples; `sample_bytes`: size of each, at least one batch.
        config: limits for reading; Kafka's defaults if None.
        filesystem: that of the machine if None.
        timer: returns nanoseconds of a monotonic clock.

    Raises:
        CorruptRecordError: a sample is in a corrupt range.
    """
    with open_log(source, config=config, read_only=True, filesystem=filesystem) as log:
        taken = _samples(log, samples, sample_bytes)
        payloads: list[bytes] = []
        sampled = 0
        for sample in taken:
            size, records = _payloads(sample, log.config)
            sampled += size
            payloads += records
        log_bytes = sum(segment.size_bytes for segment in log.segments())
    plain = sum(len(payload) + RECORD_BATCH_OVERHEAD for payload in payloads)
    measured = tuple(_measure(codec, level, payloads, timer) for codec in codecs)
    return LogEstimate(log_bytes, sampled, plain, len(taken), measured)


def _samples(log: Log, count: int, size: int) -> list[FetchData]:
    """Return slices at evenly spaced offsets that do not overlap; all of a small log."""
    start, end = log.log_start_offset, log.log_end_offset
    step = max((end - start) // max(count, 1), 1)
    taken: list[FetchData] = []
    position = start
    while position < end:
        sample = log.read(position, max_bytes=size)
        if len(sample) == 0:
            break
        taken.append(sample)
        position = max(sample.next_offset, position + step)
    return taken


def _payloads(sample: FetchData, config: LogConfig) -> tuple[int, list[bytes]]:
    """Return the bytes of a sample's whole batches, and their records in v2."""
    runs = [FileRecords(view.data, view.path, view.position) for view in sample.batches()]
    options = ConversionOptions(
        2,
        Codec.NONE,
        batch_bytes=config.append_batch_bytes,
        limit_bytes=config.decompressed_max_bytes,
    )
    payloads = [
        bytes(memoryview(batch)[RECORD_BATCH_OVERHEAD:])
        for batch in convert_runs(runs, options, check_crc=False)
    ]
    return sum(len(run.data) for run in runs), payloads


def _measure(
    codec: Codec, level: int | None, payloads: list[bytes], timer: Callable[[], int]
) -> CodecEstimate:
    headers = RECORD_BATCH_OVERHEAD * len(payloads)
    total = sum(map(len, payloads))
    if codec is Codec.NONE:
        return CodecEstimate(codec, None, headers + total, 0.0, 0.0)
    try:
        started = timer()
        compressed = [compress(codec, payload, level) for payload in payloads]
        between = timer()
        for data, payload in zip(compressed, payloads, strict=True):
            decompress(codec, data, limit_bytes=max(len(payload), 1))
        ended = timer()
    except UnsupportedCodecError as error:
        return CodecEstimate(codec, level, 0, 0.0, 0.0, str(error))
    # As in a conversion: a payload that does not become smaller stays uncompressed.
    kept = sum(
        min(len(data), len(payload)) for data, payload in zip(compressed, payloads, strict=True)
    )
    return CodecEstimate(
        codec,
        level,
        headers + kept,
        _speed(total, between - started),
        _speed(total, ended - between),
    )


def _speed(size: int, nanoseconds: int) -> float:
    return size * _NANOSECONDS / nanoseconds if nanoseconds > 0 else 0.0
