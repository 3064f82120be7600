"""Export of columns for other modules: arrays that share their memory, and batches."""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport int64_t

from kafkalog._core.arrow cimport ArrowArray


cdef enum:
    OWNED_COUNT = 4


# Memory of one array: shared by all copies of its structure, freed with the last of them.
cdef struct ArrayOwner:
    int64_t references                 # changed atomically
    int64_t buffer_count
    const void** buffers               # the buffers of consumers
    int64_t* sizes                     # bytes of each
    void* owned[OWNED_COUNT]           # blocks of arrow_memory; buffers may point elsewhere, too
    PyObject* hold                     # NULL, or what keeps memory that is not ours


cdef ArrayOwner* new_owner(int64_t buffer_count) noexcept nogil
cdef int add_array(
    ArrowArray* array, ArrayOwner* owner, int64_t length, int64_t null_count, int64_t child_count
) noexcept nogil


@cython.final
cdef class ArrowBatch:
    cdef ArrowArray array
    cdef readonly tuple fields

    cdef int share(self, ArrowArray* target) except -1
