"""The list of rows that everything else is held to is what the makers of logs put there."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given

from tests.properties import of_examples
from tests.properties.any_logs import AnyLog, any_logs
from tests.properties.truth import truth_of


@of_examples()
@given(any_logs())
def test_truth_of_any_log_has_the_rows_that_were_written(made: AnyLog) -> None:
    """Decoders and encoders of the reference are independent; both give the same rows."""
    with tempfile.TemporaryDirectory() as name:
        made.write(Path(name) / "orders-3")
        truth = truth_of(Path(name) / "orders-3")
    assert made.rows == truth.rows
    assert made.rows == sorted(made.rows)
    aborted = {offset for each in truth.transactions if each.is_aborted for offset in each.offsets}
    assert {7, 8} >= {row.producer_id for row in made.rows if row.offset in aborted}
