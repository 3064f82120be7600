"""Fixtures of pytest in separate runs, as of a program that has installed kafkalog."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

CONFTEST = 'pytest_plugins = ["kafkalog.testing.fixtures"]\n'


def run_pytest(directory: Path, **sources: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of a program in a separate directory, each warning as an error."""
    for name, source in sources.items():
        (directory / f"{name}.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"]
    return subprocess.run(
        [*command, "-p", "no:randomly", f"--rootdir={directory}", "."],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_page_examples_pass(tmp_path: Path) -> None:
    """Every test of the page about testing, with its conftest."""
    page = (ROOT / "docs/testing.md").read_text("ascii")
    conftest, *tests = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    sources = {f"test_{number}": source for number, source in enumerate(tests)}
    result = run_pytest(tmp_path, conftest=conftest, **sources)
    count = sum(source.count("def test_") for source in tests)
    assert count >= len(tests) - 1
    assert f"{count} passed" in result.stdout, result.stdout


def test_fixtures_share_one_manager_and_close_it(tmp_path: Path) -> None:
    """The log is that of the manager, and the clock is the manager's."""
    source = """
from kafkalog import Record
from kafkalog.testing import START_MS, assert_records

opened = []

def test_one(kafkalog_manager, kafkalog_log, kafkalog_clock, kafkalog_faults, kafkalog_managers):
    opened.append(kafkalog_manager)
    assert kafkalog_manager.log("test", 0) is kafkalog_log
    assert kafkalog_managers.time is kafkalog_clock
    assert kafkalog_managers.faults is kafkalog_faults
    kafkalog_log.append([Record(value=b"v")])
    assert next(kafkalog_log.records()).timestamp_ms == START_MS

def test_two(kafkalog_log):
    assert opened[0].is_closed
    assert_records(kafkalog_log, [])
"""
    result = run_pytest(tmp_path, conftest=CONFTEST, test_program=source)
    assert "2 passed" in result.stdout, result.stdout


def test_failed_assertion_ends_its_traceback_in_the_test(tmp_path: Path) -> None:
    """Lines of the library would hide the message; an own config fixture is used."""
    conftest = f"""{CONFTEST}
import pytest
from kafkalog import LogConfig, ManagerConfig

@pytest.fixture
def kafkalog_config():
    return ManagerConfig(log=LogConfig(segment_bytes=4096))
"""
    source = """
from kafkalog.testing import assert_records

def test_one(kafkalog_log):
    assert kafkalog_log.config.segment_bytes == 4096
    assert_records(kafkalog_log, [b"v"])
"""
    result = run_pytest(tmp_path, conftest=conftest, test_program=source)
    assert "missing:      record 0 of the expected, value=b'v'" in result.stdout
    assert "1 failed" in result.stdout
    assert "assertions.py" not in result.stdout


def test_package_works_without_pytest(tmp_path: Path) -> None:
    """`unittest` needs no pytest: only the fixtures import it."""
    code = "import sys, kafkalog.testing; assert not {'pytest', '_pytest'} & set(sys.modules)"
    subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        timeout=60,
    )
