"""The pages of settings and options are what the code says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kafkalog.spark.errors import ErrorCode

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize("check", ["check_config_docs", "check_spark_options"])
def test_generated_page_equals_the_code(check: str) -> None:
    """The page is generated, and nobody forgot to."""
    command = [sys.executable, f"ci/{check}.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (0, "") == (done.returncode, done.stdout + done.stderr)


def test_every_code_of_an_error_is_on_the_page_of_spark() -> None:
    """Once, and no other: programs look for them."""
    page = (ROOT / "docs" / "spark.md").read_text("ascii")
    section = page.partition("\n## Errors\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`[A-Z].*?) \|", section, re.MULTILINE)
    named = re.findall(r"`([A-Z_]+)`", " ".join(cells))
    assert sorted(ErrorCode) == sorted(named)
