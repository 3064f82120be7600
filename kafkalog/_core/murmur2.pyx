"""murmur2 of record keys, and the partition that Kafka's producers choose by it.

`value` and `partition_of` take one key; `hash_column` and `partition_column` a column of keys in
Arrow's layout, without making an object of any. They are Utils.murmur2 and
BuiltInPartitioner.partitionForKey in Kafka: which partition a key goes to is part of a topic's
data, since readers and compaction rely on all records of a key lying in one partition.

Callers are the partitioner of the producer and code that splits columns by partition. The partition
of a record without a key is not decided here.

Thread-safety: pure functions; a column's output belongs to the caller.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t

from kafkalog._core.bytes_column cimport BytesCells, BytesColumn, load_cell
from kafkalog._core.status cimport STATUS_OK


cdef enum:
    # Number of short keys for some tens of microseconds.
    NOGIL_COUNT_MIN = 2000


# ---- kernels ----


cdef int _hash_kernel(
    const BytesCells* cells, Py_ssize_t* slot, Py_ssize_t stop, int32_t partition_count,
    int32_t null_value, int32_t* results,
) noexcept nogil:
    """
    Hash the cells from `slot` to `stop`, into partitions if `partition_count` is above 0.

    On failure `slot` is the one at fault.
    """
    cdef const uint8_t* data = NULL
    cdef int64_t size = 0
    cdef int32_t result
    cdef int status
    while slot[0] < stop:
        status = load_cell(cells, slot[0], &data, &size)
        if status != STATUS_OK:
            return status
        if size < 0:
            result = null_value
        elif partition_count > 0:
            result = partition_of_hash(murmur2(data, size), partition_count)
        else:
            result = murmur2(data, size)
        results[0] = result
        results += 1
        slot[0] += 1
    return STATUS_OK


# ---- entry points ----


cdef int32_t _hash_of(object key) except? -1:
    """Hash a key; a view of it is made only where it is not `bytes`, which takes longest."""
    cdef const uint8_t[::1] view
    if type(key) is bytes:
        return murmur2(<const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))
    view = key
    if view.shape[0] == 0:
        # An empty view has no first byte to point to.
        return murmur2(<const uint8_t*>b"", 0)
    return murmur2(&view[0], view.shape[0])


cdef int32_t _checked_count(object partition_count) except -1:
    if not 1 <= partition_count <= INT32_MAX:
        raise ValueError(f"partition_count must be at least 1, got {partition_count}")
    return partition_count


cdef int _fill(
    BytesColumn keys, Py_ssize_t start, object stop, int32_t partition_count,
    int32_t null_value, int32_t[::1] results,
) except -1:
    cdef Py_ssize_t end = keys.count if stop is None else stop
    cdef Py_ssize_t slot = start
    cdef int status
    if start < 0 or end < start or end > keys.count:
        raise ValueError(f"slots must be in 0 to {keys.count}, got {start} to {end}")
    if results.shape[0] != end - start:
        raise ValueError(f"results must be as many as keys, {end - start}, got {results.shape[0]}")
    if end == start:
        return 0
    if end - start < NOGIL_COUNT_MIN:
        status = _hash_kernel(
            &keys.cells, &slot, end, partition_count, null_value, &results[0]
        )
    else:
        with nogil:
            status = _hash_kernel(
                &keys.cells, &slot, end, partition_count, null_value, &results[0]
            )
    if status != STATUS_OK:
        raise ValueError(f"the offsets of slot {slot} must rise and lie in the data")
    return 0


def value(key not None):
    """
    Return the hash of a key, a signed number of 32 bits.

    Args:
        key: any contiguous buffer of bytes.
    """
    return _hash_of(key)


def partition_of(key not None, partition_count not None):
    """
    Return the partition that a key belongs to.

    Args:
        key: any contiguous buffer of bytes.
        partition_count: how many partitions the topic has, at least 1.
    """
    return partition_of_hash(_hash_of(key), _checked_count(partition_count))


def hash_column(
    BytesColumn keys not None, int32_t[::1] hashes not None, *,
    Py_ssize_t start=0, stop=None, int32_t null_hash=0,
):
    """
    Write the hash of each key of a column to `hashes`.

    Args:
        keys: the keys.
        hashes: output, with the same number of rows.
        start: first slot of the column.
        stop: end of the slots; that of the column if None.
        null_hash: result for a null, which has no hash.

    Raises:
        ValueError: the offsets of a slot do not rise, or the bytes are not there; the results
            before it were written.
    """
    _fill(keys, start, stop, 0, null_hash, hashes)


def partition_column(
    BytesColumn keys not None, partition_count not None, int32_t[::1] partitions not None, *,
    Py_ssize_t start=0, stop=None, int32_t null_partition=-1,
):
    """
    Write the partition that each key of a column belongs to, to `partitions`.

    Args:
        partition_count: how many partitions the topic has, at least 1.
        null_partition: result for a null, which has no partition.

    The rest is as for `hash_column`.
    """
    _fill(keys, start, stop, _checked_count(partition_count), null_partition, partitions)
