"""Identities of record keys: 128-bit hashes, many keys at once.

MD5 is Kafka's (SkimpyOffsetMap); two keys of one hash can be constructed. SipHash-2-4 with a
128-bit result depends on a secret: without it two keys of one hash cannot be constructed. The MD5
kernel is chosen once, at import: keys are hashed in parallel in the lanes of AVX-512 or AVX2, of
the vectors that every CPU has, or one by one. Both passes of a cleaning take 2.5 to 6.3 times as
long with the MD5 of `hashlib`, a call for each key (`asv_bench.peers.own_codecs`).

The callers are the offset map, and holders of keys as a column (`hash_cells`); the other entry
points are for tests and benchmarks.

Thread-safety: pure functions; the table of kernels is written at import only.
"""

from libc.stdint cimport int32_t, uint8_t

from kafkalog._core.mapping cimport check_read


cdef extern from "key_hash_hw.h" nogil:
    void kafkalog_md5_setup()
    void kafkalog_md5_keys(const KeyBytes* keys, size_t count, uint8_t* hashes)
    const char* kafkalog_md5_name(int number)
    void kafkalog_md5_keys_with(int number, const KeyBytes* keys, size_t count, uint8_t* hashes)
    void kafkalog_siphash_keys(
        const uint8_t* secret, const KeyBytes* keys, size_t count, uint8_t* hashes
    )


_IDENTITIES = {"md5": IDENTITY_MD5, "siphash": IDENTITY_SIPHASH}

cdef enum:
    BLOCK_KEYS = 64


cdef void hash_keys(
    const KeyHasher* hasher, const KeyBytes* keys, size_t count, uint8_t* hashes
) noexcept nogil:
    """Write HASH_SIZE bytes for each key."""
    if hasher.identity == IDENTITY_MD5:
        kafkalog_md5_keys(keys, count, hashes)
    else:
        kafkalog_siphash_keys(hasher.secret, keys, count, hashes)


cdef KeyIdentity identity_of(str name) except *:
    if name not in _IDENTITIES:
        raise ValueError(f"key identity must be one of {', '.join(_IDENTITIES)}, got {name!r}")
    return _IDENTITIES[name]


def md5_implementations():
    """Return the names of the MD5 kernels that this CPU can run, fastest first."""
    names = []
    while kafkalog_md5_name(<int>len(names)) is not NULL:
        names.append(kafkalog_md5_name(<int>len(names)).decode())
    return tuple(names)


def md5_with(str name not None, keys not None):
    """
    Return the MD5 sums of keys by one kernel.

    Args:
        name: one of `md5_implementations()`.
        keys: any contiguous buffers of bytes.
    """
    names = md5_implementations()
    if name not in names:
        raise ValueError(f"MD5 kernel must be one of {', '.join(names)}, got {name!r}")
    return _hashed(keys, names.index(name), NULL)


def siphash(const uint8_t[::1] secret not None, keys not None):
    """Return SipHash-2-4-128 of keys, any buffers, under a secret of 16 bytes."""
    if secret.shape[0] != SECRET_SIZE:
        raise ValueError(f"a secret must have {SECRET_SIZE} bytes, got {secret.shape[0]}")
    return _hashed(keys, 0, &secret[0])


def hash_cells(
    const uint8_t[::1] data not None,
    const int32_t[::1] offsets not None,
    *,
    const uint8_t[::1] secret=None,
):
    """
    Return the hashes of the cells of a column of bytes, 16 bytes each, in sequence.

    Releases the GIL.

    Args:
        data: the bytes of all cells.
        offsets: cell i is `data[offsets[i] : offsets[i + 1]]`; one more than there are cells.
        secret: of SipHash, 16 bytes; MD5 if None.
    """
    cdef KeyHasher hasher
    cdef Py_ssize_t count = offsets.shape[0] - 1
    cdef Py_ssize_t i
    cdef bytearray hashes
    cdef uint8_t[::1] target
    cdef const uint8_t* start
    cdef bint fits
    if secret is not None and secret.shape[0] != SECRET_SIZE:
        raise ValueError(f"a secret must have {SECRET_SIZE} bytes, got {secret.shape[0]}")
    if count < 1:
        return b""
    hasher.identity = IDENTITY_MD5 if secret is None else IDENTITY_SIPHASH
    for i in range(SECRET_SIZE):
        hasher.secret[i] = 0 if secret is None else secret[i]
    hashes = bytearray(count * HASH_SIZE)
    target = hashes
    # Never read where there is no byte, but kernels add 0 to it.
    start = &data[0] if data.shape[0] > 0 else &target[0]
    with nogil:
        fits = _hash_cells_kernel(
            &hasher, start, data.shape[0], &offsets[0], count, &target[0]
        )
    check_read(start, data.shape[0])
    if not fits:
        raise ValueError(f"offsets must rise and lie in 0 to {data.shape[0]}")
    return bytes(hashes)


cdef bint _hash_cells_kernel(
    const KeyHasher* hasher,
    const uint8_t* data,
    Py_ssize_t data_size,
    const int32_t* offsets,
    Py_ssize_t count,
    uint8_t* hashes,
) noexcept nogil:
    """Hash cell after cell; False where one does not lie in the data."""
    cdef KeyBytes[BLOCK_KEYS] block
    cdef Py_ssize_t first = 0
    cdef Py_ssize_t some
    cdef Py_ssize_t i
    while first < count:
        some = min(count - first, <Py_ssize_t>BLOCK_KEYS)
        for i in range(some):
            if (
                offsets[first + i] < 0
                or offsets[first + i + 1] < offsets[first + i]
                or offsets[first + i + 1] > data_size
            ):
                return False
            block[i].data = data + offsets[first + i]
            block[i].size = <size_t>(offsets[first + i + 1] - offsets[first + i])
        hash_keys(hasher, block, <size_t>some, hashes + first * HASH_SIZE)
        first += some
    return True


cdef list _hashed(object keys, int kernel, const uint8_t* secret):
    """Return the hashes of all keys: SipHash where there is a secret, else MD5 by that kernel."""
    cdef KeyBytes[BLOCK_KEYS] block
    cdef uint8_t[BLOCK_KEYS * HASH_SIZE] hashes
    cdef Py_ssize_t i
    cdef list result = []
    for start in range(0, len(keys), BLOCK_KEYS):
        some = tuple(keys[start:start + BLOCK_KEYS])
        _fill(block, some)
        if secret is NULL:
            kafkalog_md5_keys_with(kernel, block, <size_t>len(some), hashes)
        else:
            kafkalog_siphash_keys(secret, block, <size_t>len(some), hashes)
        for i in range(len(some)):
            result.append(hashes[i * HASH_SIZE:(i + 1) * HASH_SIZE])
    return result


cdef int _fill(KeyBytes* block, tuple keys) except -1:
    """Point at the keys, which the caller holds and does not resize."""
    cdef const uint8_t[::1] key
    cdef Py_ssize_t i
    for i in range(len(keys)):
        key = keys[i]
        block[i].size = <size_t>key.shape[0]
        # Never read where a key is empty, but kernels add 0 to it.
        block[i].data = &key[0] if key.shape[0] > 0 else <const uint8_t*>block
    return 0


kafkalog_md5_setup()
