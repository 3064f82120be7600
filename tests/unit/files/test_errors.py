"""Typed storage errors of an OSError, with file, error and operation in the message."""

from __future__ import annotations

import errno
import os
import pickle
from pathlib import Path

import pytest

from kafkalog.errors import (
    CorruptRecordError,
    DiskFullError,
    LogPermissionError,
    LogStorageError,
)
from kafkalog.files.errors import storage_errors, translate


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.ENOSPC, DiskFullError),
        (errno.EDQUOT, DiskFullError),
        (errno.EACCES, LogPermissionError),
        (errno.EPERM, LogPermissionError),
        (errno.EROFS, LogPermissionError),
        (errno.EIO, LogStorageError),
        (errno.ENOENT, LogStorageError),
        (errno.EMFILE, LogStorageError),
        (errno.EFBIG, LogStorageError),
    ],
)
def test_translate_errno_selects_the_type(number: int, expected: type[LogStorageError]) -> None:
    """Full and forbidden have a type of their own; everything else is the disk's failure."""
    with (
        pytest.raises(LogStorageError) as caught,
        storage_errors(Path("/data/orders-0"), doing="appending"),
    ):
        raise OSError(number, os.strerror(number), "/data/elsewhere")
    error = caught.value
    assert expected is type(error)
    assert number == error.errno
    assert "/data/orders-0" == error.path
    name = errno.errorcode[number]
    assert f"/data/orders-0: appending failed: {os.strerror(number)} ({name})" == str(error)
    assert isinstance(error.__cause__, OSError)
    assert (number, str(error)) == (
        pickle.loads(pickle.dumps(error)).errno,
        str(pickle.loads(pickle.dumps(error))),
    )


def test_translate_without_path_uses_that_of_the_oserror() -> None:
    """An error without any name is the disk's."""
    assert "/a: syncing failed: No" in str(translate(OSError(2, "No", "/a"), doing="syncing"))
    assert "/a" == translate(OSError(2, "No", b"/a")).path
    nameless = translate(OSError("odd"))
    assert ("the disk: using failed: odd", None, None) == (
        str(nameless),
        nameless.errno,
        nameless.path,
    )


def test_storage_errors_other_exceptions_pass(tmp_path: Path) -> None:
    """Only OSError is translated, and a storage error is not translated twice."""
    for error in (ValueError("x"), CorruptRecordError("x"), DiskFullError("x")):
        with pytest.raises(type(error)) as caught, storage_errors(tmp_path):
            raise error
        assert error is caught.value
    with storage_errors(tmp_path):
        done = True
    assert done
