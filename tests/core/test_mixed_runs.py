"""Property tests of runs of magic 0, 1 and 2: the verdict equals the reference's."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.test_message_properties import messages
from tests.support import reference, reference_records
from tests.support import reference_codecs as codecs
from tests.support import reference_messages as slow
from tests.support.column_rows import assert_scan_equals_reference
from tests.support.damage import flipped
from tests.support.examples import examples
from tests.support.reference import Header
from tests.support.reference_records import Entry


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """Draw a plain message, a wrapper, or a batch of v2, at any offset."""
    magic = draw(st.integers(0, 2))
    if magic == 2:
        header = Header(
            base_offset=draw(st.integers(0, 2**41)), last_offset_delta=1, record_count=2
        )
        payload = reference_records.encode([Entry(0, 0, b"k", b"v"), Entry(1, 1, None, None)])
        return reference.encode_batch(header, payload)
    made = draw(messages(magic))
    codec = draw(st.integers(0, 3))
    return slow.encode_set(made[:1] if codec == codecs.NONE else made, codec=codec)


@st.composite
def runs(draw: st.DrawFn) -> bytes:
    """Draw batches of any magics back to back, mostly at rising offsets."""
    data = b""
    next_offset = draw(st.integers(0, 2**40))
    for batch in draw(st.lists(batches(), max_size=5)):
        offset = next_offset + draw(st.integers(0, 3))
        data += offset.to_bytes(8, "big") + batch[8:]
        next_offset = offset + 2
    return data


def assert_walk_equals_the_reference(data: bytes) -> None:
    """Assert equal scans with and without checks of CRC and order."""
    for check in (True, False):
        assert_scan_equals_reference(
            data, check_crc=check, check_order=check, capacity=len(data) // 26 + 1
        )


@settings(max_examples=examples(60))
@given(data=runs())
def test_walk_of_any_mixed_run_equals_the_reference(data: bytes) -> None:
    """A segment has such runs after a change of message.format.version."""
    assert_walk_equals_the_reference(data)


@settings(max_examples=examples(60))
@given(data=runs(), share=st.floats(0, 1))
def test_walk_of_a_prefix_of_a_mixed_run_equals_the_reference(data: bytes, share: float) -> None:
    """Cut anywhere, as after a crash."""
    assert_walk_equals_the_reference(data[: int(len(data) * share)])


@settings(max_examples=examples(80))
@given(
    data=runs(),
    flips=st.lists(st.tuples(st.integers(0, 10**4), st.integers(0, 7)), min_size=1, max_size=3),
)
def test_walk_of_a_damaged_mixed_run_equals_the_reference(
    data: bytes, flips: list[tuple[int, int]]
) -> None:
    """Flipped bits anywhere, also in the magic byte."""
    assert_walk_equals_the_reference(flipped(data, flips))


@settings(max_examples=examples(80))
@given(first=runs(), second=runs(), cut=st.integers(0, 400), start=st.integers(0, 400))
def test_walk_of_spliced_runs_equals_the_reference(
    first: bytes, second: bytes, cut: int, start: int
) -> None:
    """The end of one run after the start of another, at any byte."""
    assert_walk_equals_the_reference(first[:cut] + second[start:])


@settings(max_examples=examples(60))
@given(data=runs(), magic=st.integers(-1, 3), row=st.integers(0, 4))
def test_walk_of_a_batch_with_a_wrong_magic_equals_the_reference(
    data: bytes, magic: int, row: int
) -> None:
    """Only the magic byte is changed."""
    found = reference.scan_batches(data).batches
    if found:
        position = found[row % len(found)][0] + 16
        data = data[:position] + magic.to_bytes(1, "big", signed=True) + data[position + 1 :]
    assert_walk_equals_the_reference(data)
