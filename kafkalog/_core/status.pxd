"""Status codes that kernels return instead of raising. Zero is success; the others are failures.

`raise_for_status` in status.pyx is the one place that turns them into exceptions.
"""

cdef enum Status:
    STATUS_OK = 0
    STATUS_TRUNCATED = 1               # the bytes end before the item does
    STATUS_VARINT_TOO_LONG = 2         # sixth byte of a varint, eleventh of a varlong
    STATUS_BATCH_LENGTH = 3            # batch_length below the smallest batch or above 2^31-13
    STATUS_MAGIC = 4                   # magic is not 0, 1 or 2
    STATUS_CRC = 5                     # CRC-32C of attributes..end disagrees with the header
    STATUS_RECORD_COUNT = 6            # record_count negative, or disagrees with the payload
    STATUS_LAST_OFFSET_DELTA = 7       # negative, or the offsets overflow 63 bits
    STATUS_RECORD_LENGTH = 8           # a record's length disagrees with its fields
    STATUS_FIELD_LENGTH = 9            # key, value or header runs past its record
    STATUS_HEADER_COUNT = 10           # negative, or more than the bytes left could hold
    STATUS_HEADER_KEY = 11             # a null header key
    STATUS_TRAILING_BYTES = 12         # bytes left after the last declared record
    STATUS_OFFSET_DELTA = 13           # record offsets outside the batch, or not rising
    STATUS_OFFSET_ORDER = 14           # a batch begins at or below the end of the one before
    STATUS_UNKNOWN_CODEC = 15          # codec bits 5 to 7
    STATUS_COMPRESSED = 16             # payload is compressed: decompress it first
    STATUS_LEGACY = 17                 # magic 0 or 1: another reader's batch
    STATUS_FULL = 18                   # the columns or the buffer of the caller are full
    STATUS_TOO_LARGE = 19              # the result does not fit the format's 32-bit lengths
    STATUS_BASE_OFFSET = 20            # a stored base offset is negative
    STATUS_NO_MEMORY = 21
    STATUS_INTERNAL = 22               # a broken invariant of our own
    STATUS_RELATIVE_OFFSET = 23        # an offset or position does not fit 32 bits in its segment
    STATUS_NESTED_COMPRESSION = 24     # an old compressed message inside another
    STATUS_EMPTY_WRAPPER = 25          # an old compressed message that holds no message
    STATUS_LAST = 25                   # highest code; a test walks 1..STATUS_LAST

cdef object raise_for_status(int status, Py_ssize_t position, object path=*, object base_offset=*)
