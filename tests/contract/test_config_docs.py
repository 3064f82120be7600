"""Generated pages of settings and options equal their code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kafkalog.spark.errors import ErrorCode

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize("check", ["check_config_docs", "check_spark_options"])
def test_generated_page_equals_its_generator(check: str) -> None:
    """A change of the code without a new page fails."""
    command = [sys.executable, f"ci/{check}.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (0, "") == (done.returncode, done.stdout + done.stderr)


def test_spark_page_has_every_error_code_once() -> None:
    """Programs use the codes, so the page has each of them and no other."""
    page = (ROOT / "docs" / "spark.md").read_text("ascii")
    section = page.partition("\n## Errors\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`[A-Z].*?) \|", section, re.MULTILINE)
    named = re.findall(r"`([A-Z_]+)`", " ".join(cells))
    assert sorted(ErrorCode) == sorted(named)
