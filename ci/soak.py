"""Runner of the soak, with its setup: `python3 ci/soak.py [--minutes 60] [--seed N]`.

Services that embed the library work under load and bad input, on bounded file systems where it is
root. Their acknowledged records, their answers and their use of memory, descriptors, mappings and
disk space are judged; exit status 1 if a judgement fails. Results go to `tests/soak/results.json`
and `tests/soak/samples.jsonl` and draw `docs/soak.md`. `--gate` runs the short form, `--render`
draws only. The work is done by `tests.soak` in `.venv`, which the first run makes.
"""

from __future__ import annotations

import sys

import environment

if __name__ == "__main__":
    environment.become("soak", "dev", "-m", "tests.soak", *sys.argv[1:])
