"""Options of the data source, the stream and the sink: read, checked, and one table of them.

Nothing here imports pyspark.
"""

from kafkalog.spark.options.ranges import EARLIEST, LATEST, TOPIC_IDS, OffsetSpec, Position
from kafkalog.spark.options.read import ReadOptions, StreamLimits, TopicSelection
from kafkalog.spark.options.table import IGNORED, OPTIONS, options_for
from kafkalog.spark.options.write import WriteOptions

__all__ = [
    "EARLIEST",
    "IGNORED",
    "LATEST",
    "OPTIONS",
    "TOPIC_IDS",
    "OffsetSpec",
    "Position",
    "ReadOptions",
    "StreamLimits",
    "TopicSelection",
    "WriteOptions",
    "options_for",
]
