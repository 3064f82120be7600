"""Descriptors of this process: their number, and a lower limit of it."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["descriptor_count", "descriptors_up_to"]


def descriptor_count() -> int:
    """Return the number of descriptors of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


@contextmanager
def descriptors_up_to(limit: int) -> Iterator[None]:
    """Set the soft limit of descriptors in a `with` block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
