"""The options of reading, in a batch or a stream.

Thread-safety: immutable plain data; it pickles, so that it goes from the driver to the workers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from kafkalog.files.names import is_topic_name
from kafkalog.spark.errors import ErrorCode, KafkaLogSparkError
from kafkalog.spark.options.option import invalid, parse_object
from kafkalog.spark.options.parsed_options import ParsedOptions
from kafkalog.spark.options.ranges import (
    EARLIEST,
    LATEST,
    OffsetSpec,
    Position,
    parse_assignment,
    parse_offset_word,
    parse_offsets,
    parse_partition_timestamps,
    parse_timestamp,
)

__all__ = ["ReadOptions", "StreamLimits", "TopicSelection"]

View = Literal["records", "batches", "segments", "partitions", "verify"]
OnDataLoss = Literal["fail", "earliest", "latest"]
Mode = Literal["FAILFAST", "PERMISSIVE", "DROPMALFORMED"]


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """
    Selection of partitions.

    Attributes:
        kind: of the selection, `all` if there is none.
        topics: by name.
        pattern: a regular expression for the whole name of a topic.
        partitions: single ones.
        has_internal: True if Kafka's internal topics are selected without being named.
    """

    kind: Literal["all", "subscribe", "pattern", "assign"] = "all"
    topics: tuple[str, ...] = ()
    pattern: str = ""
    partitions: tuple[tuple[str, int], ...] = ()
    has_internal: bool = False

    def matches_topic(self, topic: str) -> bool:
        """Return True if partitions of a topic may be selected."""
        match self.kind:
            case "all":
                return True
            case "subscribe":
                return topic in self.topics
            case "pattern":
                return re.fullmatch(self.pattern, topic) is not None
            case "assign":
                return any(topic == each for each, _ in self.partitions)

    def takes(self, topic: str, partition: int) -> bool:
        """Return True if a partition is selected."""
        if self.kind == "assign":
            return (topic, partition) in self.partitions
        return self.matches_topic(topic)


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Limits of a micro-batch; None for no limit."""

    max_offsets_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60_000


_FROM_EARLIEST: Final = OffsetSpec("startingOffsets", EARLIEST)
_TO_LATEST: Final = OffsetSpec("endingOffsets", LATEST)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """
    The options of a batch read or a stream, checked.

    Attributes:
        paths: data directories, or directories of single partitions.
        topics: selection of partitions.
        starting, ending: start and end; a stream has no end.
        limits, group_id: of a stream.
        ignored: the ignored options, in words.

    The others are named as the options in docs/spark-options.md; times are in ms, sizes in bytes.
    """

    paths: tuple[str, ...]
    streaming: bool = False
    topics: TopicSelection = TopicSelection()
    starting: OffsetSpec = _FROM_EARLIEST
    ending: OffsetSpec = _TO_LATEST
    isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    view: View = "records"
    include_headers: bool = False
    columns: tuple[str, ...] | None = None
    filter_pushdown: Literal["false", "auto", "true"] = "false"
    on_data_loss: OnDataLoss = "fail"
    mode: Mode = "FAILFAST"
    corrupt_column: str = "_corrupt_record"
    check_crcs: bool = True
    max_batch_bytes: int = 256 * 1024**2
    retries: int = 3
    split_bytes: int = 256 * 1024**2
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    arrow_batch_bytes: int = 4 * 1024**2
    arrow_batch_rows: int = 65536
    limits: StreamLimits = StreamLimits()
    group_id: str | None = None
    ignored: tuple[str, ...] = ()

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool = False) -> ReadOptions:
        """
        Return the checked options.

        Args:
            options: name to text, in any case.
            streaming: True for a stream.

        Raises:
            KafkaLogSparkError: OPTION_MISSING, OPTION_UNKNOWN, OPTION_INVALID, OPTION_CONFLICT,
                OFFSET_INVALID, UNSUPPORTED.
        """
        parsed = ParsedOptions(options, "stream" if streaming else "batch")
        view = parsed.get("view")
        if streaming and view != "records":
            raise KafkaLogSparkError(
                ErrorCode.OPTION_CONFLICT, f"a stream has records, no {view}", option="view"
            )
        return cls(
            paths=parsed.paths(),
            streaming=streaming,
            topics=_selection(parsed),
            starting=_starting(parsed, streaming=streaming),
            ending=_TO_LATEST if streaming else _ending(parsed),
            isolation=parsed.get("isolationLevel"),
            view=view,
            include_headers=parsed.get("includeHeaders"),
            columns=parsed.get("columns"),
            filter_pushdown="false" if streaming else parsed.get("filterPushdown"),
            on_data_loss=_on_data_loss(parsed),
            mode=parsed.get("mode"),
            corrupt_column=parsed.get("columnNameOfCorruptRecord"),
            check_crcs=parsed.get("checkCrcs"),
            max_batch_bytes=parsed.get("maxBatchBytes"),
            retries=parsed.get("io.retries"),
            split_bytes=parsed.get("splitBytes"),
            min_partitions=parsed.get("minPartitions"),
            max_records_per_partition=parsed.get("maxRecordsPerPartition"),
            arrow_batch_bytes=parsed.get("arrowBatchBytes"),
            arrow_batch_rows=parsed.get("arrowBatchRows"),
            limits=_limits(parsed) if streaming else StreamLimits(),
            group_id=parsed.get("groupId") if streaming else None,
            ignored=parsed.ignored,
        )


