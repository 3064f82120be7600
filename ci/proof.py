"""Runner of the failure tests, with their setup: `python3 ci/proof.py [PART ...] [--minutes N]`.

Cuts the power, kills processes, lets calls fail and mutates directories, and judges what the
library makes of it; results go to `tests/proof/results.json` and draw `docs/proof.md`.
`--gate` runs the short forms, `--render` draws only, `--list` names the parts. The work is done by
`tests.proof` in `.venv`, which the first run makes.
"""

from __future__ import annotations

import sys

import environment

if __name__ == "__main__":
    environment.become("proof", "dev", "-m", "tests.proof", *sys.argv[1:])
