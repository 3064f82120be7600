"""Every offset, size and mask of Kafka's formats, each a sum of the one before. No code.

Positions are relative to the first byte of a batch. Integers on disk are big-endian.
"""

cdef enum:
    # Framing common to every magic.
    BASE_OFFSET_POSITION = 0
    BATCH_LENGTH_POSITION = BASE_OFFSET_POSITION + 8
    LOG_OVERHEAD = BATCH_LENGTH_POSITION + 4             # bytes that batch_length does not count
    LEADER_EPOCH_POSITION = LOG_OVERHEAD
    MAGIC_POSITION = LEADER_EPOCH_POSITION + 4
    HEADER_SIZE_UP_TO_MAGIC = MAGIC_POSITION + 1         # bytes needed before a batch can be typed

    # Record batch, magic 2 (DefaultRecordBatch).
    CRC_POSITION = HEADER_SIZE_UP_TO_MAGIC
    ATTRIBUTES_POSITION = CRC_POSITION + 4               # first byte that the CRC covers
    LAST_OFFSET_DELTA_POSITION = ATTRIBUTES_POSITION + 2
    BASE_TIMESTAMP_POSITION = LAST_OFFSET_DELTA_POSITION + 4
    MAX_TIMESTAMP_POSITION = BASE_TIMESTAMP_POSITION + 8
    PRODUCER_ID_POSITION = MAX_TIMESTAMP_POSITION + 8
    PRODUCER_EPOCH_POSITION = PRODUCER_ID_POSITION + 8
    BASE_SEQUENCE_POSITION = PRODUCER_EPOCH_POSITION + 2
    RECORD_COUNT_POSITION = BASE_SEQUENCE_POSITION + 4
    RECORDS_POSITION = RECORD_COUNT_POSITION + 4
    RECORD_BATCH_OVERHEAD = RECORDS_POSITION             # 61
    BATCH_LENGTH_MIN = RECORD_BATCH_OVERHEAD - LOG_OVERHEAD
    BATCH_LENGTH_MAX = 0x7fffffff - LOG_OVERHEAD         # no segment file is larger than 2^31-1

    # Message of a message set, magic 0 (LegacyRecord); no records follow, it is one.
    MESSAGE_CRC_POSITION = LOG_OVERHEAD
    MESSAGE_MAGIC_POSITION = MESSAGE_CRC_POSITION + 4    # first byte that the CRC covers
    MESSAGE_ATTRIBUTES_POSITION = MESSAGE_MAGIC_POSITION + 1
    MESSAGE_KEY_SIZE_POSITION_V0 = MESSAGE_ATTRIBUTES_POSITION + 1
    MESSAGE_KEY_POSITION_V0 = MESSAGE_KEY_SIZE_POSITION_V0 + 4
    MESSAGE_OVERHEAD_V0 = MESSAGE_KEY_POSITION_V0 + 4    # 26: an entry with null key and value
    LEGACY_LENGTH_MIN = MESSAGE_OVERHEAD_V0 - LOG_OVERHEAD

    # The same, magic 1: a timestamp follows the attributes.
    MESSAGE_TIMESTAMP_POSITION = MESSAGE_ATTRIBUTES_POSITION + 1
    MESSAGE_KEY_SIZE_POSITION_V1 = MESSAGE_TIMESTAMP_POSITION + 8
    MESSAGE_KEY_POSITION_V1 = MESSAGE_KEY_SIZE_POSITION_V1 + 4
    MESSAGE_OVERHEAD_V1 = MESSAGE_KEY_POSITION_V1 + 4    # 34
    LEGACY_LENGTH_MIN_V1 = MESSAGE_OVERHEAD_V1 - LOG_OVERHEAD

    # Attributes of a batch, low byte.
    CODEC_MASK = 0x07
    TIMESTAMP_TYPE_MASK = 0x08
    TRANSACTIONAL_MASK = 0x10
    CONTROL_MASK = 0x20
    DELETE_HORIZON_MASK = 0x40

    CODEC_NONE = 0
    CODEC_GZIP = 1
    CODEC_SNAPPY = 2
    CODEC_LZ4 = 3
    CODEC_ZSTD = 4

    MAGIC_V0 = 0
    MAGIC_V1 = 1
    MAGIC_V2 = 2

    # One record is never shorter: attributes, timestamp and offset delta, key, value, header count.
    RECORD_BODY_SIZE_MIN = 6
    RECORD_SIZE_MIN = RECORD_BODY_SIZE_MIN + 1

    # Entry of an offset index: offset minus base offset, position in the segment; i32 both.
    OFFSET_ENTRY_OFFSET_POSITION = 0
    OFFSET_ENTRY_POSITION_POSITION = OFFSET_ENTRY_OFFSET_POSITION + 4
    OFFSET_INDEX_ENTRY_SIZE = OFFSET_ENTRY_POSITION_POSITION + 4

    # Entry of a time index: i64 timestamp, i32 offset minus base offset.
    TIME_ENTRY_TIMESTAMP_POSITION = 0
    TIME_ENTRY_OFFSET_POSITION = TIME_ENTRY_TIMESTAMP_POSITION + 8
    TIME_INDEX_ENTRY_SIZE = TIME_ENTRY_OFFSET_POSITION + 4

    VARINT_SIZE_MAX = 5
    VARLONG_SIZE_MAX = 10

cdef enum:
    NO_TIMESTAMP = -1
    NO_PRODUCER_ID = -1
    NO_PRODUCER_EPOCH = -1
    NO_SEQUENCE = -1
    NO_PARTITION_LEADER_EPOCH = -1
    NO_RECORD_COUNT = -1                                 # of a wrapper: only decoding counts
    NO_TIMESTAMP_TYPE = -1                               # of magic 0
