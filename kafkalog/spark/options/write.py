"""The options of writing, from a batch or a stream.

Thread-safety: immutable plain data; it pickles, so that it goes from the driver to the workers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kafkalog.files.names import is_topic_name
from kafkalog.spark.errors import ErrorCode, KafkaLogSparkError
from kafkalog.spark.options.option import invalid
from kafkalog.spark.options.parsed_options import ParsedOptions

__all__ = ["WriteOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """
    The options of a write, checked.

    Attributes:
        path: the data directory.
        topic: of all rows, None if a column has it.
        app_id, version: make a batch write idempotent, None for none.
        staging_dir: None for the default in the data directory.
        timestamp_column: None for `timestamp` if that exists.
        ignored: the ignored options, in words.

    The others are named as the options in docs/spark-options.md; times are in ms, sizes in bytes.
    """

    path: str
    topic: str | None = None
    partitions: int = 1
    partitioner: Literal["murmur2", "roundrobin", "explicit"] = "murmur2"
    compression: str = "zstd"
    batch_bytes: int = 1024**2
    segment_bytes: int = 1024**3
    include_headers: bool = False
    preserve_offsets: bool = False
    timestamp_column: str | None = None
    app_id: str | None = None
    version: int | None = None
    commit_strategy: Literal["auto", "rename", "manifest"] = "auto"
    staging_dir: str | None = None
    orphan_age_ms: int = 24 * 3_600_000
    allow_truncate: bool = False
    ignored: tuple[str, ...] = ()

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        """
        Return the checked options.

        Raises:
            KafkaLogSparkError: OPTION_MISSING, OPTION_UNKNOWN, OPTION_INVALID, OPTION_CONFLICT,
                UNSUPPORTED.
        """
        parsed = ParsedOptions(options, "write")
        topic = parsed.get("topic")
        if topic is not None and not is_topic_name(topic):
            raise invalid("topic", topic, "the name of a topic")
        if ("txnAppId" in parsed) != ("txnVersion" in parsed):
            raise KafkaLogSparkError(
                ErrorCode.OPTION_CONFLICT,
                "txnAppId and txnVersion come together",
                options=["txnAppId", "txnVersion"],
            )
        return cls(
            path=parsed.paths()[0],
            topic=topic,
            partitions=parsed.get("partitions"),
            partitioner=parsed.get("partitioner"),
            compression=parsed.get("compression"),
            batch_bytes=parsed.get("batchBytes"),
            segment_bytes=parsed.get("segmentBytes"),
            include_headers=parsed.get("includeHeaders"),
            preserve_offsets=parsed.get("preserveOffsets"),
            timestamp_column=parsed.get("timestampColumn"),
            app_id=parsed.get("txnAppId"),
            version=parsed.get("txnVersion"),
            commit_strategy=parsed.get("commitStrategy"),
            staging_dir=parsed.get("stagingDir"),
            orphan_age_ms=parsed.get("orphanAge"),
            allow_truncate=parsed.get("allowTruncate"),
            ignored=parsed.ignored,
        )
