"""Set everything up and run `kafkalog demo`: `python3 ci/demo.py [options of the demo]`.

Needs Python 3.11, a C compiler and a package index, no more. The first run makes `.venv`, which
takes a minute or two; later ones start at once.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import environment


def main() -> NoReturn:
    """Prepare the environment and become the demo."""
    try:
        python = environment.ensure("demo")
    except environment.SetupError as error:
        sys.exit(f"demo: {error}")
    sys.stdout.flush()
    os.chdir(environment.ROOT)
    os.execv(python, [str(python), "-m", "kafkalog", "demo", *sys.argv[1:]])


if __name__ == "__main__":
    main()
