"""Decode plain messages of the old formats, a run of them in one call, to Python objects.

Such a message is a batch of one record. To open each by itself costs many times what decoding it
does, so here a run is walked as `decode_run` walks it: header, CRC and fields of one message after
the other. The three doors differ in what they make, and are those of record.pyx: lazy records,
tuples, or lists.

Bad bytes are told, not raised: what comes before them is good, and is the caller's.

Never decompresses: a run ends before a wrapper.
Thread-safety: pure functions. They hold the GIL, for they make objects.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memset

from kafkalog._core.cursor cimport Cursor
from kafkalog._core.header cimport BatchFields, is_legacy, load_whole_batch
from kafkalog._core.message_set cimport (
    MessageFields,
    check_is_plain,
    finish_fields,
    load_message,
    timestamp_type_of,
)
from kafkalog._core.objects cimport new_field
from kafkalog._core.record cimport (
    check_payload,
    make_pair,
    make_record,
    open_payload,
    PayloadRef,
    RecordFields,
    RecordsContext,
)
from kafkalog._core.status cimport STATUS_MAGIC, STATUS_OK


# Where a walk over a run stands, and the message that it has come to.
cdef struct RunState:
    Cursor cursor
    BatchFields entry
    RecordsContext context
    RecordFields fields
    bint check_crc
    bint strict


cdef inline RunState _open_run(
    const Py_buffer* view, Py_ssize_t position, object end, bint check_crc, bint strict
) except *:
    cdef RunState run
    memset(&run, 0, sizeof(run))
    run.cursor = open_payload(view, position, view.len if end is None else end)
    run.check_crc = check_crc
    run.strict = strict
    return run


cdef int _next_plain(RunState* run) noexcept nogil:
    """Check and load the message at the cursor, which moves behind it where it is good."""
    cdef const uint8_t* position = run.cursor.position
    cdef MessageFields message
    cdef int status = load_whole_batch(&run.cursor, &run.entry)
    if status == STATUS_OK and not is_legacy(&run.entry):
        status = STATUS_MAGIC
    if status == STATUS_OK:
        status = check_is_plain(position, &run.entry, run.check_crc)
    if status != STATUS_OK:
        return status
    status = load_message(
        position, position + run.entry.size_bytes, run.check_crc, run.strict, &message
    )
    if status != STATUS_OK:
        return status
    run.context.base_offset = run.entry.base_offset
    run.context.timestamp_base = message.timestamp
    run.context.timestamp_type = timestamp_type_of(message.magic, run.entry.attributes)
    run.fields.key = message.key
    run.fields.key_size = message.key_size
    run.fields.value = message.value
    run.fields.value_size = message.value_size
    run.fields.end = message.end
    run.cursor.position = message.end
    return STATUS_OK


cdef inline int _append_field(list target, const uint8_t* data, int32_t size) except -1:
    cdef PyObject* made = new_field(data, size)
    target.append(<object>made)
    Py_DECREF(<object>made)            # the list has its own reference
    return 0


cdef inline Py_ssize_t _reached(const RunState* run, const Py_buffer* view) noexcept nogil:
    return run.cursor.position - <const uint8_t*>view.buf


def decode_run_records(
    data not None,
    Py_ssize_t position=0,
    *,
    end=None,
    bint check_crc=True,
    bint strict=True,
):
    """
    Decode the plain messages from `position` to `end` to lazy Record objects.

    Args:
        data: any buffer; it stays held until every record is gone or detached.
        position: where a message begins.
        end: where to stop; the end of `data` if None.
        check_crc: check the sum of each message; it may have been done.
        strict: as in `decode_messages`.

    Returns:
        (records, position reached, status). The status is 0 at the end; else it says why the
        message at that position is not taken: STATUS_COMPRESSED (a wrapper), STATUS_MAGIC (another
        format), STATUS_TRUNCATED (not all there), or what is wrong with it.
    """
    cdef PayloadRef hold = PayloadRef.__new__(PayloadRef, data)
    cdef RunState run = _open_run(&hold.view, position, end, check_crc, strict)
    cdef list records = []
    cdef int status = STATUS_OK
    while run.cursor.position < run.cursor.end:
        status = _next_plain(&run)
        if status != STATUS_OK:
            break
        finish_fields(&run.fields)
        records.append(make_record(&run.context, &run.fields, hold))
    check_payload(&hold.view, position, hold.view.len)
    return records, _reached(&run, &hold.view), status


def decode_run_tuples(
    data not None,
    Py_ssize_t position=0,
    *,
    end=None,
    bint check_crc=True,
    bint strict=True,
):
    """
    Decode plain messages to (key, value) tuples.

    Arguments and return value are those of `decode_run_records`; `data` is not held afterwards.
    """
    cdef Py_buffer view
    cdef RunState run
    cdef list pairs = []
    cdef int status = STATUS_OK
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        run = _open_run(&view, position, end, check_crc, strict)
        while run.cursor.position < run.cursor.end:
            status = _next_plain(&run)
            if status != STATUS_OK:
                break
            pairs.append(make_pair(&run.fields))
        check_payload(&view, position, view.len)
        return pairs, _reached(&run, &view), status
    finally:
        PyBuffer_Release(&view)


def decode_run_lists(
    data not None,
    Py_ssize_t position=0,
    *,
    end=None,
    bint check_crc=True,
    bint strict=True,
):
    """
    Decode plain messages to two lists, keys and values, of bytes or None.

    Arguments are those of `decode_run_records`, and `data` is not held afterwards.

    Returns:
        (keys, values, position reached, status).
    """
    cdef Py_buffer view
    cdef RunState run
    cdef list keys = []
    cdef list values = []
    cdef int status = STATUS_OK
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        run = _open_run(&view, position, end, check_crc, strict)
        while run.cursor.position < run.cursor.end:
            status = _next_plain(&run)
            if status != STATUS_OK:
                break
            _append_field(keys, run.fields.key, run.fields.key_size)
            _append_field(values, run.fields.value, run.fields.value_size)
        check_payload(&view, position, view.len)
        return keys, values, _reached(&run, &view), status
    finally:
        PyBuffer_Release(&view)
