"""The table of every option of the data source, the stream and the sink.

The parser, the documentation and the tests use this table, so a new option is a new row, and a
field of `ReadOptions` or `WriteOptions` with its name in Python case.

Thread-safety: constants.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kafkalog.codec_table import CODEC_NAMES
from kafkalog.spark.options.option import IgnoredOption, Option, Where

__all__ = [
    "ADMISSION",
    "BAD_INPUT",
    "IGNORED",
    "OPTIONS",
    "OUTPUT",
    "PLANNING",
    "RANGE",
    "RESULT",
    "SELECTION",
    "SOURCE",
    "WRITING",
    "options_for",
]

# Headings of the documentation, in its order.
SOURCE: Final = "Source"
SELECTION: Final = "Selection of topics and partitions"
RANGE: Final = "Start and end"
RESULT: Final = "Form of the rows"
BAD_INPUT: Final = "Losses and bad input"
PLANNING: Final = "Tasks and batches"
ADMISSION: Final = "Limits of a micro-batch (streams)"
WRITING: Final = "Target"
OUTPUT: Final = "Batches and commits"

_READ: Final[tuple[Where, ...]] = ("batch", "stream")
_ALL: Final[tuple[Where, ...]] = ("batch", "stream", "write")
_STREAM: Final[tuple[Where, ...]] = ("stream",)
_BATCH: Final[tuple[Where, ...]] = ("batch",)
_WRITE: Final[tuple[Where, ...]] = ("write",)

_INT_MAX: Final = 2**31 - 1
_GIB: Final = 1024**3

OPTIONS: Final[tuple[Option, ...]] = (
    Option(
        name="path",
        kind="text",
        where=_ALL,
        group=SOURCE,
        kafka="replaces `kafka.bootstrap.servers`",
        doc=(
            "The data directory, or the directory of one partition. Required; `load(path)` and"
            " `save(path)` give it. A local path, with or without `file://`."
        ),
    ),
    Option(
        name="paths",
        kind="names",
        where=_READ,
        group=SOURCE,
        doc=(
            "Several data directories of one log system, as a JSON list or separated by commas;"
            " `load([a, b])` gives it."
        ),
    ),
    Option(
        name="strictOptions",
        kind="boolean",
        default="true",
        where=_ALL,
        group=SOURCE,
        doc="Whether an unknown option is an error. If not, it causes a warning.",
    ),
    Option(
        name="subscribe",
        kind="names",
        where=_READ,
        group=SELECTION,
        kafka="the same",
        doc=(
            "Topics by name, separated by commas. At most one of these three; without any, all but"
            " Kafka's internal ones (`__consumer_offsets`, `__transaction_state`), which a pattern"
            " does not select either."
        ),
    ),
    Option(
        name="subscribePattern",
        kind="text",
        where=_READ,
        group=SELECTION,
        kafka="the same, but a regular expression of Python's",
        doc="Topics whose whole name matches a regular expression.",
    ),
    Option(
        name="assign",
        kind="json",
        where=_READ,
        group=SELECTION,
        kafka="the same",
        doc='Single partitions: `{"orders": [0, 1], "payments": [4]}`.',
    ),
    Option(
        name="startingOffsets",
        kind="text",
        otherwise="earliest in a batch, latest in a stream",
        where=_READ,
        group=RANGE,
        kafka="the same, and `latest-100`",
        doc=(
            "Start: `earliest`, `latest` (streams only), `latest-100` for the last hundred"
            ' offsets of each partition, or `{"orders": {"0": 23, "1": -2}}`, in which -2 is the'
            " earliest and -1 the latest (streams only), and every partition must be listed. It"
            " applies to the first run of a stream; later runs begin at the checkpoint."
        ),
    ),
    Option(
        name="startingOffsetsByTimestamp",
        kind="json",
        where=_READ,
        group=RANGE,
        kafka="the same",
        doc=(
            'Start at times, one for each partition: `{"orders": {"0": 1700000000000}}`. Overrides'
            " `startingOffsets`."
        ),
    ),
    Option(
        name="startingTimestamp",
        kind="text",
        where=_READ,
        group=RANGE,
        kafka="the same, and `-10m`",
        doc=(
            "Start at a time: ms since 1970, or `-10m` for ten minutes ago. Overrides the two"
            " others."
        ),
    ),
    Option(
        name="startingOffsetsByTimestampStrategy",
        kind="word",
        default="error",
        choices=("error", "latest"),
        where=_READ,
        group=RANGE,
        kafka="the same",
        doc="Behavior if no record is as late as the time of the start.",
    ),
    Option(
        name="endingOffsets",
        kind="text",
        otherwise="latest",
        where=_BATCH,
        group=RANGE,
        kafka="the same, and `latest-100`",
        doc=(
            "End, exclusive: `latest`, `latest-100`, or JSON as above, with -1 for the"
            " latest; never the earliest. The latest is that of the moment of planning, so that all"
            " tasks and their repetitions agree."
        ),
    ),
    Option(
        name="endingOffsetsByTimestamp",
        kind="json",
        where=_BATCH,
        group=RANGE,
        kafka="the same",
        doc=(
            "End at times, one for each partition: before the first record that is as late, or at"
            " the latest if none is. Overrides `endingOffsets`."
        ),
    ),
    Option(
        name="endingTimestamp",
        kind="text",
        where=_BATCH,
        group=RANGE,
        kafka="the same, and `-10m`",
        doc="End at a time, given as for `startingTimestamp`. Overrides the two others.",
    ),
    Option(
        name="isolationLevel",
        kind="word",
        default="read_uncommitted",
        choices=("read_uncommitted", "read_committed"),
        aliases=("kafka.isolation.level",),
        where=_READ,
        group=RANGE,
        kafka="the same, as `kafka.isolation.level` too",
        doc=(
            "With `read_committed`, records of aborted transactions are left out, and reading ends"
            " before the first transaction that is open."
        ),
    ),
    Option(
        name="view",
        kind="word",
        default="records",
        choices=("records", "batches", "segments", "partitions", "verify"),
        where=_READ,
        group=RESULT,
        doc="Content of a row. All but `records` are for batches, and decode no record.",
    ),
    Option(
        name="includeHeaders",
        kind="boolean",
        default="false",
        where=_ALL,
        group=RESULT,
        kafka="the same",
        doc="Whether to add a column `headers`; null for a record without headers.",
    ),
    Option(
        name="columns",
        kind="names",
        where=_READ,
        group=RESULT,
        doc=(
            "Columns, separated by commas. Other columns are not decoded; Spark does not report to"
            " a Python source which columns a query uses."
        ),
    ),
    Option(
        name="filterPushdown",
        kind="word",
        default="false",
        choices=("false", "auto", "true"),
        where=_BATCH,
        group=RESULT,
        doc=(
            "Whether filters are applied while reading: `auto` if"
            " `spark.sql.python.filterPushdown.enabled` is on, `true` in any case. Every query of"
            " the DataFrame that `load` gives then needs the same filters, for Spark reads all of"
            " them by one plan."
        ),
    ),
    Option(
        name="failOnDataLoss",
        kind="boolean",
        default="true",
        where=_READ,
        group=BAD_INPUT,
        kafka="the same; a hole is not a loss",
        doc=(
            "Whether a query fails if requested records are gone: deleted by retention,"
            " truncated, or the topic was recreated. Records that compaction removed are not lost."
        ),
    ),
    Option(
        name="onDataLoss",
        kind="word",
        otherwise="fail, or earliest with `failOnDataLoss=false`",
        choices=("fail", "earliest", "latest"),
        where=_READ,
        group=BAD_INPUT,
        doc="The same with a choice of the offset to resume at.",
    ),
    Option(
        name="mode",
        kind="word",
        default="FAILFAST",
        choices=("FAILFAST", "PERMISSIVE", "DROPMALFORMED"),
        where=_READ,
        group=BAD_INPUT,
        doc="Behavior at damage: fail, return a row that describes it, or skip it with a warning.",
    ),
    Option(
        name="columnNameOfCorruptRecord",
        kind="text",
        default="_corrupt_record",
        where=_READ,
        group=BAD_INPUT,
        doc="The column for the description of damage, if the schema has it.",
    ),
    Option(
        name="checkCrcs",
        kind="boolean",
        default="true",
        where=_READ,
        group=BAD_INPUT,
        doc="Whether the checksum of each batch is compared.",
    ),
    Option(
        name="maxBatchBytes",
        kind="bytes",
        default="256m",
        lower=1,
        upper=_INT_MAX,
        where=_READ,
        group=BAD_INPUT,
        doc=(
            "A batch whose decompressed records are larger is damage, and so is a batch whose"
            " stored size is larger, and above a mebibyte."
        ),
    ),
    Option(
        name="io.retries",
        kind="count",
        default="3",
        lower=0,
        upper=1000,
        where=_READ,
        group=BAD_INPUT,
        kafka="replaces `fetchOffset.numRetries`",
        doc="Number of retries if a file changes or disappears during a read.",
    ),
    Option(
        name="splitBytes",
        kind="bytes",
        default="256m",
        lower=1,
        where=_READ,
        group=PLANNING,
        doc="Bytes that one task reads: larger segments are split, smaller ones combined.",
    ),
    Option(
        name="minPartitions",
        kind="count",
        lower=1,
        upper=1_000_000,
        where=_READ,
        group=PLANNING,
        kafka="the same hint",
        doc="Lowest number of tasks, if the log can be split that often.",
    ),
    Option(
        name="maxRecordsPerPartition",
        kind="count",
        lower=1,
        where=_READ,
        group=PLANNING,
        kafka="the same hint",
        doc="Largest number of offsets of one task.",
    ),
    Option(
        name="arrowBatchBytes",
        kind="bytes",
        default="4m",
        lower=1024,
        upper=_GIB,
        where=_READ,
        group=PLANNING,
        doc="Size of the batches that go to Spark; one record may have more.",
    ),
    Option(
        name="arrowBatchRows",
        kind="count",
        default="65536",
        lower=1,
        upper=_INT_MAX,
        where=_READ,
        group=PLANNING,
        doc="Rows of the batches that go to Spark.",
    ),
    Option(
        name="maxOffsetsPerTrigger",
        kind="count",
        lower=1,
        where=_STREAM,
        group=ADMISSION,
        kafka="the same",
        ignored_in="batch",
        doc=("Largest number of offsets in a micro-batch, shared in proportion to backlogs."),
    ),
    Option(
        name="maxBytesPerTrigger",
        kind="bytes",
        lower=1,
        where=_STREAM,
        group=ADMISSION,
        ignored_in="batch",
        doc=(
            "About the largest number of bytes of the log in a micro-batch; at least one batch of"
            " each partition with a backlog."
        ),
    ),
    Option(
        name="minOffsetsPerTrigger",
        kind="count",
        lower=1,
        where=_STREAM,
        group=ADMISSION,
        kafka="the same",
        ignored_in="batch",
        doc="Wait for this number of offsets, but not longer than `maxTriggerDelay`.",
    ),
    Option(
        name="maxTriggerDelay",
        kind="duration",
        default="15m",
        lower=0,
        where=_STREAM,
        group=ADMISSION,
        kafka="the same",
        ignored_in="batch",
        doc="How long to wait for `minOffsetsPerTrigger`.",
    ),
    Option(
        name="groupId",
        kind="text",
        where=_STREAM,
        group=ADMISSION,
        ignored_in="batch",
        doc=(
            "Publish the stream's progress as this consumer group's, in the first data directory,"
            " for tools that show lag. Nothing is read from there."
        ),
    ),
    Option(
        name="topic",
        kind="text",
        where=_WRITE,
        group=WRITING,
        kafka="the same",
        doc="The topic of all rows; without it, the column `topic` has the topic of each row.",
    ),
    Option(
        name="partitions",
        kind="count",
        default="1",
        lower=1,
        upper=100_000,
        where=_WRITE,
        group=WRITING,
        doc="Number of partitions of a new topic.",
    ),
    Option(
        name="partitioner",
        kind="word",
        default="murmur2",
        choices=("murmur2", "roundrobin", "explicit"),
        where=_WRITE,
        group=WRITING,
        kafka="replaces `kafka.partitioner.class`",
        doc=(
            "Partition of a row without one: by the key, as Kafka's producers do it; in turns; or"
            " `explicit`, which requires the column `partition`."
        ),
    ),
    Option(
        name="compression",
        kind="word",
        default="zstd",
        choices=CODEC_NAMES,
        where=_WRITE,
        group=OUTPUT,
        doc="Codec of the batches.",
    ),
    Option(
        name="batchBytes",
        kind="bytes",
        default="1m",
        lower=1024,
        upper=_GIB,
        where=_WRITE,
        group=OUTPUT,
        doc="Size of a batch before compression; one record may have more.",
    ),
    Option(
        name="segmentBytes",
        kind="bytes",
        default="1g",
        lower=1024,
        upper=_INT_MAX,
        where=_WRITE,
        group=OUTPUT,
        doc="Size of a segment.",
    ),
    Option(
        name="preserveOffsets",
        kind="boolean",
        default="false",
        where=_WRITE,
        group=OUTPUT,
        doc="Whether the column `offset` is kept: for copies of a log.",
    ),
    Option(
        name="timestampColumn",
        kind="text",
        otherwise="`timestamp` if it exists, else the time of writing",
        where=_WRITE,
        group=OUTPUT,
        doc="The column with the records' times.",
    ),
    Option(
        name="txnAppId",
        kind="text",
        where=_WRITE,
        group=WRITING,
        doc="Application of a batch write; with `txnVersion`, it is written once.",
    ),
    Option(
        name="txnVersion",
        kind="count",
        lower=0,
        where=_WRITE,
        group=WRITING,
        doc="Number of the application's write; a number not above the last one is skipped.",
    ),
    Option(
        name="commitStrategy",
        kind="word",
        default="auto",
        choices=("auto", "rename", "manifest"),
        where=_WRITE,
        group=WRITING,
        doc="How staged files get into the log.",
    ),
    Option(
        name="stagingDir",
        kind="text",
        otherwise="`.kafkalog-sink-staging` in the data directory",
        where=_WRITE,
        group=WRITING,
        doc="Directory for the files of tasks before a commit; on the same file system.",
    ),
    Option(
        name="orphanAge",
        kind="duration",
        default="24h",
        lower=0,
        where=_WRITE,
        group=WRITING,
        doc="Age at which uncommitted staged files are removed.",
    ),
    Option(
        name="allowTruncate",
        kind="boolean",
        default="false",
        where=_WRITE,
        group=WRITING,
        doc="Whether `mode('overwrite')` may empty the topic first.",
    ),
)

IGNORED: Final[tuple[IgnoredOption, ...]] = (
    IgnoredOption("kafka.*", _ALL, "kafkalog does not connect to a broker", is_prefix=True),
    IgnoredOption("groupIdPrefix", _READ, "no consumer group is made; see `groupId`"),
    IgnoredOption("kafkaConsumer.pollTimeoutMs", _READ, "nothing is polled"),
    IgnoredOption("fetchOffset.numRetries", _READ, "see `io.retries`"),
    IgnoredOption("fetchOffset.retryIntervalMs", _READ, "see `io.retries`"),
    # Spark passes its own options of a streaming query to the sink.
    IgnoredOption("checkpointLocation", _WRITE, "Spark's own", is_reported=False),
    IgnoredOption("queryName", _WRITE, "Spark's own", is_reported=False),
)


def options_for(where: Where) -> Iterable[Option]:
    """Return the options of a batch read, a stream, or a write."""
    return (each for each in OPTIONS if where in each.where)
