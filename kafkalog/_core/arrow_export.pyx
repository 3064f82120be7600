"""Export of columns to other programs by Arrow's C data and C stream interface, without pyarrow.

An exported structure belongs to its consumer: it may be moved, its children too, and released by
any thread at any time, after its stream and after Python, in any order. So each array owns its
memory by a separate count, and its release needs the GIL only for memory of a Python object (views
of a mapped file). After the end of Python such memory is not freed.

A stream pulls batches from an iterator. An exception is kept as a message for `get_last_error`, and
returned by every later call: no reader takes an error for the end.

Thread-safety: structures belong to one thread at a time, as in the interface; ArrowBatch is
immutable.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.errno cimport EINTR, EINVAL, EIO, ENOMEM
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset, strlen

from kafkalog._core.arrow cimport (
    ARROW_FLAG_NULLABLE,
    ArrowArray,
    ArrowArrayStream,
    ArrowSchema,
)
from kafkalog._core.arrow_memory cimport atomic_add, free_block
from kafkalog._core.status cimport STATUS_NO_MEMORY, STATUS_OK

cdef extern from "Python.h" nogil:
    int Py_IsInitialized()


# ---- schemas ----------------------------------------------------------------------------------

cdef void _release_schema(ArrowSchema* schema) noexcept nogil:
    cdef ArrowSchema* child
    cdef int64_t slot
    for slot in range(schema.n_children):
        child = schema.children[slot]
        if child != NULL:
            # A consumer that took the child for itself has left NULL here.
            if child.release != NULL:
                child.release(child)
            free(child)
    free(schema.children)
    free(<void*>schema.format)
    free(<void*>schema.name)
    schema.release = NULL


cdef char* _copy_text(const char* text) noexcept nogil:
    cdef size_t size = strlen(text) + 1
    cdef char* copy = <char*>calloc(size, 1)
    if copy != NULL:
        memcpy(copy, text, size)
    return copy


cdef int _fill_schema(ArrowSchema* schema, ArrowField field) except -1:
    cdef ArrowField child
    cdef bytes name = field.name.encode("utf-8")
    cdef bytes kind = field.kind.encode("ascii")
    cdef Py_ssize_t count = len(field.children)
    cdef Py_ssize_t slot
    memset(schema, 0, sizeof(ArrowSchema))
    schema.release = _release_schema
    schema.flags = ARROW_FLAG_NULLABLE if field.nullable else 0
    schema.format = _copy_text(kind)
    schema.name = _copy_text(name)
    schema.children = <ArrowSchema**>calloc(<size_t>max(count, 1), sizeof(void*))
    try:
        if schema.format == NULL or schema.name == NULL or schema.children == NULL:
            raise MemoryError("no memory for an Arrow schema")
        for slot in range(count):
            child = field.children[slot]
            schema.children[slot] = <ArrowSchema*>calloc(1, sizeof(ArrowSchema))
            if schema.children[slot] == NULL:
                raise MemoryError("no memory for an Arrow schema")
            schema.n_children = slot + 1
            _fill_schema(schema.children[slot], child)
    except BaseException:
        _release_schema(schema)
        raise
    return 0


@cython.final
cdef class ArrowField:
    """
    Name and kind of a column, by Arrow's format strings; those of a struct or list have children.

    Thread-safety: immutable.
    """

    cdef readonly str name
    cdef readonly str kind
    cdef readonly bint nullable
    cdef readonly tuple children

    def __cinit__(self, str name not None, str kind not None, bint nullable, tuple children=()):
        self.name = name
        self.kind = kind
        self.nullable = nullable
        for child in children:
            if not isinstance(child, ArrowField):
                raise TypeError(f"children must be of type ArrowField, got {type(child).__name__}")
        self.children = children

    def __repr__(self):
        null = "" if self.nullable else ", not null"
        return f"ArrowField({self.name!r}, {self.kind!r}{null})"


cdef void _end_schema(object capsule) noexcept:
    cdef ArrowSchema* schema = <ArrowSchema*>PyCapsule_GetPointer(capsule, "arrow_schema")
    if schema.release != NULL:
        schema.release(schema)
    free(schema)


def schema_capsule(tuple fields not None):
    """Return a struct of these fields as an `arrow_schema` capsule."""
    cdef ArrowSchema* schema = <ArrowSchema*>calloc(1, sizeof(ArrowSchema))
    if schema == NULL:
        raise MemoryError("no memory for an Arrow schema")
    try:
        capsule = PyCapsule_New(schema, "arrow_schema", _end_schema)
    except BaseException:
        free(schema)
        raise
    _fill_schema(schema, ArrowField("", "+s", False, fields))
    return capsule


cdef ArrowField _field_of(const ArrowSchema* schema):
    cdef int64_t slot
    cdef bytes kind = schema.format
    cdef bytes name = schema.name if schema.name != NULL else b""
    cdef list children = []
    for slot in range(schema.n_children):
        children.append(_field_of(schema.children[slot]))
    if schema.dictionary != NULL:
        kind = b"dictionary"           # no format is named so: what the indexes are is no matter
    return ArrowField(
        name.decode("utf-8", "replace"),
        kind.decode("ascii", "replace"),
        (schema.flags & ARROW_FLAG_NULLABLE) != 0,
        tuple(children),
    )


def fields_of_schema(capsule not None):
    """
    Return the columns that an `arrow_schema` capsule asks for; it stays its owner's.

    Raises:
        ValueError: it is another capsule, or was released.
    """
    cdef const ArrowSchema* schema
    schema = <const ArrowSchema*>PyCapsule_GetPointer(capsule, "arrow_schema")
    if schema.release == NULL:
        raise ValueError("the schema that is asked for was released")
    return _field_of(schema).children


# ---- arrays -----------------------------------------------------------------------------------

cdef void _drop(PyObject* hold) noexcept with gil:
    Py_DECREF(<object>hold)


cdef void _drop_owner(ArrayOwner* owner) noexcept nogil:
    cdef int slot
    if owner == NULL or atomic_add(&owner.references, -1) > 0:
        return
    for slot in range(OWNED_COUNT):
        free_block(owner.owned[slot])
    # After the end of Python references are not counted.
    if owner.hold != NULL and Py_IsInitialized():
        _drop(owner.hold)
    free(owner.buffers)
    free(owner.sizes)
    free(owner)


cdef ArrayOwner* new_owner(int64_t buffer_count) noexcept nogil:
    """Return an owner with one reference and space for its buffers; NULL without memory."""
    cdef ArrayOwner* owner = <ArrayOwner*>calloc(1, sizeof(ArrayOwner))
    if owner == NULL:
        return NULL
    owner.references = 1
    owner.buffer_count = buffer_count
    owner.buffers = <const void**>calloc(<size_t>max(buffer_count, 1), sizeof(void*))
    owner.sizes = <int64_t*>calloc(<size_t>max(buffer_count, 1), sizeof(int64_t))
    if owner.buffers == NULL or owner.sizes == NULL:
        _drop_owner(owner)
        return NULL
    return owner


cdef void _release_array(ArrowArray* array) noexcept nogil:
    cdef ArrowArray* child
    cdef int64_t slot
    for slot in range(array.n_children):
        child = array.children[slot]
        if child != NULL:
            if child.release != NULL:
                child.release(child)
            free(child)
    free(array.children)
    _drop_owner(<ArrayOwner*>array.private_data)
    array.release = NULL


cdef int add_array(
    ArrowArray* array, ArrayOwner* owner, int64_t length, int64_t null_count, int64_t child_count
) noexcept nogil:
    """
    Fill a structure, which takes over one reference to `owner`, with space for children.

    Without memory the structure is released.
    """
    cdef int64_t slot
    memset(array, 0, sizeof(ArrowArray))
    array.length = length
    array.null_count = null_count
    array.n_buffers = 0 if owner == NULL else owner.buffer_count
    array.buffers = NULL if owner == NULL else owner.buffers
    array.private_data = owner
    array.release = _release_array
    array.children = <ArrowArray**>calloc(<size_t>max(child_count, 1), sizeof(void*))
    if owner == NULL or array.children == NULL:
        _release_array(array)
        return STATUS_NO_MEMORY
    for slot in range(child_count):
        array.children[slot] = <ArrowArray*>calloc(1, sizeof(ArrowArray))
        if array.children[slot] == NULL:
            _release_array(array)
            return STATUS_NO_MEMORY
        array.n_children = slot + 1
    return STATUS_OK


cdef int _share_array(const ArrowArray* source, ArrowArray* target) noexcept nogil:
    """Make another structure of the same memory."""
    cdef ArrayOwner* owner = <ArrayOwner*>source.private_data
    cdef int64_t slot
    atomic_add(&owner.references, 1)
    if add_array(target, owner, source.length, source.null_count, source.n_children) != STATUS_OK:
        return STATUS_NO_MEMORY
    for slot in range(source.n_children):
        if _share_array(source.children[slot], target.children[slot]) != STATUS_OK:
            _release_array(target)
            return STATUS_NO_MEMORY
    return STATUS_OK


cdef void _end_array(object capsule) noexcept:
    cdef ArrowArray* array = <ArrowArray*>PyCapsule_GetPointer(capsule, "arrow_array")
    if array.release != NULL:
        array.release(array)
    free(array)


@cython.final
cdef class _Buffer:
    """One buffer of a batch, for NumPy; keeps the batch."""

    cdef ArrowBatch _batch
    cdef const void* _data
    cdef Py_ssize_t _size

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, <void*>self._data, self._size, 1, flags)


cdef class ArrowBatch:
    """
    Some rows of a scan, in Arrow's columns: `pyarrow.record_batch(batch)`, `polars.from_arrow`.

    Attributes:
        fields: name and type of each column.

    Thread-safety: immutable; what was exported lives on without it.
    """

    def __dealloc__(self):
        if self.array.release != NULL:
            self.array.release(&self.array)

    def __len__(self):
        return self.array.length

    def __repr__(self):
        return f"<ArrowBatch {self.array.length} rows, {len(self.fields)} columns>"

    @property
    def num_rows(self):
        """Number of rows."""
        return self.array.length

    cdef int share(self, ArrowArray* target) except -1:
        if self.array.release == NULL or _share_array(&self.array, target) != STATUS_OK:
            raise MemoryError("no memory for an Arrow array")
        return 0

    def buffer(self, Py_ssize_t column, Py_ssize_t slot):
        """Return a buffer of a column as bytes, None where it has none (no nulls)."""
        cdef ArrayOwner* owner
        cdef _Buffer buffer
        if not 0 <= column < self.array.n_children:
            raise IndexError(f"column {column} of {self.array.n_children}")
        owner = <ArrayOwner*>self.array.children[column].private_data
        if not 0 <= slot < owner.buffer_count:
            raise IndexError(f"buffer {slot} of {owner.buffer_count}")
        if owner.buffers[slot] == NULL:
            return None
        buffer = _Buffer.__new__(_Buffer)
        buffer._batch = self
        buffer._data = owner.buffers[slot]
        buffer._size = owner.sizes[slot]
        return memoryview(buffer)

    def __arrow_c_schema__(self):
        """Return the schema as an `arrow_schema` capsule."""
        return schema_capsule(self.fields)

    def __arrow_c_array__(self, requested_schema=None):
        """Return (schema, array) capsules; another schema than its own is not made."""
        cdef ArrowArray* array = <ArrowArray*>calloc(1, sizeof(ArrowArray))
        if array == NULL:
            raise MemoryError("no memory for an Arrow array")
        try:
            capsule = PyCapsule_New(array, "arrow_array", _end_array)
        except BaseException:
            free(array)
            raise
        self.share(array)
        return schema_capsule(self.fields), capsule


# ---- streams ----------------------------------------------------------------------------------

cdef struct StreamState:
    PyObject* source                   # iterator of ArrowBatch
    PyObject* fields                   # tuple of ArrowField
    char* error                        # of the last call; NULL for none
    int code                           # of the error that ended the stream


cdef int _code_of(object error) noexcept:
    if isinstance(error, MemoryError):
        return ENOMEM
    if isinstance(error, KeyboardInterrupt):
        return EINTR
    return EINVAL if isinstance(error, (ValueError, TypeError)) else EIO


cdef int _keep_error(StreamState* state, object error) noexcept:
    """Set the message of `get_last_error`; return its code."""
    cdef bytes message = b"no message"
    try:
        message = f"{type(error).__name__}: {error}".encode("utf-8", "replace")
    except BaseException:  # noqa: BLE001 -- an error without words is an error still
        pass
    free(state.error)
    state.error = _copy_text(message)
    return _code_of(error)


cdef int _pull(StreamState* state, ArrowArray* target) noexcept with gil:
    cdef ArrowBatch batch
    try:
        batch = next(<object>state.source, None)
        if batch is not None:
            batch.share(target)
    except BaseException as error:  # noqa: BLE001 -- C calls this: it has to end here
        state.code = _keep_error(state, error)
        return state.code
    return 0


cdef int _describe(StreamState* state, ArrowSchema* target) noexcept with gil:
    try:
        _fill_schema(target, ArrowField("", "+s", False, <tuple>state.fields))
    except BaseException as error:  # noqa: BLE001
        return _keep_error(state, error)
    return 0


cdef void _forget(StreamState* state) noexcept with gil:
    Py_DECREF(<object>state.source)
    Py_DECREF(<object>state.fields)


cdef int _get_next(ArrowArrayStream* stream, ArrowArray* target) noexcept nogil:
    cdef StreamState* state = <StreamState*>stream.private_data
    memset(target, 0, sizeof(ArrowArray))      # released: the end of the stream
    if state.code != 0:
        return state.code
    return _pull(state, target) if Py_IsInitialized() else EIO


cdef int _get_schema(ArrowArrayStream* stream, ArrowSchema* target) noexcept nogil:
    cdef StreamState* state = <StreamState*>stream.private_data
    memset(target, 0, sizeof(ArrowSchema))
    return _describe(state, target) if Py_IsInitialized() else EIO


cdef const char* _get_last_error(ArrowArrayStream* stream) noexcept nogil:
    return (<StreamState*>stream.private_data).error


cdef void _release_stream(ArrowArrayStream* stream) noexcept nogil:
    cdef StreamState* state = <StreamState*>stream.private_data
    stream.release = NULL
    stream.private_data = NULL
    if Py_IsInitialized():
        _forget(state)
    free(state.error)
    free(state)


cdef void _end_stream(object capsule) noexcept:
    cdef ArrowArrayStream* stream
    stream = <ArrowArrayStream*>PyCapsule_GetPointer(capsule, "arrow_array_stream")
    if stream.release != NULL:
        stream.release(stream)
    free(stream)


def stream_capsule(source not None, tuple fields not None):
    """
    Return a stream of the batches that an iterator gives, as an `arrow_array_stream` capsule.

    Args:
        source: iterator of ArrowBatch; pulled from by whichever thread reads the stream.
        fields: the columns of every batch.
    """
    cdef ArrowArrayStream* stream = <ArrowArrayStream*>calloc(1, sizeof(ArrowArrayStream))
    cdef StreamState* state = <StreamState*>calloc(1, sizeof(StreamState))
    try:
        if stream == NULL or state == NULL:
            raise MemoryError("no memory for an Arrow stream")
        capsule = PyCapsule_New(stream, "arrow_array_stream", _end_stream)
    except BaseException:
        free(stream)
        free(state)
        raise
    Py_INCREF(source)
    Py_INCREF(fields)
    state.source = <PyObject*>source
    state.fields = <PyObject*>fields
    stream.private_data = state
    stream.get_schema = _get_schema
    stream.get_next = _get_next
    stream.get_last_error = _get_last_error
    stream.release = _release_stream
    return capsule
