"""Power cuts during a cleaning: each group of segments is the old group or the new group."""

from __future__ import annotations

from collections.abc import Callable

from kafkalog import CleanerConfig, Log
from kafkalog.cleaner.cleaning import Cleaner
from kafkalog.cleaner.selection import CleanableRange
from tests.support.crash_rig import INSIDE, LogSetup, Rig, Scenario, crashes, small_config
from tests.support.model import RecordFact, record_fact

# Two groups of two segments each.
PLACE = LogSetup(
    "cleaned",
    INSIDE.directory,
    small_config(batch_bytes=1, segment_bytes=1100, cleanup_policy=("compact",)),
)
ROUNDS = 4
STATES = 2

Shape = tuple[tuple[int, int], ...]


def shape_of(log: Log) -> Shape:
    """Return base offset and size of each sealed segment."""
    return tuple((segment.base_offset, segment.size_bytes) for segment in log.segments()[:-1])


def records_of(log: Log) -> list[RecordFact]:
    """Return all records."""
    return [record_fact(record) for record in log.records()]


class Pass(Scenario):
    """
    Cleans a log of several segments.

    Attributes:
        stages: shape and records of the log at each check of the cleaning.
    """

    def __init__(self) -> None:
        self.stages: dict[Shape, list[RecordFact]] = {}

    def prepare(self, rig: Rig) -> None:
        rig.open()
        for _ in range(ROUNDS):
            rig.append(4, 60)
            rig.roll()
        rig.flush()
        rig.work()
        rig.disk.make_durable()

    def run(self, rig: Rig) -> None:
        self.clean(rig, lambda: None)

    def clean(self, rig: Rig, check: Callable[[], None]) -> None:
        """Clean everything but the active segment."""
        cleaner = Cleaner(CleanerConfig(), memory_bytes=1 << 12, clock=rig.clock)
        cleaner.clean(rig.log, CleanableRange(0, rig.log.log_end_offset), check=check)

    def watch(self, rig: Rig) -> None:
        """Clean once without a power cut, and record the stages."""

        def look() -> None:
            if shape_of(rig.log) not in self.stages:
                self.stages[shape_of(rig.log)] = records_of(rig.log)

        self.prepare(rig)
        self.clean(rig, look)
        look()
        rig.release()


def test_cleaning_power_cut_at_any_call_leaves_whole_groups() -> None:
    """No retained record is lost, and no record that readers saw removed is back."""
    scenario = Pass()
    scenario.watch(Rig(PLACE))
    shapes, stages = list(scenario.stages), list(scenario.stages.values())
    assert 3 <= len(stages)
    found = set()
    for count, crash in enumerate(crashes(scenario, PLACE, limit=STATES)):
        published = shapes.index(shape_of(crash.rig.log))
        with crash.reopened() as reopened:
            records = records_of(reopened.log)
            # The disk may be one group ahead of the published segments.
            assert records in stages[published : published + 2]
            found.add(stages.index(records))
            assert not reopened.log.recovery_report.found_damage
            if count % 4 == 0:
                scenario.run(reopened)
                assert stages[-1] == records_of(reopened.log)
    assert set(range(len(stages))) == found
