"""The plan of a query: a snapshot of the logs, bounds, filters, and tasks.

Nothing here imports pyspark.
"""

from kafkalog.spark.plan.bounds import Bounds, resolve, resolve_bounds
from kafkalog.spark.plan.filters import EVERYTHING, FilterSet
from kafkalog.spark.plan.loss import DataLoss, LossRule, find_loss, resolve_loss
from kafkalog.spark.plan.snapshot import PartitionFacts, QuerySnapshot
from kafkalog.spark.plan.splitting import LogSplit, SplitRange, split_and_pack

__all__ = [
    "EVERYTHING",
    "Bounds",
    "DataLoss",
    "FilterSet",
    "LogSplit",
    "LossRule",
    "PartitionFacts",
    "QuerySnapshot",
    "SplitRange",
    "find_loss",
    "resolve",
    "resolve_bounds",
    "resolve_loss",
    "split_and_pack",
]
