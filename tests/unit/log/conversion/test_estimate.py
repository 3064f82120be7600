"""Tests of estimates of conversions, within the limits of their samples."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

import kafkalog
from kafkalog import Codec, LogConfig, Record
from kafkalog.errors import UnsupportedCodecError
from kafkalog.log.conversion import estimate as codec_estimate
from kafkalog.log.conversion.estimate import estimate_codecs
from kafkalog.log.conversion.single_log import convert_log
from kafkalog.records.codecs import compress
from tests.support.golden import CLEAN, data_directory, unchanged
from tests.support.golden_old import old_data_directory


@pytest.mark.parametrize(
    "source",
    [
        data_directory(CLEAN) / "mixed-codec-0",
        old_data_directory("kafka-0.10.2") / "codecs-0",
    ],
    ids=lambda path: path.name,
)
def test_estimate_small_log_equals_its_conversion(tmp_path: Path, source: Path) -> None:
    """All of the log is sampled: only the cut of merged messages may differ."""
    with unchanged(source):
        found = estimate_codecs(source)
    assert found.sampled_bytes == found.log_bytes
    assert list(Codec) == [estimate.codec for estimate in found.codecs]
    for estimate in found.codecs:
        assert estimate.problem is None
        made = convert_log(
            source, tmp_path / f"{estimate.codec.kafka_name}-0", codec=estimate.codec
        )
        assert made.result_bytes == pytest.approx(found.expected_bytes(estimate), rel=0.02)


def test_estimate_large_log_samples_all_parts(tmp_path: Path) -> None:
    """At most the requested bytes are read; in an even log the ratio is that of the whole."""
    with kafkalog.open_log(tmp_path / "a-0", config=LogConfig(batch_bytes=2000)) as log:
        log.append(Record(value=b"%08d " % number * 20) for number in range(5000))
    found = estimate_codecs(tmp_path / "a-0", samples=10, sample_bytes=8000)
    assert 10 <= found.sample_count <= 11
    assert found.sampled_bytes < found.log_bytes / 5
    made = convert_log(tmp_path / "a-0", tmp_path / "b-0", codec=Codec.ZSTD)
    assert made.result_bytes == pytest.approx(found.expected_bytes(found.codecs[4]), rel=0.05)


def test_estimate_measures_speed_with_the_given_clock() -> None:
    """Each read of the clock adds a microsecond."""
    ticks = count(0, 1000)
    found = estimate_codecs(
        data_directory(CLEAN) / "plain-small-0",
        codecs=[Codec.GZIP],
        level=1,
        timer=lambda: next(ticks),
    )
    estimate = found.codecs[0]
    assert 1 == estimate.level
    assert estimate.compress_bytes_per_s == estimate.decompress_bytes_per_s > 1e6


def test_estimate_empty_log_has_ratio_1() -> None:
    """There are no bytes to sample."""
    found = estimate_codecs(data_directory(CLEAN) / "empty-0")
    assert (0, 0, 0) == (found.log_bytes, found.sampled_bytes, found.sample_count)
    assert {1.0} == {found.ratio(estimate) for estimate in found.codecs}


def test_estimate_missing_library_is_named_and_others_are_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An estimate does not require every codec to be installed."""

    def without_snappy(codec: Codec, data: bytes, level: int | None) -> bytes:
        if codec is Codec.SNAPPY:
            raise UnsupportedCodecError("snappy needs the extra")
        return compress(codec, data, level)

    monkeypatch.setattr(codec_estimate, "compress", without_snappy)
    found = estimate_codecs(data_directory(CLEAN) / "plain-small-0")
    problems = {e.codec: e.problem for e in found.codecs if e.problem}
    assert {Codec.SNAPPY: "snappy needs the extra"} == problems
