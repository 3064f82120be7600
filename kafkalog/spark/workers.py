"""Tuning of the Python processes that Spark has forked.

Spark runs the garbage collector in such a process after every task and every plan. With pyspark,
pyarrow and the engine loaded that takes 25 ms each time, as much as a small query: so the objects
of the first time are hidden from the collector, for they stay anyway.

Thread-safety: Spark's workers have one thread for this. It does nothing in any other process.
"""

from __future__ import annotations

import gc
import sys
from typing import Final

__all__ = ["disable_gc"]

_DAEMON: Final = "pyspark.daemon"


def disable_gc() -> None:
    """Freeze the present objects for the collector, once in a process that Spark has forked."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None and spec.name == _DAEMON and not gc.get_freeze_count():
        gc.freeze()
