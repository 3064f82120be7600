"""The state that decides whether a log takes appends.

It belongs to the log's `WriteGate`, which makes the errors; the fast path of an append reads it in
one call.

Thread-safety: changes under the log's lock, except `mark_offline`, which is one store; any thread
may read.
"""

cimport cython

cdef extern from "<unistd.h>":
    int getpid() nogil


@cython.final
cdef class GateState:
    """
    Why a log may refuse appends, and whether its files are open.

    Args:
        is_read_only: whether the log was opened to be read only.
        is_idle: whether its files are not open for writing.

    Attributes:
        is_closed: whether the log was closed.
        is_read_only, is_idle: as given, and as changed since.
        has_delayed: whether offsets above the log end belong to delayed records, which must be
            appended before anything else.
        offline_error: the error that ended all writes, None while there is none.
        process_id: the process that opened the log.

    Thread-safety: changes under the log's lock, except `mark_offline`.
    """

    def __cinit__(self, *, bint is_read_only=False, bint is_idle=False):
        self.is_closed = False
        self.is_read_only = is_read_only
        self.is_idle = is_idle
        self.has_delayed = False
        self.offline_error = None
        self.process_id = getpid()

    def __reduce__(self):
        raise TypeError("a GateState cannot be pickled or copied")

    cdef bint can_append(self) noexcept:
        return not self.has_delayed and self.can_write()

    cdef bint can_write(self) noexcept:
        return not (self.is_closed or self.is_idle or self.is_read_only
                    or self.offline_error is not None or getpid() != self.process_id)

    def is_open(self):
        """Return whether the log takes appends as it is: open, writable, and not idle."""
        return self.can_write()

    def is_own_process(self):
        """Return whether this process opened the log."""
        return getpid() == self.process_id

    def close(self):
        """Refuse everything from now on."""
        self.is_closed = True

    def set_idle(self, bint is_idle):
        """Record whether the files are released."""
        self.is_idle = is_idle

    def set_delayed(self, bint has_delayed):
        """Record whether offsets above the log end belong to delayed records."""
        self.has_delayed = has_delayed

    def mark_offline(self, error not None):
        """Keep the first error that ends all writes; return whether this was the first."""
        if self.offline_error is not None:
            return False
        self.offline_error = error
        return True
