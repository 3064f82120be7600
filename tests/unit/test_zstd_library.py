"""Finding a shared library of Zstandard for kernels, and logs that are read with it and without."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import zstandard

from kafkalog import Record
from kafkalog._core.zstd_library import set_used, use
from kafkalog.records import zstd_library
from kafkalog.records.zstd_library import load_zstd_library
from tests.support.logs import manual_log

SIZES: dict[str, Any] = {"segment_bytes": 4000, "batch_bytes": 600}


@pytest.fixture(autouse=True)
def fixture_as_before() -> Iterator[None]:
    """Kernels go the way again that they went."""
    before = set_used(False)
    yield
    set_used(before)


def test_library_of_another_version_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may refuse other streams than the package does."""
    monkeypatch.setattr(zstandard, "ZSTD_VERSION", (1, 4, 99))
    assert not load_zstd_library.__wrapped__()


def test_no_library_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """None of such a name, one that is something else, a Python that cannot call any."""
    (tmp_path / "libzstd.so.1").write_bytes(b"nothing to load")
    names = ["no-such-library.so.1", str(tmp_path / "libzstd.so.1")]
    monkeypatch.setattr(zstd_library, "_names", lambda: iter(names))
    assert not load_zstd_library.__wrapped__()
    monkeypatch.setitem(sys.modules, "ctypes", None)
    assert not load_zstd_library.__wrapped__()


def test_function_without_an_address_is_refused() -> None:
    """Unless there is a library already, which stays."""
    if load_zstd_library():
        use(0, 0, 0, 0)
    else:
        with pytest.raises(ValueError, match="address"):
            use(1, 1, 1, 0)


def test_log_is_read_alike_with_a_library_and_without(tmp_path: Path) -> None:
    """Whole and in part, by columns and by a filter; zstd beside other codecs."""
    load_zstd_library()
    with manual_log(tmp_path / "orders-0", compression_type="zstd", **SIZES) as log:
        for codec in ("zstd", "lz4", "zstd", "uncompressed", "gzip", "zstd"):
            log.reconfigure(log.config.replace(compression_type=codec))
            log.append([Record(key=b"k%d" % n, value=b"word " * n) for n in range(60)])
        ways: tuple[dict[str, Any], ...] = (
            {},
            {"start": 70, "end": 290},
            {"columns": ["offset", "value"]},
        )
        for how in ways:
            found = []
            for used in (False, True):
                set_used(used)
                found.append(pa.table(log.scan(**how)))
            assert found[0].num_rows > 200
            assert found[0] == found[1]