def _selection(parsed: ParsedOptions) -> TopicSelection:
    name = parsed.one_of("subscribe", "subscribePattern", "assign")
    if name is None:
        return TopicSelection()
    value = parsed.get(name)
    if name == "assign":
        return TopicSelection("assign", partitions=parse_assignment(name, value))
    if name == "subscribe":
        for topic in value:
            if not is_topic_name(topic):
                raise invalid(name, topic, "the name of a topic")
        return TopicSelection("subscribe", topics=value)
    try:
        re.compile(value)
    except re.error as error:
        raise invalid(name, value, f"a regular expression of Python's: {error}") from error
    return TopicSelection("pattern", pattern=value)


def _starting(parsed: ParsedOptions, *, streaming: bool) -> OffsetSpec:
    default = LATEST if streaming else EARLIEST
    spec = _bound(parsed, "starting", default, None if streaming else LATEST)
    strategy = parsed.get("startingOffsetsByTimestampStrategy")
    return OffsetSpec(spec.option, spec.default, spec.partitions, strategy)


def _ending(parsed: ParsedOptions) -> OffsetSpec:
    # If no record is as late, all records are before it.
    spec = _bound(parsed, "ending", LATEST, EARLIEST)
    return OffsetSpec(spec.option, spec.default, spec.partitions, "latest")


_OFFSETS: Final = "earliest, latest, latest-100 or a JSON object of offsets"


def _bound(
    parsed: ParsedOptions, end: str, default: Position, forbidden: Position | None
) -> OffsetSpec:
    """Return the start or the end, by the given option of highest precedence."""
    name = f"{end}Timestamp"
    if name in parsed:
        return OffsetSpec(name, parse_timestamp(name, parsed.get(name)))
    name = f"{end}OffsetsByTimestamp"
    if name in parsed:
        return OffsetSpec(name, None, parse_partition_timestamps(name, parsed.get(name)))
    name = f"{end}Offsets"
    if name not in parsed:
        return OffsetSpec(name, default)
    text: str = parsed.get(name)
    position = parse_offset_word(text)
    if position is not None:
        if position == forbidden:
            raise invalid(
                name, text, f"something else in a batch: {text} cannot be the {end} point", _INVALID
            )
        return OffsetSpec(name, position)
    value: dict[str, Any] | None = parse_object(text)
    if value is None:
        raise invalid(name, text, _OFFSETS, _INVALID)
    return OffsetSpec(name, None, parse_offsets(name, value, forbidden))


_INVALID: Final = ErrorCode.OFFSET_INVALID


def _on_data_loss(parsed: ParsedOptions) -> OnDataLoss:
    fails: bool = parsed.get("failOnDataLoss")
    if "onDataLoss" not in parsed:
        return "fail" if fails else "earliest"
    mode: OnDataLoss = parsed.get("onDataLoss")
    if "failOnDataLoss" in parsed and fails != (mode == "fail"):
        raise KafkaLogSparkError(
            ErrorCode.OPTION_CONFLICT,
            f"failOnDataLoss = {str(fails).lower()} contradicts onDataLoss = {mode}",
            options=["failOnDataLoss", "onDataLoss"],
        )
    return mode


def _limits(parsed: ParsedOptions) -> StreamLimits:
    limits = StreamLimits(
        max_offsets_per_trigger=parsed.get("maxOffsetsPerTrigger"),
        max_bytes_per_trigger=parsed.get("maxBytesPerTrigger"),
        min_offsets_per_trigger=parsed.get("minOffsetsPerTrigger"),
        max_trigger_delay_ms=parsed.get("maxTriggerDelay"),
    )
    lowest, highest = limits.min_offsets_per_trigger, limits.max_offsets_per_trigger
    if lowest is not None and highest is not None and lowest > highest:
        raise KafkaLogSparkError(
            ErrorCode.OPTION_CONFLICT,
            f"minOffsetsPerTrigger = {lowest} is above maxOffsetsPerTrigger = {highest}",
            options=["minOffsetsPerTrigger", "maxOffsetsPerTrigger"],
        )
    return limits
