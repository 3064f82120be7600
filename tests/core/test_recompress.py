"""Tests of `replace_payload`: a recompressed batch keeps all other fields."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafkalog._core.batch import check_batch
from kafkalog._core.header import parse_header
from kafkalog._core.recompress import replace_payload
from kafkalog._core.status import STATUS_CODES
from kafkalog.errors import CorruptRecordError, UnsupportedCodecError
from kafkalog.records.codecs import Codec, compress
from tests.support import reference
from tests.support.record_cases import MIXED_PAYLOAD
from tests.support.reference import Header

HEADER = Header(
    base_offset=1000,
    partition_leader_epoch=7,
    last_offset_delta=9000,
    base_timestamp=1_700_000_086_400,
    max_timestamp=1_700_000_000_999,
    producer_id=4242,
    producer_epoch=3,
    base_sequence=17,
    record_count=9,
    attributes=0x55D8,  # append time, transactional, delete horizon, and unused bits
)
BATCH = reference.encode_batch(HEADER, MIXED_PAYLOAD)


@pytest.mark.parametrize("codec", list(Codec))
def test_replace_payload_keeps_every_field_but_codec_length_and_crc(codec: Codec) -> None:
    """The bytes equal those of a batch built with this codec."""
    payload = compress(codec, MIXED_PAYLOAD)
    expected = reference.encode_batch(
        replace(HEADER, attributes=HEADER.attributes | int(codec)), payload
    )
    assert expected == replace_payload(BATCH, int(codec), payload)


def test_replace_payload_with_the_original_restores_the_bytes() -> None:
    """From zstd back to no codec."""
    there = replace_payload(BATCH, Codec.ZSTD, compress(Codec.ZSTD, MIXED_PAYLOAD))
    assert STATUS_CODES["OK"] == check_batch(there)
    assert BATCH == replace_payload(there, Codec.NONE, MIXED_PAYLOAD)
    assert 9 == parse_header(there).record_count


@pytest.mark.parametrize("codec", [-1, 5, 8])
def test_replace_payload_with_an_unknown_codec_is_refused(codec: int) -> None:
    """Its bits would overwrite other attributes."""
    with pytest.raises(UnsupportedCodecError):
        replace_payload(BATCH, codec, MIXED_PAYLOAD)


def test_replace_payload_of_a_cut_batch_is_refused() -> None:
    """Only whole batches are accepted."""
    with pytest.raises(CorruptRecordError):
        replace_payload(BATCH[:-1], 0, MIXED_PAYLOAD)
