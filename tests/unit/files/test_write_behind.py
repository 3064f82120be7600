"""Early write-back of ranges of a file, on systems that support it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import pytest

from kafkalog.files import write_behind

CALLS = (write_behind.begin, write_behind.drop_cache)


@pytest.mark.parametrize("call", CALLS)
def test_begin_error_is_raised(call: Callable[[int, int, int], None]) -> None:
    """A later sync need not report it."""
    if write_behind.SYNC_FILE_RANGE is None:
        pytest.skip("not on Linux")
    with pytest.raises(OSError, match="descriptor") as caught:
        call(-1, 0, 4096)
    assert errno.EBADF == caught.value.errno


@pytest.mark.parametrize("call", CALLS)
def test_begin_unsupported_call_is_ignored(call: Callable[[int, int, int], None]) -> None:
    """As a pipe does not, some file systems do not: the sync at the end does everything."""
    reading, writing = os.pipe()
    try:
        call(writing, 0, 4096)
    finally:
        os.close(reading)
        os.close(writing)


def test_find_function_other_system_returns_none() -> None:
    """A wrong descriptor is not noticed where nothing is called."""
    assert None is write_behind.find_function("darwin")
    for call in (write_behind.begin, write_behind.drop_cache):
        call(-1, 0, 4096, function=None)
