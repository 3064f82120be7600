"""Codecs of batches: which ids are known, to which format, and which ones kernels decode.

Kernels call these functions and compare no codec themselves. `kafkalog.records.codecs.CODECS` has
the same facts for Python, with names, levels and libraries; a test compares both.

A new codec is a constant in `layout.pxd`, a line here and a row in `CODECS`.
"""

from kafkalog._core.layout cimport CODEC_LZ4, CODEC_NONE, CODEC_SNAPPY, CODEC_ZSTD, MAGIC_V2


cdef inline bint is_known_codec(int codec) noexcept nogil:
    """Return whether an id, at most three bits of a batch, is that of a codec."""
    return CODEC_NONE <= codec <= CODEC_ZSTD


cdef inline bint is_codec_of_format(int codec, int magic) noexcept nogil:
    """Return whether batches of a format can have a codec."""
    return CODEC_NONE <= codec <= (CODEC_ZSTD if magic >= MAGIC_V2 else CODEC_LZ4)


cdef inline bint is_decoded_here(int codec) noexcept nogil:
    """Return whether kernels decode the records of a codec without a Python package."""
    return codec == CODEC_LZ4 or codec == CODEC_SNAPPY
