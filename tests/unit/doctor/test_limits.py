"""Tests of the doctor's checks of descriptors and mappings."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog import LogConfig
from kafkalog.doctor import limits
from kafkalog.doctor.findings import Severity
from tests.support.doctor_fixtures import checks, examined, healthy_directory, only
from tests.support.machines import MadeUpMachine


@pytest.fixture(name="needed")
def fixture_needed(monkeypatch: pytest.MonkeyPatch) -> int:
    """The needs of one log of two segments: the writer's lock, six files open and six mapped."""
    monkeypatch.setattr(limits, "MAPPINGS_HOLD_DESCRIPTORS", True)
    return limits.OTHER_DESCRIPTORS + limits.WRITER_DESCRIPTORS + 6 + 6


def test_too_few_descriptors_for_all_logs_are_found(data: Path, needed: int) -> None:
    """The command raises the limit to the needed number."""
    machine = MadeUpMachine(limits=(needed - 1, 1 << 20))
    finding = only(examined(data, machine=machine), "limits.descriptors")
    assert Severity.WARNING is finding.severity
    assert f"up to {needed}" in finding.seen
    assert finding.remedy.startswith(f"ulimit -n {needed} ")
    assert "as root" not in finding.remedy


def test_descriptors_above_the_hard_limit_need_root(data: Path, needed: int) -> None:
    """The suggestion names the hard limit."""
    machine = MadeUpMachine(limits=(needed - 1, needed - 1))
    assert "as root" in only(examined(data, machine=machine), "limits.descriptors").remedy


@pytest.mark.parametrize("soft", [0, None])
def test_enough_descriptors_have_no_finding(data: Path, needed: int, soft: int | None) -> None:
    """As many as needed, or no limit at all."""
    machine = MadeUpMachine(limits=(soft if soft is None else needed, None))
    assert [] == checks(examined(data, machine=machine))


def test_pool_bounds_the_descriptors_of_all_readers(tmp_path: Path, needed: int) -> None:
    """Three files and one mapping at most, for one log or two: the manager has one pool."""
    one = healthy_directory(tmp_path / "a", "orders-0")
    other = healthy_directory(tmp_path / "b", "orders-1")
    config = LogConfig(open_files_max=3, mappings_max=1)
    for directories, enough in (
        ((one,), needed - 8),
        ((one, other), needed - 8 + limits.WRITER_DESCRIPTORS),
    ):
        machine = MadeUpMachine(limits=(enough, None))
        assert [] == checks(examined(*directories, machine=machine, config=config))
        machine = MadeUpMachine(limits=(enough - 1, None))
        only(examined(*directories, machine=machine, config=config), "limits.descriptors")


def test_mappings_need_no_descriptors_in_newer_pythons(
    data: Path, needed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From 3.13 on."""
    monkeypatch.setattr(limits, "MAPPINGS_HOLD_DESCRIPTORS", False)
    assert [] == checks(examined(data, machine=MadeUpMachine(limits=(needed - 6, None))))


def test_segments_of_all_directories_count_together(tmp_path: Path, needed: int) -> None:
    """One process opens them all."""
    directories = [
        healthy_directory(tmp_path / "a", "orders-0"),
        healthy_directory(tmp_path / "b", "orders-1"),
    ]
    each = needed - limits.OTHER_DESCRIPTORS
    machine = MadeUpMachine(limits=(limits.OTHER_DESCRIPTORS + 2 * each, None))
    assert [] == checks(examined(*directories, machine=machine))
    machine = MadeUpMachine(limits=(limits.OTHER_DESCRIPTORS + 2 * each - 1, None))
    only(examined(*directories, machine=machine), "limits.descriptors")


def test_directory_that_a_broker_could_not_open_is_noted(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker keeps each segment open and maps two indexes of it, and has no pool."""
    monkeypatch.setattr(limits, "WRITER_DESCRIPTORS", 0)
    monkeypatch.setattr(limits, "MAPPINGS_HOLD_DESCRIPTORS", False)
    config = LogConfig(open_files_max=1, mappings_max=1)
    machine = MadeUpMachine(
        limits=(limits.OTHER_DESCRIPTORS + 1, None),
        settings={"max_map_count": limits.OTHER_MAPPINGS + 3},
    )
    diagnosis = examined(data, machine=machine, config=config)
    assert ["limits.descriptors.broker", "vm.max_map_count.broker"] == checks(diagnosis)
    assert {Severity.NOTE} == {finding.severity for finding in diagnosis.findings}
    assert diagnosis.is_well
    assert "2 segments" in diagnosis.findings[0].seen
    assert "ulimit -n 100000" in diagnosis.findings[0].remedy
    assert "vm.max_map_count=262144" in diagnosis.findings[1].remedy


def test_too_few_mappings_for_all_logs_are_found(data: Path) -> None:
    """Six files of one log may be mapped at a time."""
    needed = limits.OTHER_MAPPINGS + 6
    machine = MadeUpMachine(settings={"max_map_count": needed})
    assert [] == checks(examined(data, machine=machine))
    machine = MadeUpMachine(settings={"max_map_count": needed - 1})
    finding = only(examined(data, machine=machine), "vm.max_map_count")
    assert Severity.WARNING is finding.severity
    assert f"up to {needed} files" in finding.seen
    assert f"sysctl -w vm.max_map_count={2 * needed}" in finding.remedy
