"""Tests of the table of codecs against the definitions derived from it, and the kernels."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from kafkalog import LogConfig
from kafkalog.codec_table import CODEC_CHOICES, CODEC_NAMES, CODECS, CodecRow
from kafkalog.errors import ConfigError, UnsupportedCodecError
from kafkalog.records.codecs import Codec, compress, decompress, is_codec_of
from kafkalog.settings import settings_of

ROOT = Path(__file__).parents[2]


def test_codec_table_rows_are_the_members_of_codec() -> None:
    """Rows are sorted by id; the enumeration is written out for the type checker."""
    assert [(row.id, row.name) for row in CODECS] == [(int(c), c.kafka_name) for c in Codec]
    assert [row.id for row in CODECS] == list(range(len(CODECS)))


def test_codec_table_ids_are_the_constants_of_the_kernels() -> None:
    """`layout.pxd` has the same ids."""
    text = (ROOT / "kafkalog/_core/layout.pxd").read_text()
    found = {name.lower(): int(value) for name, value in re.findall(r"CODEC_(\w+) = (\d+)\n", text)}
    assert {row.name: row.id for row in CODECS} == found


@pytest.mark.parametrize("row", CODECS, ids=CODEC_NAMES)
def test_codec_table_format_is_accepted_by_compress(row: CodecRow) -> None:
    """A codec of a later format is refused for older ones, and accepted for the others."""
    for magic in (0, 1, 2):
        assert (magic >= row.first_magic) == is_codec_of(magic, row.id)
        if magic >= row.first_magic:
            made = compress(row.id, b"some bytes", magic=magic)
            assert b"some bytes" == decompress(row.id, made, magic=magic)
        else:
            with pytest.raises(UnsupportedCodecError):
                compress(row.id, b"some bytes", magic=magic)


@pytest.mark.parametrize("row", CODECS, ids=CODEC_NAMES)
def test_codec_table_levels_are_those_of_the_setting(row: CodecRow) -> None:
    """Every codec with levels has a setting with its limits, and no other codec has one."""
    setting = settings_of(LogConfig).get(f"compression_{row.name}_level")
    assert (row.levels is None) == (setting is None)
    if row.levels is None or setting is None:
        assert LogConfig().compression_level(row.name) is None
        return
    assert row.levels.default == setting.default == LogConfig().compression_level(row.name)
    for level in (row.levels.lower, row.levels.upper):
        assert level == setting.check(level)
    for level in (row.levels.lower - 3, row.levels.upper + 1):
        with pytest.raises(ConfigError):
            setting.check(level)


def test_codec_names_are_the_values_of_settings_and_options() -> None:
    """`compression.type` in Kafka's order, help in that of the ids."""
    assert ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer") == (
        settings_of(LogConfig)["compression_type"].choices
    )
    assert "none, gzip, snappy, lz4 or zstd" == CODEC_CHOICES


def test_codec_table_extras_and_packages_are_those_of_the_project() -> None:
    """A package is a dependency, or in the extra that the row names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for row in CODECS:
        if row.package is not None:
            requirements = (
                project["optional-dependencies"][row.extra]
                if row.extra is not None
                else project["dependencies"]
            )
            assert any(each.startswith(row.package) for each in requirements), row


def test_codec_page_of_the_docs_lists_every_codec() -> None:
    """The table of the format page has a row for each codec but `none`."""
    text = (ROOT / "docs/format/compression.md").read_text()
    found = re.findall(r"^\| (\d) \| (\w+) \|", text, re.MULTILINE)
    assert [(str(row.id), row.name) for row in CODECS[1:]] == found
