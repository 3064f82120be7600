"""Listener for the lag of running streams, by the progress that Spark reports.

    listener = LagListener(lambda lag: gauge.set(lag.lag.max_offsets))
    spark.streams.addListener(listener)

Spark's own Kafka source puts minOffsetsBehindLatest and its like into the progress; a source in
Python can report only offsets there, and this module computes the rest from them.

Thread-safety: Spark calls from its own thread; `latest` may be read from any.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from kafkalog.errors import KafkaLogError
from kafkalog.spark.lag import StreamLag, lag_between, unread_bytes
from kafkalog.spark.options import TOPIC_IDS, ReadOptions

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

__all__ = ["LagListener", "QueryLag"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class QueryLag:
    """
    The lag of one source of a query, after one of its micro-batches.

    Attributes:
        query_id, query_name: the query; the name is None without one.
        batch_id: number of the micro-batch.
        source: Spark's name of the source.
        lag: its lag.
    """

    query_id: str
    query_name: str | None
    batch_id: int
    source: str
    lag: StreamLag


class LagListener(StreamingQueryListener):
    """
    Computes and reports the lag of every source whose offsets have our form.

    Args:
        on_lag: called with each, in Spark's thread; its exceptions are logged.
        options: those of the stream, to estimate bytes too; that reads the logs each time.

    Attributes:
        latest: the last lag of each query and source.
    """

    def __init__(
        self,
        on_lag: Callable[[QueryLag], object] | None = None,
        *,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self._on_lag = on_lag
        self._options = None if options is None else ReadOptions.parse(options, streaming=True)
        self.latest: dict[tuple[str, str], QueryLag] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Do nothing: a new query has no progress yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Compute and report the lag."""
        progress = event.progress
        for source in progress.sources:
            newest = source.latestOffset
            if not newest or not _is_ours(newest):
                continue
            try:
                lag = lag_between(source.endOffset or "{}", newest)
                if self._options is not None:
                    size = unread_bytes(self._options, source.endOffset or "{}")
                    lag = replace(lag, estimated_bytes=size)
            except (ValueError, AttributeError, TypeError, KafkaLogError) as error:
                logger.warning("%s: its lag is not known: %s", source.description, error)
                continue
            query_lag = QueryLag(
                str(progress.id), progress.name, progress.batchId, source.description, lag
            )
            self.latest[query_lag.query_id, query_lag.source] = query_lag
            self._report(query_lag)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Do nothing: the last reported lag still holds."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Remove a query that has ended."""
        gone = [key for key in self.latest if key[0] == str(event.id)]
        for key in gone:
            del self.latest[key]

    def _report(self, query_lag: QueryLag) -> None:
        if self._on_lag is None:
            return
        try:
            self._on_lag(query_lag)
        except Exception:
            logger.exception("%s: a lag callback failed", query_lag.source)


def _is_ours(offsets: str) -> bool:
    """Return True for offsets of topics and partitions: Spark names no source's format."""
    try:
        parsed = json.loads(offsets)
    except ValueError:
        return False
    return isinstance(parsed, dict) and all(
        isinstance(of_topic, dict) and all(map(_is_offset, of_topic.values()))
        for topic, of_topic in parsed.items()
        if topic != TOPIC_IDS
    )


def _is_offset(value: object) -> bool:
    return isinstance(value, int)
