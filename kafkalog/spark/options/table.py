"""Every option of the data source, the stream and the sink: one table.

What parses options, what documents them and what tests them reads it here, so a new option is a
new row, and a field of `ReadOptions` or `WriteOptions` with its name in Python case.

Thread-safety: constants.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

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
SOURCE: Final = "What to read"
SELECTION: Final = "Which topics and partitions"
RANGE: Final = "From where to where"
RESULT: Final = "What the rows are"
BAD_INPUT: Final = "Losses and bad input"
PLANNING: Final = "Tasks and batches"
ADMISSION: Final = "How much at a time (streams)"
WRITING: Final = "Where and how to write"
OUTPUT: Final = "What is written"

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
            "Several data directories of one log system, as a JSON list or parted by commas;"
            " `load([a, b])` gives it."
        ),
    ),
    Option(
        name="strictOptions",
        kind="boolean",
        default="true",
        where=_ALL,
        group=SOURCE,
        doc="Whether an option that nobody knows is an error. Where not, it is warned of.",
    ),
    Option(
        name="subscribe",
        kind="names",
        where=_READ,
        group=SELECTION,
        kafka="the same",
        doc=(
            "Topics by name, parted by commas. At most one of these three; without any, all but"
            " Kafka's internal ones (`__consumer_offsets`, `__transaction_state`), which a pattern"
            " does not choose either."
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
            "Where to begin: `earliest`, `latest` (streams only), `latest-100` for the last hundred"
            ' offsets of each partition, or `{"orders": {"0": 23, "1": -2}}`, in which -2 is the'
            " earliest and -1 the latest (streams only), and every partition has to stand. A stream"
            " heeds it in its first run; then its checkpoint counts."
        ),
    ),
    Option(
        name="startingOffsetsByTimestamp",
        kind="json",
        where=_READ,
        group=RANGE,
        kafka="the same",
        doc=(
            'Begin at times, one for each partition: `{"orders": {"0": 1700000000000}}`. Counts'
            " more than `startingOffsets`."
        ),
    ),
    Option(
        name="startingTimestamp",
        kind="text",
        where=_READ,
        group=RANGE,
        kafka="the same, and `-10m`",
        doc=(
            "Begin at a time: ms since 1970, or `-10m` for ten minutes ago. Counts more than the"
            " two others."
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
        doc="What to do where no record is as late as a time to begin at.",
    ),
    Option(
        name="endingOffsets",
        kind="text",
        otherwise="latest",
        where=_BATCH,
        group=RANGE,
        kafka="the same, and `latest-100`",
        doc=(
            "Where to end, exclusive: `latest`, `latest-100`, or JSON as above, with -1 for the"
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
            " the latest where none is. Counts more than `endingOffsets`."
        ),
    ),
    Option(
        name="endingTimestamp",
        kind="text",
        where=_BATCH,
        group=RANGE,
        kafka="the same, and `-10m`",
        doc="End at a time, given as for `startingTimestamp`. Counts more than the two others.",
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
        doc="What a row is. All but `records` are for batches, and decode no record.",
    ),
    Option(
        name="includeHeaders",
        kind="boolean",
        default="false",
        where=_ALL,
        group=RESULT,
        kafka="the same",
        doc="Whether there is a column `headers`; null for a record that has none.",
    ),
    Option(
        name="columns",
        kind="names",
        where=_READ,
        group=RESULT,
        doc=(
            "Which columns, parted by commas. What is not named is not decoded; Spark does not tell"
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
            "Whether filters are heeded while reading: `auto` where"
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
        kafka="the same; a hole is no loss",
        doc=(
            "Whether a query fails where records that it wanted are gone: deleted by retention, cut"
            " off, or the topic made anew. What compaction took away is no loss."
        ),
    ),
    Option(
        name="onDataLoss",
        kind="word",
        otherwise="fail, or earliest with `failOnDataLoss=false`",
        choices=("fail", "earliest", "latest"),
        where=_READ,
        group=BAD_INPUT,
        doc="The same with a choice of where to go on.",
    ),
    Option(
        name="mode",
        kind="word",
        default="FAILFAST",
        choices=("FAILFAST", "PERMISSIVE", "DROPMALFORMED"),
        where=_READ,
        group=BAD_INPUT,
        doc="At damage: fail, give a row that tells of it, or pass over it and log that.",
    ),
    Option(
        name="columnNameOfCorruptRecord",
        kind="text",
        default="_corrupt_record",
        where=_READ,
        group=BAD_INPUT,
        doc="The column that tells of damage, where the schema has it.",
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
            "A batch whose records come to more when unpacked is damage, and so is one that takes"
            " more as it is stored, and more than a mebibyte."
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
        doc="How often a file that changed or vanished under a reader is looked for again.",
    ),
    Option(
        name="splitBytes",
        kind="bytes",
        default="256m",
        lower=1,
        where=_READ,
        group=PLANNING,
        doc="How much one task reads: larger segments are split, smaller ones put together.",
    ),
    Option(
        name="minPartitions",
        kind="count",
        lower=1,
        upper=1_000_000,
        where=_READ,
        group=PLANNING,
        kafka="the same hint",
        doc="At least as many tasks, where the log can be parted so often.",
    ),
    Option(
        name="maxRecordsPerPartition",
        kind="count",
        lower=1,
        where=_READ,
        group=PLANNING,
        kafka="the same hint",
        doc="At most as many offsets for one task.",
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
        doc=(
            "At most as many offsets in a micro-batch, shared out by what each partition is behind."
        ),
    ),
    Option(
        name="maxBytesPerTrigger",
        kind="bytes",
        lower=1,
        where=_STREAM,
        group=ADMISSION,
        ignored_in="batch",
        doc=(
            "At most about as many bytes of the log in a micro-batch; at least one batch of each"
            " partition that has any."
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
        doc="Wait until there are as many, but not longer than `maxTriggerDelay`.",
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
        doc="The topic of all rows; where it is not given, the column `topic` says it.",
    ),
    Option(
        name="partitions",
        kind="count",
        default="1",
        lower=1,
        upper=100_000,
        where=_WRITE,
        group=WRITING,
        doc="How many partitions a topic gets that is not there yet.",
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
            "What decides the partition of a row without one: the key, as Kafka's producers do it;"
            " nothing but the turn; or `explicit`, for which the column `partition` has to."
        ),
    ),
    Option(
        name="compression",
        kind="word",
        default="zstd",
        choices=("none", "gzip", "snappy", "lz4", "zstd"),
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
        otherwise="`timestamp` where there is one, else the time of writing",
        where=_WRITE,
        group=OUTPUT,
        doc="The column with the records' times.",
    ),
    Option(
        name="txnAppId",
        kind="text",
        where=_WRITE,
        group=WRITING,
        doc="Whose batch write this is; with `txnVersion`, it is written once.",
    ),
    Option(
        name="txnVersion",
        kind="count",
        lower=0,
        where=_WRITE,
        group=WRITING,
        doc="Which of that application's writes; one that is not above the last is passed over.",
    ),
    Option(
        name="commitStrategy",
        kind="word",
        default="auto",
        choices=("auto", "rename", "manifest"),
        where=_WRITE,
        group=WRITING,
        doc="How staged files come into the log.",
    ),
    Option(
        name="stagingDir",
        kind="text",
        otherwise="`.kafkalog-sink-staging` in the data directory",
        where=_WRITE,
        group=WRITING,
        doc="Where tasks write before a commit; on the same file system.",
    ),
    Option(
        name="orphanAge",
        kind="duration",
        default="24h",
        lower=0,
        where=_WRITE,
        group=WRITING,
        doc="When staged files that nobody committed are removed.",
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
    IgnoredOption("kafka.*", _ALL, "there is no broker to connect to", is_prefix=True),
    IgnoredOption("groupIdPrefix", _READ, "no consumer group is made; see `groupId`"),
    IgnoredOption("kafkaConsumer.pollTimeoutMs", _READ, "nothing is polled"),
    IgnoredOption("fetchOffset.numRetries", _READ, "see `io.retries`"),
    IgnoredOption("fetchOffset.retryIntervalMs", _READ, "see `io.retries`"),
    # Spark hands its own options of a streaming query on to the sink.
    IgnoredOption("checkpointLocation", _WRITE, "Spark's own", is_reported=False),
    IgnoredOption("queryName", _WRITE, "Spark's own", is_reported=False),
)


def options_for(where: Where) -> Iterable[Option]:
    """Return the options of a batch read, a stream, or a write."""
    return (each for each in OPTIONS if where in each.where)
