"""A shared library of Zstandard, for kernels that decompress many batches in one call.

The package `zstandard` has the library inside, where only Python can call it: some 3 us for each
batch, and the GIL between two of them. Kernels can call a library that exports its functions: the
module of the package for CFFI, which is a shared library as well, or the library of the system. It
must have exactly the version of the package, since versions refuse different damaged streams; so
both methods return the same bytes, and refuse the same streams. Without such a library the package
does everything.

Only functions of the stable interface of the library are called; CFFI itself is not used.

Thread-safety: may be called from any thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from typing import Final

from kafkalog._core.zstd_library import use

__all__ = ["load_zstd_library"]

logger = logging.getLogger(__name__)

# Names that stand for the interface of version 1, as systems' loaders know them.
_SYSTEM_NAMES: Final = ("libzstd.so.1", "libzstd.1.dylib")
_FUNCTIONS: Final = (
    "ZSTD_createDCtx",
    "ZSTD_freeDCtx",
    "ZSTD_decompressDCtx",
    "ZSTD_isError",
)


# Two threads may scan their first compressed batch at once.
_LOCK: Final = threading.Lock()


@cache
def load_zstd_library() -> bool:
    """Load a library for kernels at the first call; return whether they use one."""
    with _LOCK:
        return _load()


def _load() -> bool:
    try:
        import ctypes

        import zstandard
    except ImportError:
        return False
    major, minor, patch = zstandard.ZSTD_VERSION
    wanted = major * 10_000 + minor * 100 + patch
    for name in _names():
        try:
            library = ctypes.CDLL(name)
            if library.ZSTD_versionNumber() != wanted:
                continue
            addresses = [
                ctypes.cast(getattr(library, function), ctypes.c_void_p).value or 0
                for function in _FUNCTIONS
            ]
        except (OSError, AttributeError):
            continue
        logger.debug("kernels decompress zstd by %s, version %d", name, wanted)
        use(*addresses)
        return True
    return False


def _names() -> Iterator[str]:
    """Yield where a library may be."""
    found = find_spec("zstandard._cffi")
    if found is not None and found.origin is not None:
        yield found.origin
    yield from _SYSTEM_NAMES
