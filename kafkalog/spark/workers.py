"""What a process can do for itself that Spark has forked to run Python in.

Spark runs the collector in such a process after every task and every plan. With what pyspark,
pyarrow and the engine consist of that takes 25 ms each time, as much as a small query: so what has
been imported by the first time is taken out of the collector's sight, for it stays anyway.

Thread-safety: Spark's workers have one thread for this. It does nothing in any other process.
"""

from __future__ import annotations

import gc
import sys
from typing import Final

__all__ = ["disable_gc"]

_DAEMON: Final = "pyspark.daemon"


def disable_gc() -> None:
    """Let the collector pass over what there is now, once in a process that Spark has forked."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None and spec.name == _DAEMON and not gc.get_freeze_count():
        gc.freeze()
