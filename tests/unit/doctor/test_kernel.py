"""Tests of the doctor's checks of kernels and their settings for dirty pages and swap."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog.doctor.findings import Severity
from tests.support.doctor_fixtures import checks, examined, judged, only
from tests.support.machines import GIB, MadeUpMachine


def test_healthy_machine_and_directory_have_no_finding(data: Path) -> None:
    """Linux with default settings, without swap, and a directory that was closed cleanly."""
    diagnosis = examined(data)
    assert () == diagnosis.findings
    assert () == diagnosis.unseen
    assert diagnosis.is_well


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ("3.10.0-1160.el7.x86_64", Severity.ERROR),
        ("4.12.14-122.37-default", Severity.ERROR),
        ("4.13.0", Severity.WARNING),
        ("4.16.18", Severity.WARNING),
        ("4.17.0", None),
        ("6.18.5", None),
        ("10.0", None),
    ],
)
def test_kernel_that_loses_write_back_errors_is_found(
    data: Path, release: str, expected: Severity | None
) -> None:
    """Before 4.13 another process may get the error; before 4.17 a later opener misses it."""
    diagnosis = examined(data, machine=MadeUpMachine(kernel=release))
    finding = judged(diagnosis, "kernel.release", expected)
    if finding is not None:
        assert release in finding.seen
        assert "4.17" in finding.remedy


def test_kernel_with_an_unknown_release_is_reported_as_not_examined(data: Path) -> None:
    """It may be a good one."""
    diagnosis = examined(data, machine=MadeUpMachine(kernel="rolling"))
    assert [] == checks(diagnosis)
    assert ("the kernel's version: its release is 'rolling'",) == diagnosis.unseen


def test_other_system_is_found_and_its_settings_are_not_read(data: Path) -> None:
    """It has no /proc; only the mounts are reported as not examined."""
    machine = MadeUpMachine(
        name="Darwin",
        kernel="24.1.0",
        settings=dict.fromkeys(
            (
                *("dirty_background_bytes", "dirty_background_ratio", "dirty_bytes", "dirty_ratio"),
                *("dirty_expire_centisecs", "dirty_writeback_centisecs", "swappiness"),
                "max_map_count",
            )
        ),
        mount="",
    )
    diagnosis = examined(data, machine=machine)
    assert "Darwin 24.1.0" == only(diagnosis, "kernel.release").seen
    assert (f"the mount of {data}",) == diagnosis.unseen


@pytest.mark.parametrize(
    ("settings", "memory_gib", "expected"),
    [
        ({"dirty_background_ratio": 10}, 40, None),
        ({"dirty_background_ratio": 10}, 41, "4.1 GiB"),
        ({"dirty_background_bytes": 5 * GIB}, 100, "5.0 GiB"),
        ({"dirty_background_bytes": GIB}, 1000, None),
    ],
)
def test_background_threshold_is_bytes_or_a_ratio_of_memory(
    data: Path, settings: dict[str, int | str | None], memory_gib: int, expected: str | None
) -> None:
    """Bytes, if they are set, precede the ratio, as in the kernel."""
    settings = settings | {"dirty_ratio": 80}
    memory = {"MemAvailable": memory_gib << 20}
    diagnosis = examined(data, machine=MadeUpMachine(settings=settings, memory=memory))
    if expected is None:
        assert [] == checks(diagnosis)
    else:
        finding = only(diagnosis, "vm.dirty_background")
        assert Severity.WARNING is finding.severity
        assert expected in finding.seen
        assert finding.remedy.startswith("sysctl -w vm.dirty_background_bytes=536870912 ")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"dirty_background_ratio": 20, "dirty_ratio": 20}, True),
        ({"dirty_bytes": 100 << 20}, True),
        ({"dirty_background_bytes": 100 << 20, "dirty_bytes": 101 << 20}, False),
    ],
)
def test_limit_at_or_below_the_background_threshold_is_found(
    data: Path, settings: dict[str, int | str | None], expected: bool
) -> None:
    """The kernel halves the limit then, against the intention."""
    diagnosis = examined(data, machine=MadeUpMachine(settings=settings))
    if expected:
        finding = only(diagnosis, "vm.dirty_limit")
        assert Severity.WARNING is finding.severity
        assert "sysctl -w vm.dirty_bytes=" in finding.remedy
    else:
        assert [] == checks(diagnosis)


@pytest.mark.parametrize(("centiseconds", "expected"), [(6000, False), (6001, True)])
def test_expiry_above_a_minute_is_found(data: Path, centiseconds: int, expected: bool) -> None:
    """A record may wait that long for the disk."""
    machine = MadeUpMachine(settings={"dirty_expire_centisecs": centiseconds})
    diagnosis = examined(data, machine=machine)
    assert (["vm.dirty_expire"] if expected else []) == checks(diagnosis)
    if expected:
        finding = only(diagnosis, "vm.dirty_expire")
        assert "60.01 s" in finding.seen
        assert "sysctl -w vm.dirty_expire_centisecs=3000" in finding.remedy
        assert "flush.ms" in finding.remedy


def test_disabled_write_back_is_an_error(data: Path) -> None:
    """A power cut may lose any amount."""
    machine = MadeUpMachine(settings={"dirty_writeback_centisecs": 0})
    finding = only(examined(data, machine=machine), "vm.dirty_writeback")
    assert Severity.ERROR is finding.severity
    assert "sysctl -w vm.dirty_writeback_centisecs=500" in finding.remedy


@pytest.mark.parametrize(("value", "expected"), [(None, []), (0, []), (5, ["vm.laptop_mode"])])
def test_laptop_mode_is_found_if_the_kernel_has_it(
    data: Path, value: int | None, expected: list[str]
) -> None:
    """Its absence is no gap."""
    diagnosis = examined(data, machine=MadeUpMachine(settings={"laptop_mode": value}))
    assert expected == checks(diagnosis)
    assert () == diagnosis.unseen


@pytest.mark.parametrize(
    ("swappiness", "swap_kib", "expected"),
    [(60, 0, False), (60, 2 << 20, True), (11, 4, True), (10, 2 << 20, False), (0, 4, False)],
)
def test_swappiness_is_found_if_there_is_swap(
    data: Path, swappiness: int, swap_kib: int, expected: bool
) -> None:
    """Without swap the setting has no effect."""
    machine = MadeUpMachine(settings={"swappiness": swappiness}, memory={"SwapTotal": swap_kib})
    diagnosis = examined(data, machine=machine)
    assert (["vm.swappiness"] if expected else []) == checks(diagnosis)
    if expected:
        assert "sysctl -w vm.swappiness=1 " in only(diagnosis, "vm.swappiness").remedy


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"swappiness": None}, "vm.swappiness"),
        ({"dirty_expire_centisecs": "a lot"}, "vm.dirty_expire_centisecs"),
        ({"dirty_bytes": None}, "vm.dirty_bytes"),
        ({"dirty_background_ratio": None}, "vm.dirty_background_ratio"),
        ({"max_map_count": None}, "vm.max_map_count"),
    ],
)
def test_unreadable_setting_is_reported_once_as_not_examined(
    data: Path, settings: dict[str, int | str | None], expected: str
) -> None:
    """It is neither right nor wrong."""
    diagnosis = examined(data, machine=MadeUpMachine(settings=settings))
    assert [] == checks(diagnosis)
    assert (expected,) == diagnosis.unseen
