"""Lists of brokers' directories, by headers alone: equal to the manifests and to opened logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog import PartitionListing, list_partitions, open_log
from kafkalog.codec_table import CODEC_NAMES
from tests.support.golden import CLEAN, UNCLEAN, Manifest, data_directory, partitions, unchanged
from tests.support.golden_old import OldManifest, old_data_directory, old_partitions

BROKERS = ("kafka-0.8.2", "kafka-0.9.0", "kafka-0.10.2", "kafka-2.8")


def listed(directory: Path) -> dict[str, PartitionListing]:
    """List a directory; it stays as it was."""
    with unchanged(directory):
        found = list_partitions(directory)
    return {each.path.name: each for each in found}


def test_list_of_a_data_directory_has_the_offsets_of_the_manifests() -> None:
    """Start, end, segments and sizes of every partition of a broker of today."""
    found = listed(data_directory(CLEAN))
    assert sorted(found) == sorted(partitions(CLEAN))
    for name, listing in found.items():
        summary = Manifest(CLEAN, name).summary
        expected = (summary.log_start_offset, summary.log_end_offset, summary.segment_count)
        shown = (listing.start_offset, listing.end_offset, listing.segment_count)
        assert expected == shown, name
        files = sum(path.stat().st_size for path in listing.path.glob("*.log"))
        assert listing.size_bytes == files, name
        assert listing.problems == (), name


@pytest.mark.parametrize("broker", BROKERS)
def test_list_of_an_old_directory_has_the_offsets_of_the_manifests(broker: str) -> None:
    """Formats v0, v1 and v2, wrappers, wide segments, preallocated files."""
    found = listed(old_data_directory(broker))
    assert sorted(found) == sorted(old_partitions(broker))
    for name, listing in found.items():
        summary = OldManifest(broker, name).summary
        expected = (summary.log_start_offset, summary.log_end_offset)
        assert expected == (listing.start_offset, listing.end_offset), name
        assert listing.problems == (), name


@pytest.mark.parametrize("name", partitions(CLEAN))
def test_listing_of_a_partition_equals_its_batches(name: str) -> None:
    """Codec, epoch and time of the last batch, and the first time, from a full read."""
    directory = data_directory(CLEAN) / name
    (listing,) = list_partitions(directory)
    facts = list(Manifest(CLEAN, name).batches())
    if not facts:
        assert (listing.codec, listing.last_timestamp_ms) == (None, None)
        return
    last = facts[-1]
    assert listing.codec == CODEC_NAMES[last.codec]
    assert listing.leader_epoch == last.leader_epoch
    assert listing.last_timestamp_ms == (last.max_timestamp if last.max_timestamp >= 0 else None)


def test_list_of_an_unclean_directory_equals_the_opened_logs() -> None:
    """Indexes that were not trimmed: zeros after their entries; a tail may be incomplete."""
    for listing in listed(data_directory(UNCLEAN)).values():
        with open_log(listing.path, read_only=True) as log:
            if not listing.problems:
                assert listing.end_offset == log.log_end_offset, listing.path
