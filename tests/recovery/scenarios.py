"""Scenarios of tests with crashes and failing calls: sequences of calls of a log."""

from __future__ import annotations

from tests.support.crash_rig import Rig, Scenario
from tests.support.manual_time import START_MS

__all__ = ["SCENARIOS"]


def open_filled(rig: Rig, appends: int) -> None:
    """Open a log of many segments, all of it on the disk."""
    rig.open()
    for _ in range(appends):
        rig.append(4, 90)
    rig.flush()


class FirstAppends(Scenario):
    """Creates a log and appends records of several sizes, some of them durable."""

    def run(self, rig: Rig) -> None:
        rig.open()
        rig.append(1)
        rig.append(3, durable=True)
        rig.append(2)


class AppendOverSegments(Scenario):
    """One append that fills several segments, on top of durable records, then a durable one."""

    def prepare(self, rig: Rig) -> None:
        rig.open()
        rig.append(3, durable=True)

    def run(self, rig: Rig) -> None:
        rig.append(2, 30)
        rig.append(12, 100)
        rig.append(1, durable=True)


class Roll(Scenario):
    """Rolls by a call and by size, with the flushes after them."""

    def prepare(self, rig: Rig) -> None:
        rig.open()
        rig.append(4)
        rig.flush()

    def run(self, rig: Rig) -> None:
        rig.append(2)
        rig.roll()
        rig.append(2)
        rig.work()
        rig.roll()
        rig.append(5, 90)
        rig.append(5, 90)
        rig.work()


class Flush(Scenario):
    """Flushes with no record, some records, and several segments to sync."""

    def prepare(self, rig: Rig) -> None:
        rig.open()

    def run(self, rig: Rig) -> None:
        rig.flush()
        rig.append(2)
        rig.flush()
        rig.append(10, 90)
        rig.flush()
        rig.append(1)


class Truncate(Scenario):
    """Truncates within a segment, over several, and appends other records there."""

    def prepare(self, rig: Rig) -> None:
        open_filled(rig, 6)
        rig.append(2)

    def run(self, rig: Rig) -> None:
        end = rig.model.end_offset
        rig.truncate_to(end - 3)
        rig.append(2, durable=True)
        rig.truncate_to(7)
        rig.append(3, 50)
        rig.flush()


class Restart(Scenario):
    """Truncates fully, above the end and below the start, and appends at the new offset."""

    def prepare(self, rig: Rig) -> None:
        open_filled(rig, 3)
        rig.delete_before(6)

    def run(self, rig: Rig) -> None:
        rig.restart_at(3)
        rig.append(2, durable=True)
        rig.restart_at(40)
        rig.append(6, 90)
        rig.flush()


class Delete(Scenario):
    """Moves the log start within a segment, over several, and to the end."""

    def prepare(self, rig: Rig) -> None:
        open_filled(rig, 6)

    def run(self, rig: Rig) -> None:
        rig.delete_before(1)
        rig.delete_before(14)
        rig.work(120_000)
        rig.append(2)
        rig.delete_before(rig.model.end_offset)
        rig.append(1, durable=True)


class Retain(Scenario):
    """Deletes old segments: some, then all with the active one, then appends and closes."""

    def prepare(self, rig: Rig) -> None:
        open_filled(rig, 6)
        rig.append(2)

    def run(self, rig: Rig) -> None:
        week_ms = rig.log.config.retention_ms
        assert rig.retain(START_MS + week_ms + 130) >= 1
        rig.append(2)
        rig.work(120_000)
        assert rig.retain(START_MS + 2 * week_ms) >= 2
        # All records are deleted, unless the disk had no space to roll.
        is_empty = rig.log.log_start_offset == rig.log.log_end_offset
        assert rig.retain(START_MS + 3 * week_ms) == int(not is_empty)
        assert rig.log.log_start_offset == rig.log.log_end_offset
        rig.append(3, 90)
        rig.work()
        rig.append(1, durable=True)
        rig.close()


class Close(Scenario):
    """Closes a log with several segments, opens it again, closes it."""

    def prepare(self, rig: Rig) -> None:
        rig.open()
        rig.append(4, 90)
        rig.delete_before(2)

    def run(self, rig: Rig) -> None:
        rig.append(8, 90)
        rig.close()
        rig.open()
        rig.append(1)
        rig.close()


class OpenClean(Scenario):
    """Opens a log that was closed in order, appends and flushes."""

    def prepare(self, rig: Rig) -> None:
        rig.open()
        rig.append(9, 90)
        rig.close()

    def run(self, rig: Rig) -> None:
        rig.open()
        rig.append(1)
        rig.flush()


class OpenTorn(Scenario):
    """Opens and closes a log that lost its power: a torn tail, stale files, missing indexes."""

    def prepare(self, rig: Rig) -> None:
        rig.open()
        rig.append(9, 90)
        rig.flush()
        rig.append(2)
        handle = rig.disk.open(rig.log.segments()[-1].path, write=True)
        handle.pwrite(b"\0\0\0\0\0\0\0\x0btorn", rig.log.segments()[-1].size_bytes)
        handle.close()
        first = rig.log.segments()[0]
        rig.disk.unlink(first.offset_index.path)
        for suffix in (".cleaned", ".deleted"):
            rig.disk.open(first.path.with_name(first.path.name + suffix), create=True).close()
        rig.disk.make_durable()
        rig.model.became_durable(rig.model.end_offset)
        # Not closed: the process is gone, the disk is as it was.
        rig.disk = rig.disk.crash()
        rig.release()

    def run(self, rig: Rig) -> None:
        rig.open()
        rig.append(1)
        rig.flush()
        rig.close()


SCENARIOS: dict[str, type[Scenario]] = {
    "append": FirstAppends,
    "append_over_segments": AppendOverSegments,
    "roll": Roll,
    "flush": Flush,
    "truncate": Truncate,
    "restart": Restart,
    "delete": Delete,
    "retain": Retain,
    "close": Close,
    "open_clean": OpenClean,
    "open_torn": OpenTorn,
}
