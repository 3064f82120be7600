"""Builder of single v2 batches (MemoryRecordsBuilder): records first, then the header with its CRC.

The bytes are those of Kafka's builder after the same calls. Offset deltas must rise, timestamps
must be -1 or more. `records_builder.pyx` adds records and keeps memory.

Thread-safety: none; one caller at a time.
"""

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from kafkalog._core.header cimport BatchFields
from kafkalog._core.header_writer cimport (
    check_codec,
    check_delete_horizon,
    check_producer,
    checked_last_offset_delta,
    checked_max_timestamp,
    write_batch_header,
)
from kafkalog._core.layout cimport (
    CODEC_NONE,
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    MAGIC_V2,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    RECORD_BATCH_OVERHEAD,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
)
from kafkalog._core.records_builder cimport INITIAL_CAPACITY, RecordsBuilder


@cython.final
cdef class BatchBuilder(RecordsBuilder):
    """
    A batch under construction, reused for batch after batch.

    >>> builder = BatchBuilder()
    >>> builder.append(b"key", b"value", 1700000000000)
    76
    >>> bytes(builder.finish(base_offset=5))[61:].hex()
    '1c000000066b65790a76616c756500'
    >>> builder.reset()

    Thread-safety: none; one caller at a time.
    """

    def __cinit__(self, *, Py_ssize_t capacity=INITIAL_CAPACITY):
        self._open(MAGIC_V2, RECORD_BATCH_OVERHEAD, capacity)

    @property
    def base_timestamp(self):
        """Timestamp that the records' deltas count from; -1 if there is none yet."""
        return self.draft.base_timestamp

    def reset(self, *, base_timestamp=None):
        """
        Begin another batch.

        Args:
            base_timestamp: timestamps are stored relative to it, for example a delete horizon; the
                first record's timestamp if None.
        """
        cdef int64_t base = 0 if base_timestamp is None else base_timestamp
        self._clear()
        if base_timestamp is not None:
            self.draft.base_timestamp = base
            self.draft.has_base_timestamp = True

    # ---- the whole batch

    def payload(self):
        """Return a read-only view of the encoded records: the input of a codec."""
        return self.memory.view(RECORD_BATCH_OVERHEAD, self.draft.size)

    def finish(
        self,
        *,
        int64_t base_offset=0,
        int32_t partition_leader_epoch=NO_PARTITION_LEADER_EPOCH,
        int codec=CODEC_NONE,
        payload=None,
        int timestamp_type=0,
        max_timestamp=None,
        int64_t producer_id=NO_PRODUCER_ID,
        int16_t producer_epoch=NO_PRODUCER_EPOCH,
        int32_t base_sequence=NO_SEQUENCE,
        bint transactional=False,
        bint control=False,
        bint delete_horizon=False,
        last_offset_delta=None,
    ):
        """
        Return a read-only view of the whole batch, header and CRC included.

        Args:
            codec: 0 to 4; above 0, `payload` is the result of `payload()`, compressed.
            timestamp_type: 0 for timestamps of the records, 1 for the log's append time.
            max_timestamp: the append time, needed with timestamp type 1; of an empty batch, the
                largest timestamp that it remembers; not to be given otherwise.
            delete_horizon: the base timestamp given to `reset` is a delete horizon.
            last_offset_delta: the batch's, if larger than that of the last record. Required for a
                batch without records, which compaction leaves.

        Raises:
            InvalidRecordError: arguments contradict each other or the records.
            RecordTooLargeError: the compressed batch does not fit 32-bit lengths.
        """
        cdef BatchFields fields
        fields.base_offset = base_offset
        fields.partition_leader_epoch = partition_leader_epoch
        fields.attributes = <int16_t>(
            codec
            | (TIMESTAMP_TYPE_MASK if timestamp_type else 0)
            | (TRANSACTIONAL_MASK if transactional else 0)
            | (CONTROL_MASK if control else 0)
            | (DELETE_HORIZON_MASK if delete_horizon else 0)
        )
        fields.base_timestamp = self.draft.base_timestamp
        fields.producer_id = producer_id
        fields.producer_epoch = producer_epoch
        fields.base_sequence = base_sequence
        fields.record_count = <int32_t>self.draft.count
        check_codec(&self.draft, codec, payload)
        fields.max_timestamp = checked_max_timestamp(&self.draft, timestamp_type, max_timestamp)
        check_delete_horizon(&self.draft, delete_horizon)
        fields.last_offset_delta = checked_last_offset_delta(
            &self.draft, last_offset_delta, base_offset
        )
        check_producer(&fields)
        if codec == CODEC_NONE:
            self._own()
            write_batch_header(self.memory.data, self.draft.size, &fields)
            return self.memory.view(0, self.draft.size)
        cdef Py_ssize_t size = self._copy_compressed(payload)
        write_batch_header(self.compressed.data, size, &fields)
        return self.compressed.view(0, size)

    cdef Py_ssize_t _copy_compressed(self, object payload) except -1:
        """Copy a compressed payload after space for its header; return the size of both."""
        cdef const uint8_t[::1] data = payload
        cdef Py_ssize_t size = RECORD_BATCH_OVERHEAD + data.shape[0]
        memcpy(
            self._reserve_compressed(size) + RECORD_BATCH_OVERHEAD,
            &data[0],
            <size_t>data.shape[0],
        )
        return size
