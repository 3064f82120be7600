"""Check that bytes are UTF-8 as in the Unicode standard: shortest forms, no surrogates."""

from libc.stdint cimport int64_t, uint8_t


cdef inline bint is_utf8(const uint8_t* data, int64_t size) noexcept nogil:
    cdef const uint8_t* end = data + size
    cdef uint8_t byte
    cdef uint8_t lower
    cdef uint8_t upper
    cdef int more
    while data < end:
        byte = data[0]
        data += 1
        if byte < 0x80:
            continue
        lower = 0x80
        upper = 0xbf
        if 0xc2 <= byte < 0xe0:
            more = 1
        elif 0xe0 <= byte < 0xf0:
            more = 2
            lower = 0xa0 if byte == 0xe0 else 0x80
            upper = 0x9f if byte == 0xed else 0xbf
        elif 0xf0 <= byte < 0xf5:
            more = 3
            lower = 0x90 if byte == 0xf0 else 0x80
            upper = 0x8f if byte == 0xf4 else 0xbf
        else:
            return False
        if end - data < more or not lower <= data[0] <= upper:
            return False
        data += 1
        more -= 1
        while more > 0:
            if not 0x80 <= data[0] <= 0xbf:
                return False
            data += 1
            more -= 1
    return True
