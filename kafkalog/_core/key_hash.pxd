"""128-bit hashes of keys, for the kernels of other modules; see key_hash_hw.c."""

from libc.stdint cimport uint8_t


cdef extern from "key_hash_hw.h" nogil:
    ctypedef struct KeyBytes "kafkalog_key":
        const uint8_t* data
        size_t size


cdef enum:
    HASH_SIZE = 16
    SECRET_SIZE = 16


# Identity of keys.
cdef enum KeyIdentity:
    IDENTITY_MD5 = 0
    IDENTITY_SIPHASH = 1


cdef struct KeyHasher:
    KeyIdentity identity
    uint8_t[SECRET_SIZE] secret        # of SipHash


cdef void hash_keys(
    const KeyHasher* hasher, const KeyBytes* keys, size_t count, uint8_t* hashes
) noexcept nogil

cdef KeyIdentity identity_of(str name) except *
