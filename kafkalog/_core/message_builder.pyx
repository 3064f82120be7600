"""Builder of sets of messages of magic 0 and 1 (MemoryRecordsBuilder): plain ones, and wrappers.

Messages stand alone, each with its own CRC, or together as the compressed value of a wrapper. What
is written is what Kafka's builder writes, byte for byte, from the same calls. The module
records_builder.pyx describes the input of records and the memory.

Offsets count from a base that need not be known before the end: no CRC covers them. Inside a
wrapper those of magic 0 are the true ones, so that its base must be known before compressing; those
of magic 1 count from the base for ever. The log's append time, however, is in each message and
under its CRC: `reset` takes it, before the first.

Thread-safety: none; one caller at a time.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint64_t

from kafkalog._core.builder cimport seal_messages
from kafkalog._core.byteorder cimport load_i32, load_i64, store_i64
from kafkalog._core.codec cimport is_codec_of_format
from kafkalog._core.header_writer cimport checked_last_offset_delta
from kafkalog._core.layout cimport (
    BASE_OFFSET_POSITION,
    BATCH_LENGTH_POSITION,
    CODEC_NONE,
    LOG_OVERHEAD,
    MAGIC_V0,
    MAGIC_V1,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
)
from kafkalog._core.message_writer cimport MessageParts, message_size, write_message
from kafkalog._core.records_builder cimport INITIAL_CAPACITY, RecordsBuilder

from kafkalog.errors import InvalidRecordError, UnsupportedCodecError


cdef void _shift_kernel(uint8_t* message, const uint8_t* end, uint64_t shift) noexcept nogil:
    """Add to the offsets of messages, which are ours and whole."""
    while message < end:
        store_i64(
            message + BASE_OFFSET_POSITION,
            <int64_t>(<uint64_t>load_i64(message + BASE_OFFSET_POSITION) + shift),
        )
        message += LOG_OVERHEAD + load_i32(message + BATCH_LENGTH_POSITION)


@cython.final
cdef class MessageSetBuilder(RecordsBuilder):
    """
    Messages of one magic under construction, reused for set after set.

    Records come in as in a BatchBuilder, but without headers: the old formats have none. Magic 0
    has no timestamps either, and takes no notice of those given.

    >>> builder = MessageSetBuilder(0)
    >>> builder.append(b"k", b"val")
    30
    >>> bytes(builder.finish_plain(base_offset=5)).hex()
    '000000000000000500000012316a1df00000000000016b0000000376616c'
    >>> builder.reset()

    Args:
        magic: 0 or 1.

    Thread-safety: none; one caller at a time.
    """

    def __cinit__(self, int magic, *, Py_ssize_t capacity=INITIAL_CAPACITY):
        if magic not in (MAGIC_V0, MAGIC_V1):
            raise ValueError(f"magic must be 0 or 1, got {magic}")
        self._open(magic, 0, capacity)

    @property
    def magic(self):
        """Format of the messages, 0 or 1."""
        return self.draft.magic

    def reset(self, *, append_time=None):
        """
        Begin another set.

        Args:
            append_time: the log's append time: each message has it and its timestamp type, whatever
                the timestamp of its record. Magic 0 has no timestamps and ignores it. None for
                timestamps of the records.
        """
        cdef int64_t time_ms = NO_TIMESTAMP if append_time is None else append_time
        if time_ms < NO_TIMESTAMP:
            raise InvalidRecordError(f"append time must be -1 or more, got {time_ms}")
        self._clear()
        if append_time is not None and self.draft.magic == MAGIC_V1:
            self.draft.append_time = time_ms
            self.draft.attributes = TIMESTAMP_TYPE_MASK

    cdef int _check(self, int64_t base_offset) except -1:
        if self.draft.count == 0:
            raise InvalidRecordError("a set without messages cannot be closed")
        checked_last_offset_delta(&self.draft, None, base_offset)
        return 0

    cdef object _view(self, int64_t base_offset):
        """Return the messages, sealed, with offsets that count from `base_offset`."""
        seal_messages(&self.draft)
        if base_offset != self.draft.base_offset:
            self._own()
            _shift_kernel(
                self.draft.data,
                self.draft.data + self.draft.size,
                <uint64_t>base_offset - <uint64_t>self.draft.base_offset,
            )
            self.draft.base_offset = base_offset
        return self.memory.view(0, self.draft.size)

    def payload(self, int64_t base_offset=0):
        """
        Return a read-only view of the messages as they lie in a wrapper: what a codec compresses.

        Args:
            base_offset: what is given to `wrap` as well; magic 0 needs it here.

        Raises:
            InvalidRecordError: there is no message, or an offset would be negative or too large.
        """
        self._check(base_offset)
        return self._view(base_offset if self.draft.magic == MAGIC_V0 else 0)

    def finish_plain(self, int64_t base_offset=0):
        """
        Return a read-only view of the messages, each for itself, with their true offsets.

        Args:
            base_offset: what the offset deltas count from.

        Raises:
            InvalidRecordError: there is no message, or an offset would be negative or too large.
        """
        self._check(base_offset)
        return self._view(base_offset)

    def wrap(self, int codec, compressed not None, *, int64_t base_offset=0):
        """
        Return a read-only view of the wrapper around the messages.

        Its offset is that of the last message, its timestamp the largest, or the append time.

        Args:
            codec: 1 to 3.
            compressed: what `payload(base_offset)` gave, compressed.
            base_offset: what the offset deltas count from.

        Raises:
            InvalidRecordError: there is no message, or the arguments contradict each other.
            UnsupportedCodecError: the old formats have no such codec.
            RecordTooLargeError: the wrapper does not fit 32-bit lengths.
        """
        cdef const uint8_t[::1] data = compressed
        cdef int64_t size = message_size(self.draft.magic, -1, data.shape[0])
        cdef MessageParts wrapper
        if codec == CODEC_NONE or not is_codec_of_format(codec, self.draft.magic):
            raise UnsupportedCodecError(
                f"codec {codec} cannot be in a wrapper: the old formats have gzip, snappy and lz4"
            )
        if data.shape[0] == 0:
            raise InvalidRecordError("compressed must not be empty, got 0 bytes")
        self._check(base_offset)
        wrapper.offset = base_offset + self.draft.last_offset_delta
        wrapper.timestamp_ms = self.draft.max_timestamp
        wrapper.key = NULL
        wrapper.key_size = -1
        wrapper.value = &data[0]
        wrapper.value_size = data.shape[0]
        wrapper.magic = self.draft.magic
        wrapper.attributes = codec | self.draft.attributes
        write_message(self._reserve_compressed(size), &wrapper)
        return self.compressed.view(0, size)
