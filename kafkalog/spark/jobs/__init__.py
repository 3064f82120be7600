"""Jobs over log directories that outgrow one machine, on any Spark.

Importing this package imports neither pyspark nor pyarrow; a job does when it begins.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kafkalog.spark.jobs.job_arguments import JobReport

if TYPE_CHECKING:
    from kafkalog.spark.jobs.compacting import compact
    from kafkalog.spark.jobs.copying import copy
    from kafkalog.spark.jobs.exporting import export
    from kafkalog.spark.jobs.importing import import_
    from kafkalog.spark.jobs.job_source import JobProgress
    from kafkalog.spark.jobs.maintenance import reindex, stats, verify
    from kafkalog.spark.jobs.snapshotting import snapshot

__all__ = [
    "JobProgress",
    "JobReport",
    "compact",
    "copy",
    "export",
    "import_",
    "reindex",
    "snapshot",
    "stats",
    "verify",
]

_MODULES = {
    "JobProgress": "job_source",
    "compact": "compacting",
    "copy": "copying",
    "export": "exporting",
    "import_": "importing",
    "reindex": "maintenance",
    "snapshot": "snapshotting",
    "stats": "maintenance",
    "verify": "maintenance",
}


def __getattr__(name: str) -> Any:
    """Load a job on first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
