"""Reads and searches of a log whose records are deleted in the meantime."""

from __future__ import annotations

import re
from pathlib import Path

from kafkalog import LogConfig, Record, open_log, read_records, search_records, tail_records


def test_reads_continue_after_records_that_were_deleted(tmp_path: Path) -> None:
    """By retention of another process, for example: the rest is yielded, each record once."""
    config = LogConfig(segment_bytes=1_000, file_delete_delay_ms=0)
    with open_log(tmp_path / "t-0", config=config) as log:
        for number in range(2_000):
            log.append([Record(key=b"k", value=b"v%d" % number)])
        reads = [
            (each.record for each in read_records(tmp_path / "t-0")),
            (each.record for each in search_records(tmp_path / "t-0", b"v", context=1)),
            (each.record for each in search_records(tmp_path / "t-0", b"v", fields=["headers"])),
            (each.record for each in search_records(tmp_path / "t-0", re.compile(b"v1*$"))),
            (each.record for each in tail_records(tmp_path / "t-0", last=1_900)),
        ]
        firsts = [next(each, None) for each in reads]
        log.delete_records(1_500)
        rests = [[record.offset for record in each] for each in reads]

    assert [each.offset for each in firsts if each is not None] == [0, 0, 1, 100]
    for offsets in (rests[0], rests[1], rests[4]):
        assert offsets == sorted(set(offsets))
        assert offsets[-500:] == list(range(1_500, 2_000))
    assert rests[2] == []
    assert set(rests[3]) <= {11, 111, 1_111}
