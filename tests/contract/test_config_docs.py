"""The pages of settings and options are what the code says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize("check", ["check_config_docs", "check_spark_options"])
def test_generated_page_equals_the_code(check: str) -> None:
    """The page is generated, and nobody forgot to."""
    command = [sys.executable, f"ci/{check}.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (0, "") == (done.returncode, done.stdout + done.stderr)
