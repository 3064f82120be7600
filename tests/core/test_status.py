"""Tests of status codes: each becomes one exception with its position."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from kafkalog._core.status import STATUS_CODES, check_status, status_meaning, status_name
from kafkalog.errors import KafkaLogError

DECLARATIONS = Path(__file__).parents[2] / "kafkalog" / "_core" / "status.pxd"
DECLARED = {
    name: int(code)
    for name, code in re.findall(r"STATUS_(\w+) = (\d+)", DECLARATIONS.read_text("ascii"))
}
FAILURES = sorted(code for code in STATUS_CODES.values() if code != 0)


def test_status_codes_equal_the_declarations() -> None:
    """Python's table and the C enumeration have the same names and numbers, without a gap."""
    last = DECLARED["LAST"]
    assert {name: code for name, code in DECLARED.items() if name != "LAST"} == STATUS_CODES
    assert list(range(1, last + 1)) == FAILURES


def test_status_ok_raises_nothing() -> None:
    """Zero is success."""
    check_status(0, 5)
    assert status_name(0) == "OK"
    assert status_meaning(0) == "no error"


@pytest.mark.parametrize("code", FAILURES)
def test_status_failure_raises_its_exception(code: int) -> None:
    """Each code raises; the message has reason, position and file."""
    with pytest.raises((KafkaLogError, MemoryError, AssertionError)) as caught:
        check_status(code, 77, "/data/t-0/0.log", 42)
    message = str(caught.value)
    assert (
        message == f"{status_meaning(code)} at position 77 of /data/t-0/0.log (batch at offset 42)"
    )
    assert code == STATUS_CODES[status_name(code)]


@pytest.mark.parametrize("code", FAILURES)
def test_status_exception_pickled_keeps_its_position(code: int) -> None:
    """An error keeps its message and attributes across processes."""
    with pytest.raises((KafkaLogError, MemoryError, AssertionError)) as caught:
        check_status(code, 77, "t-0/0.log", 42)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert type(caught.value) is type(copy)
    assert str(caught.value) == str(copy)
    assert vars(caught.value) == vars(copy)
    if isinstance(copy, KafkaLogError):
        assert ("t-0/0.log", 77, 42) == (copy.path, copy.position, copy.base_offset)
