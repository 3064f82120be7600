"""The configuration page is what the code says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def test_configuration_page_equals_the_code() -> None:
    """`docs/configuration.md` is generated, and nobody forgot to."""
    command = [sys.executable, "ci/check_config_docs.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (0, "") == (done.returncode, done.stdout + done.stderr)
