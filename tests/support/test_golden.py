"""Tests of the golden data: it is whole, and its manifests agree with its bytes."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.support import golden

SUMS = golden.GOLDEN / "SHA256SUMS"


def _listed() -> dict[str, str]:
    lines = SUMS.read_text("ascii").splitlines()
    return {name: digest for digest, name in (line.split("  ", 1) for line in lines)}


def test_golden_files_equal_their_checksums() -> None:
    """A missing, altered or additional file is an error: a broker's bytes are never edited."""
    found = {name: digest for name, digest in golden.snapshot(golden.GOLDEN).items() if digest}
    del found["SHA256SUMS"]
    assert _listed() == found


@pytest.mark.parametrize(("data_set", "partition"), golden.all_partitions())
def test_manifest_counts_equal_its_summary(data_set: str, partition: str) -> None:
    """Records, batches and control records are counted in the summary."""
    manifest = golden.Manifest(data_set, partition)
    summary = manifest.summary
    records = list(manifest.records())
    batches = list(manifest.batches())
    assert partition == summary.partition
    assert summary.record_count == len(records)
    assert summary.batch_count == len(batches)
    assert summary.control_record_count == sum(record.is_control for record in records)
    assert summary.empty_batches == tuple(b.base_offset for b in batches if b.record_count == 0)
    assert summary.segment_count == len(summary.segments)


@pytest.mark.parametrize(("data_set", "partition"), golden.all_partitions())
def test_manifest_files_equal_the_directory(data_set: str, partition: str) -> None:
    """The summary has the sizes and hashes of the files in its directory."""
    manifest = golden.Manifest(data_set, partition)
    for name, fact in manifest.summary.raw["files"].items():
        data = (manifest.directory / name).read_bytes()
        assert fact["bytes"] == len(data)
        assert fact["sha256"] == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize(("data_set", "partition"), golden.all_partitions())
def test_canonical_hash_of_manifest_equals_summary(data_set: str, partition: str) -> None:
    """Our canonical hash is the one the summaries were made with (where no value is left out)."""
    manifest = golden.Manifest(data_set, partition)
    start = manifest.summary.log_start_offset
    records = [r for r in manifest.records() if not r.is_control and r.offset >= start]
    actual = golden.canonical_hash(records)
    assert manifest.summary.data.count == actual.count
    if all(record.value_sha256 is None for record in records):
        assert manifest.summary.data.sha256 == actual.sha256


def test_manifest_of_a_recovered_swap_describes_fewer_records() -> None:
    """The swap set has two manifests: of the files, and of the log after a broker's recovery."""
    before = golden.Manifest(golden.SWAP, "u-compact-0")
    after = golden.Manifest(golden.SWAP, "u-compact-0", recovered=True)
    assert before.summary.record_count > after.summary.record_count
    assert before.summary.recovered is not None
    assert before.summary.recovered.record_count == len(list(after.records()))


def test_record_fact_compares_long_null_and_short_values() -> None:
    """A value over 256 bytes is known by hash; null, empty and wrong values are distinct."""
    records = list(golden.Manifest(golden.CLEAN, "plain-0").records())
    long = next(record for record in records if record.value_sha256 is not None)
    null = next(record for record in records if record.value_size < 0)
    short = next(record for record in records if record.value)
    assert not long.has_value(None)
    assert not long.has_value(bytes(long.value_size))
    assert null.has_value(None)
    assert not null.has_value(b"")
    assert short.has_value(short.value)
    assert not short.has_value(b"?" + short.value if short.value else b"?")


def test_copy_data_directory_is_equal_writable_and_separate(tmp_path: Path) -> None:
    """A copy has the same names and bytes, and writing to it leaves the fixture alone."""
    source = golden.data_directory(golden.SWAP)
    with golden.unchanged(source):
        copy = golden.copy_data_directory(golden.SWAP, tmp_path / "copy")
        assert golden.snapshot(source) == golden.snapshot(copy)
        (copy / "meta.properties").write_bytes(b"changed")
    with pytest.raises(AssertionError, match="changed"), golden.unchanged(copy):
        (copy / "added").touch()


def test_copy_partition_of_the_unclean_set_stays_sparse(tmp_path: Path) -> None:
    """Ten preallocated megabytes of zeros take a few blocks, and the bytes are the same."""
    source = golden.data_directory(golden.UNCLEAN) / "__cluster_metadata-0"
    copy = golden.copy_partition(golden.UNCLEAN, "__cluster_metadata-0", tmp_path / "copy")
    assert golden.snapshot(source) == golden.snapshot(copy)
    index = copy / "00000000000000000000.index"
    assert index.stat().st_size == 10 << 20
    assert index.stat().st_blocks * 512 < 1 << 20


@pytest.mark.parametrize(
    ("name", "member"),
    [
        ("batches", "batches"),
        ("batches", "runs"),
        ("crc32c", "inputs"),
        ("invalid", "cases"),
        ("varint", "decode"),
    ],
)
def test_vectors_are_parsed(name: str, member: str) -> None:
    """Each vector file is an object with its version of Kafka and lists of cases."""
    parsed = golden.vectors(name)
    assert "4.1.2" == parsed["kafka"]
    assert len(parsed[member]) > 10
