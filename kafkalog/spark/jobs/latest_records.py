"""The first half of `compact` and `snapshot`: the search for the latest records of keys.

Thread-safety: none; a job is one thread's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from kafkalog.spark.jobs.job_arguments import ranges_as_json, shared_out
from kafkalog.spark.jobs.job_source import KEY_HASHES_STAGE, JobProgress, latest_slices, watched
from kafkalog.spark.jobs.key_hashes import slice_count
from kafkalog.spark.jobs.latest_offsets import slices_by_partition
from kafkalog.spark.jobs.ledger import JobLedger
from kafkalog.spark.plan import Bounds, QuerySnapshot, split_and_pack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["KEY_TASK_BYTES", "find_latest", "plan_keys"]

# A task of a job is larger than one of a query: it costs as much to start.
KEY_TASK_BYTES: Final = 1 << 30

OnProgress = Callable[[JobProgress], object]


def plan_keys(
    spark: SparkSession,
    ledger: JobLedger,
    snapshot: QuerySnapshot,
    bounds: Bounds,
    numbers: Mapping[tuple[str, int], int],
    task_bytes: int,
) -> None:
    """Plan the reading of the keys of ranges."""
    split_bytes = shared_out(spark, task_bytes, int(snapshot.sizes.sum()))
    splits = split_and_pack(snapshot, bounds, split_bytes=split_bytes)
    counts, tasks = _slice_counts(snapshot, bounds), []
    for split in splits:
        ranges = ranges_as_json(split, numbers)
        tasks.append({"ranges": ranges, "slices": {str(row): counts[row] for row, *_ in ranges}})
    ledger.plan("keys", tasks)


def _slice_counts(snapshot: QuerySnapshot, bounds: Bounds) -> list[int]:
    """Return the number of slices for the keys of each partition."""
    offsets = (bounds.ends - bounds.starts).tolist()
    before = np.append(0, np.cumsum(snapshot.sizes))[snapshot.first_rows]
    sizes = np.diff(before).tolist()
    return [slice_count(*each) for each in zip(offsets, sizes, strict=True)]


def find_latest(
    spark: SparkSession, ledger: JobLedger, on_progress: OnProgress | None
) -> tuple[Mapping[int, list[tuple[str, int, int]]], dict[int, str]]:
    """
    Run the reading of keys, and write the latest offsets; the result of an earlier run is reused.

    Returns:
        The slices of the latest offsets of each partition (see `latest_offsets`), and the errors of
        the partitions that could not be read.
    """
    facts = ledger.facts(KEY_HASHES_STAGE)
    if facts is None:
        ledger.discard("latest")
        ledger.folder("latest")
        slices = []
        if ledger.tasks("keys"):
            with watched(ledger, "keys", on_progress):
                slices = latest_slices(spark, ledger)
        facts = {"slices": slices}
        ledger.finish(KEY_HASHES_STAGE, facts)
    errors: dict[int, str] = {}
    for report in ledger.done("keys").values():
        errors |= {int(number): message for number, message in report["errors"].items()}
    return slices_by_partition(facts["slices"]), errors
