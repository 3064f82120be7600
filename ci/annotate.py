"""Cython's C for each line: `python ci/annotate.py kafkalog/_core/NAME.pyx`.

Writes `build/annotate/NAME.html`, with the directives that setup.py builds with: the yellower a
line, the more Python its C contains; a click shows the C. Nothing else is written.
"""

from __future__ import annotations

import argparse
import os
import runpy
import shutil
import sys
import tempfile
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "build" / "annotate"


def directives() -> dict[str, object]:
    """Return the table of directives in setup.py, without building anything."""
    with mock.patch("setuptools.setup"), mock.patch("Cython.Build.cythonize"):
        table: dict[str, object] = runpy.run_path("setup.py")["DIRECTIVES"]
    return table


def annotate(source: Path) -> Path:
    """Write the page for one .pyx file and return its path."""
    from Cython.Build import cythonize

    with tempfile.TemporaryDirectory() as folder:
        cythonize(  # type: ignore[no-untyped-call]
            [str(source.relative_to(ROOT))],
            compiler_directives=directives(),
            annotate=True,
            build_dir=folder,
            force=True,
        )
        TARGET.mkdir(parents=True, exist_ok=True)
        page = next(Path(folder).rglob(f"{source.stem}.html"))
        return Path(shutil.copy(page, TARGET / page.name))


def main() -> int:
    """Annotate the file named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    source = parser.parse_args().file.resolve()
    if source.suffix != ".pyx" or not source.is_file() or not source.is_relative_to(ROOT):
        parser.error(f"{source} is no .pyx file of this project")
    os.chdir(ROOT)
    print(annotate(source))
    return 0


if __name__ == "__main__":
    sys.exit(main())
