"""The lag of running streams, as Spark tells their progress.

    listener = LagListener(lambda lag: gauge.set(lag.lag.max_offsets))
    spark.streams.addListener(listener)

Spark's own Kafka source puts minOffsetsBehindLatest and its like into the progress; a source in
Python has no place there but offsets, and this computes the rest from them.

Thread-safety: Spark calls from a thread of its own; `latest` may be read from any.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from kafkalog.errors import KafkaLogError
from kafkalog.spark.lag import StreamLag, bytes_behind, lag_between
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
        query_id, query_name: the query; the name is None where it has none.
        batch_id: number of the micro-batch.
        source: what Spark calls the source.
        lag: how far it is behind.
    """

    query_id: str
    query_name: str | None
    batch_id: int
    source: str
    lag: StreamLag


class LagListener(StreamingQueryListener):
    """
    Computes the lag of every source with offsets like ours, and tells it.

    Args:
        on_lag: called with each, in Spark's thread; what it raises is logged.
        options: those of the stream, to estimate bytes too; that looks at the logs each time.

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
        """Nothing is known of a query that begins."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Compute and tell."""
        progress = event.progress
        for source in progress.sources:
            newest = source.latestOffset
            if not newest or not _is_ours(newest):
                continue
            try:
                lag = lag_between(source.endOffset or "{}", newest)
                if self._options is not None:
                    size = bytes_behind(self._options, source.endOffset or "{}")
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
        """What was told last still holds."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Forget a query that has ended."""
        gone = [key for key in self.latest if key[0] == str(event.id)]
        for key in gone:
            del self.latest[key]

    def _report(self, query_lag: QueryLag) -> None:
        if self._on_lag is None:
            return
        try:
            self._on_lag(query_lag)
        except Exception:
            logger.exception("%s: whoever listens to its lag has failed", query_lag.source)


def _is_ours(offsets: str) -> bool:
    """Say whether offsets are of topics and partitions: Spark names no source's format."""
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
