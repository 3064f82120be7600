"""Runner of `kafkalog demo`, with its setup: `python3 ci/demo.py [options of the demo]`.

Needs Python 3.11, a C compiler and a package index, no more. The first run makes `.venv`, which
takes a minute or two; later ones start at once.
"""

from __future__ import annotations

import sys

import environment

if __name__ == "__main__":
    environment.become("demo", "demo", "-m", "kafkalog", "demo", *sys.argv[1:])
