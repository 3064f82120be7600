"""Result of `Log.read`: the range of one segment, whose bytes are fetched on first access.

One final object, so that a compiled look-up can make it without a call of Python: a read takes
2,800 instructions. Decoding and sending are done by two parts, which are made when they are used.

The result keeps its segment: its bytes can be fetched, or sent, after the segment was deleted.
Fetched bytes stay valid after the log is closed, and a transfer that has begun can be finished.

Thread-safety: attributes and iterators from any thread; one thread at a time calls `send_to`.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t

from kafkalog._core.mapping cimport check_object, touch_pages

from kafkalog.errors import LogClosedError

cdef extern from "Python.h":
    const Py_buffer* PyMemoryView_GET_BUFFER(object view) noexcept


@cython.final
cdef class FetchData:
    """
    A slice of a log: whole batches, the last one perhaps cut by `max_bytes` as in a Kafka fetch.

    The first batch contains the requested offset, and may begin below it.

    Attributes:
        start_offset: the requested offset.
        position: start of the slice in its segment, in bytes.
        size_bytes: its length.
        data: its bytes, read-only; of a sealed segment without a copy. Fetch them before `close`.
        following_offset: an offset that no batch here reaches: the base offset of the next segment,
            or the log end.
        log_start_offset, log_end_offset: the log's range at the time of the read.
        aborted_transactions: for a reader of committed records, the transactions that may hide
            batches of the slice, as a broker returns them to consumers; None for other readers.
    """

    def __init__(self, segment, parts, *, int64_t start_offset, int64_t position,
                 int64_t size_bytes, bound not None, int64_t log_start_offset,
                 int64_t log_end_offset):
        self.segment = segment
        self._parts = parts
        self.start_offset = start_offset
        self.position = position
        self.size_bytes = size_bytes
        self.bound_position, self.following_offset = bound
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset

    def __len__(self):
        return self.size_bytes

    def __repr__(self):
        return (f"FetchData(start_offset={self.start_offset}, path={self.path.name!r},"
                f" position={self.position}, size_bytes={self.size_bytes})")

    @property
    def path(self):
        """The segment file that the bytes are in."""
        return self.segment.path

    @property
    def is_fetched(self):
        """True if the bytes were requested."""
        return self._data is not None

    @property
    def data(self):
        """
        The bytes, read-only; of a sealed segment without a copy. Fetch them before `close`.

        They can all be read at this moment. Pages that are lost later read as zeros, and the next
        call raises LogStorageError.
        """
        cdef object mapped
        if self._data is None:
            # Once: another thread may be about to let it go.
            mapped = self._mapped
            if mapped is not None and not self.segment.file.is_closed:
                self._data = mapped[self.position:self.position + self.size_bytes]
            else:
                self._data = fetch_bytes(self)
            self._mapped = None
            touch_view(self._data)
        check_object(self._data)
        return self._data

    def set_aborted(self, transactions):
        """Set the transactions that may hide batches of the slice."""
        self.aborted_transactions = tuple(transactions)

    @property
    def first_offset(self):
        """
        Base offset of the first batch, None without a whole batch.

        The header of a wrapper of an old format has its last offset only; it is decompressed.
        """
        return self._parts.decoder(self).first_offset()

    @property
    def next_offset(self):
        """The offset to read next: one above the last whole batch here."""
        return self._parts.decoder(self).next_offset()

    def batches(self):
        """
        Yield the whole batches, CRC checked, aborted ones too.

        A batch cut by `max_bytes` is left out.
        """
        return self._parts.decoder(self).batches()

    def records(self):
        """
        Yield the records from `start_offset` on; control and aborted ones are left out.

        Their key, value and headers are decoded on access.
        """
        return self._parts.decoder(self).records()

    def tuples(self):
        """Yield the (key, value) of the same records, without an object around them."""
        return self._parts.decoder(self).tuples()

    def lists(self):
        """Return the keys and the values of the same records; the fastest read of all of them."""
        return self._parts.decoder(self).lists()

    def converted(self, magic):
        """
        Return this slice as a consumer of an older format gets it; for v2 nothing is converted.

        Args:
            magic: format of the consumer: 0 for fetches of version 0 and 1, 1 for 2 and 3.

        Raises:
            UnsupportedCodecError: the first batch is compressed with zstd, which old formats do not
                have. A later batch with zstd only ends the data.
            CorruptRecordError: the first batch is damaged.
        """
        return self._parts.decoder(self).converted(magic)

    def send_to(self, target, Py_ssize_t start=0):
        """
        Send the bytes from `start` on to a socket, by `os.sendfile` if possible.

        Compressed or not, the bytes are sent as they are stored, without a copy in this process. If
        the system, the file system or the socket refuses (TLS does, which has to encrypt them),
        they are sent from the mapped segment. Bytes that were fetched already are sent from memory
        too, which in a log that is open read-only are all bytes, and so are bytes of a segment that
        was deleted.

        A blocking socket, or a socket with a timeout, gets all bytes. A non-blocking socket gets as
        many as it accepts; wait until it is writable, and continue:

        >>> sent += fetched.send_to(connection, sent)

        Args:
            target: a connected socket.
            start: number of bytes that were sent before.

        Returns:
            The number of bytes that this call sent.

        Raises:
            LogStorageError: the disk refused, or the file is shorter than it was.
            LogClosedError: the log was closed before the first byte was sent.
            TimeoutError, OSError: the socket failed.
        """
        if not 0 <= start <= self.size_bytes:
            raise ValueError(f"start must be in 0 to {self.size_bytes}, got {start}")
        if self._sender is None:
            self._sender = self._parts.sender()
        return self._sender.send(self, target, start)


cdef object fetch_bytes(FetchData fetched):
    """Return the bytes from the segment; LogClosedError if the log was closed before."""
    try:
        return fetched.segment.file.read(fetched.position, fetched.size_bytes)
    except ValueError as error:
        path = fetched.path
        raise LogClosedError(
            f"the log was closed before the bytes of {path} were fetched", path=path
        ) from error


cdef int touch_view(object data) except -1:
    """Read a byte of each page, so that what cannot be read is known."""
    cdef const Py_buffer* held
    if type(data) is not memoryview:
        raise TypeError(f"data must be a memoryview, got {type(data).__name__}")
    held = PyMemoryView_GET_BUFFER(data)
    touch_pages(<const uint8_t*>held.buf, held.len)
    return 0
