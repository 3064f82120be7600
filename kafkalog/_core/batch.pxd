"""Exports for other modules; all of them are defined in header.pxd."""

from kafkalog._core.header cimport (
    BatchFields,
    BatchHeader,
    check_batch_fields,
    crc_of_batch,
    last_offset_of,
    load_batch_fields,
    load_batch_framing,
    load_whole_batch,
    make_header,
    open_cursor,
    prefetch_header,
)
