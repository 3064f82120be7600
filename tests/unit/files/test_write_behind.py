"""Ranges of a file go to the disk early, where the system can be told so."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import pytest

from kafkalog.files import write_behind

CALLS = (write_behind.begin, write_behind.drop_cache)


@pytest.mark.parametrize("call", CALLS)
def test_error_of_the_system_is_raised(call: Callable[[int, int, int], None]) -> None:
    """No sync behind it need tell of it."""
    if write_behind._sync_file_range is None:
        pytest.skip("not on Linux")
    with pytest.raises(OSError, match="descriptor") as caught:
        call(-1, 0, 4096)
    assert errno.EBADF == caught.value.errno


@pytest.mark.parametrize("call", CALLS)
def test_what_knows_no_such_call_is_passed_over(call: Callable[[int, int, int], None]) -> None:
    """As a pipe does not, some file systems do not: the sync at the end does everything."""
    reading, writing = os.pipe()
    try:
        call(writing, 0, 4096)
    finally:
        os.close(reading)
        os.close(writing)


def test_another_system_is_asked_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong descriptor is not noticed where nothing is called."""
    monkeypatch.setattr(write_behind, "_sync_file_range", None)
    for call in CALLS:
        call(-1, 0, 4096)
    monkeypatch.setattr("sys.platform", "darwin")
    assert write_behind._find_function() is None
