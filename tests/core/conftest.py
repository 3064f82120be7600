"""What tests of the core share: which ways of zstd its kernels go."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafkalog._core.zstd_library import set_used


@pytest.fixture(autouse=True)
def fixture_no_zstd_library() -> Iterator[None]:
    """Zstd is for others to undo, whatever a test before has loaded; but see `zstd_library`."""
    before = set_used(False)
    yield
    set_used(before)
