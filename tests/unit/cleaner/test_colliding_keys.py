"""Tests of two keys with one MD5 sum, in whole files: a broker's cleaner takes them for one key."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog import CleanerConfig, LogConfig, Record, open_log
from kafkalog.cleaner.compaction import compact_log
from tests.support.golden import vectors


@pytest.mark.parametrize(
    ("identity", "kept"),
    [("md5", [1]), ("siphash", [0, 1]), ("exact", [0, 1]), (None, [0, 1])],
    ids=["md5", "keyed", "exact", "default"],
)
@pytest.mark.parametrize("codec", ["uncompressed", "zstd"])
def test_colliding_keys_are_distinct_under_a_keyed_hash(
    tmp_path: Path, identity: str | None, kept: list[int], codec: str
) -> None:
    """HOST-16: under MD5, as in Kafka, the later key removes the other key's record."""
    found = vectors("md5_collision")
    first, second = bytes.fromhex(found["first"]), bytes.fromhex(found["second"])
    assert first != second
    settings = LogConfig(cleanup_policy=("compact",), compression_type=codec)
    with open_log(tmp_path / "keys-0", config=settings) as log:
        log.append([Record(key=first, value=b"of the first"), Record(key=b"x", value=b"0")])
        log.append([Record(key=second, value=b"of the second"), Record(key=b"x", value=b"1")])
        config = None if identity is None else CleanerConfig(hash_algorithm=identity)
        compact_log(log, include_active=True, config=config)
        left = [record.key for record in log.records()]
    assert [each for number, each in enumerate((first, second)) if number in kept] == left[:-1]
    assert b"x" == left[-1]
