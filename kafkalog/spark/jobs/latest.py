"""The first half of `compact` and `snapshot`: which records are the latest of their keys.

Thread-safety: none; a job is one thread's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kafkalog.spark.jobs.asked import ranges_as_json, shared_out
from kafkalog.spark.jobs.ledger import JobLedger
from kafkalog.spark.jobs.marks import CHUNK_BITS, chunks_by_partition
from kafkalog.spark.jobs.stages import MARKS_STAGE, JobProgress, stage_frame, watched
from kafkalog.spark.plan import Bounds, LogSnapshot, split_and_pack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["KEY_TASK_BYTES", "find_latest", "plan_keys"]

# A task of a job is larger than one of a query: it costs as much to start.
KEY_TASK_BYTES: Final = 1 << 30

Tell = Callable[[JobProgress], object]


def plan_keys(
    spark: SparkSession,
    ledger: JobLedger,
    snapshot: LogSnapshot,
    bounds: Bounds,
    numbers: Mapping[tuple[str, int], int],
    task_bytes: int,
) -> None:
    """Plan the reading of the keys of ranges."""
    split_bytes = shared_out(spark, task_bytes, int(snapshot.sizes.sum()))
    splits = split_and_pack(snapshot, bounds, split_bytes=split_bytes)
    ledger.plan("keys", [{"ranges": ranges_as_json(split, numbers)} for split in splits])


def find_latest(
    spark: SparkSession, ledger: JobLedger, on_progress: Tell | None
) -> tuple[Mapping[int, list[tuple[int, str, int, int]]], dict[int, str]]:
    """
    Run the reading of keys and make bits of what is latest; what an earlier run found is taken.

    Returns:
        The chunks of bits of each partition, and what is wrong with those that could not be read.
    """
    facts = ledger.facts(MARKS_STAGE)
    if facts is None:
        ledger.discard("bits")
        ledger.folder("bits")
        if ledger.tasks("keys"):
            with watched(ledger, "keys", on_progress):
                _shuffle(spark, ledger)
        else:
            ledger.finish(MARKS_STAGE, {"chunks": []})
        facts = ledger.facts(MARKS_STAGE)
    assert facts is not None
    errors: dict[int, str] = {}
    for report in ledger.done("keys").values():
        errors |= {int(number): told for number, told in report["errors"].items()}
    return chunks_by_partition(facts["chunks"]), errors


def _shuffle(spark: SparkSession, ledger: JobLedger) -> None:
    from pyspark.sql import functions as sql

    met = stage_frame(spark, ledger, "keys")
    latest = met.groupBy("number", "high", "low").agg(sql.max("offset").alias("offset"))
    offsets: Any = latest.select("number", "offset")
    # All offsets of a chunk come to one task, which has its bits for itself.
    chunk = sql.shiftright("offset", CHUNK_BITS)
    writer = offsets.repartition("number", chunk).write.format("kafkalog-job")
    writer.option("ledger", str(ledger.directory)).option("stage", "keys").mode("append").save()
