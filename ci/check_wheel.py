"""Check that the project can be installed without its checkout: `python ci/check_wheel.py`.

A source archive is made from a copy of the working tree, a wheel is built from that archive alone
(pip's own isolated build: a C compiler and a package index, nothing else), and the wheel is
installed into a fresh virtual environment. Then it must import without optional packages, carry
its types and `.pxd` files and no generated C, append a record and read it back. The working tree
is not touched. Takes a minute or two; needs the package index.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SKIPPED = shutil.ignore_patterns(
    ".git", ".venv", ".asv", ".kafka", "build", "dist", "tests", "*.so", "*.egg-info", "__pycache__"
)
MAKE_ARCHIVE = "import sys; from setuptools import build_meta as b; b.build_sdist(sys.argv[1])"

# Not to be imported by `import kafkalog`, installed or not.
UNWANTED = ("pyarrow", "pyspark", "pandas", "typer", "rich", "cramjam", "isal", "lz4", "zstandard")

TRY_IMPORT = f"""
import sys
import kafkalog
loaded = sorted(set({UNWANTED!r}) & set(sys.modules))
assert not loaded, f"import kafkalog loads {{loaded}}"
assert "site-packages" in kafkalog.__file__, kafkalog.__file__
"""

TRY_LOG = """
import sys
import kafkalog
with kafkalog.open_log(sys.argv[1]) as log:
    log.append([kafkalog.Record(key=b"k", value=b"v"), kafkalog.Record(value=None)])
with kafkalog.open_log(sys.argv[1], read_only=True) as log:
    found = [(record.offset, record.key, record.value) for record in log.records()]
assert found == [(0, b"k", b"v"), (1, None, None)], found
"""


def run(command: Sequence[str | Path], folder: Path, **variables: str) -> None:
    """Run a command; its output is shown if it fails, and then an exception is raised."""
    words = [str(word) for word in command]
    result = subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, **variables},
        check=False,
        capture_output=True,
        text=True,
    )
    if result.returncode != 0:
        print(result.stdout, result.stderr, sep="\n", flush=True)
        result.check_returncode()


def build(folder: Path) -> tuple[Path, Path]:
    """Build source archive and wheel, the wheel from nothing but the archive."""
    tree, archives, wheels = folder / "tree", folder / "archives", folder / "wheels"
    shutil.copytree(ROOT, tree, ignore=SKIPPED)
    run([sys.executable, "-c", MAKE_ARCHIVE, archives], tree)
    (archive,) = archives.glob("*.tar.gz")
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    # Only the build is checked, not the speed.
    command = [*pip, "wheel", "--no-deps", "--wheel-dir", wheels, archive]
    run(command, folder, KAFKALOG_OPTIMIZE="0")
    (wheel,) = wheels.glob("*.whl")
    return archive, wheel


def archive_problems(archive: Path) -> list[str]:
    """Return the generated C files in the source archive: Cython is a build requirement."""
    with tarfile.open(archive) as opened:
        names = opened.getnames()
    written = ("_hw.c", "mapping_guard.c")
    generated = [name for name in names if name.endswith(".c") and not name.endswith(written)]
    return [f"{name} is in {archive.name}" for name in generated]


def content_problems(wheel: Path) -> list[str]:
    """Return what the wheel lacks or should not have."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    found = []
    if "kafkalog/py.typed" not in names:
        found.append("no py.typed")
    package = ROOT / "kafkalog"
    for source in sorted(package.glob("*/*.pyx")):
        stem = source.relative_to(ROOT).with_suffix("").as_posix()
        if not any(name.startswith(f"{stem}.") and name.endswith(".so") for name in names):
            found.append(f"{stem} is not built")
        if f"{stem}.pyi" not in names:
            found.append(f"no {stem}.pyi")
    declared = [path.relative_to(ROOT).as_posix() for path in sorted(package.glob("*/*.pxd"))]
    found += [f"no {name}" for name in declared if name not in names]
    found += [f"{name} is in the wheel" for name in sorted(names) if name.endswith((".c", ".html"))]
    if not any(name.endswith("licenses/LICENSE") for name in names):
        found.append("no LICENSE")
    return found


def try_out(wheel: Path, folder: Path) -> None:
    """Install the wheel into a fresh environment and use it there, away from the sources."""
    environment = folder / "environment"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    pip: list[str | Path] = [python, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    run([*pip, "install", wheel], folder)
    run([python, "-I", "-c", TRY_IMPORT], folder)
    partition = folder / "orders-0"
    run([python, "-I", "-c", TRY_LOG, partition], folder)
    run([environment / "bin" / "kafkalog", "dump", partition], folder)


def main() -> int:
    """Build, look inside, install, use."""
    with tempfile.TemporaryDirectory(prefix="kafkalog-wheel-") as name:
        folder = Path(name)
        archive, wheel = build(folder)
        for file in (archive, wheel):
            print(f"built {file.name}, {file.stat().st_size:,} bytes", flush=True)
        found = archive_problems(archive) + content_problems(wheel)
        for problem in found:
            print(problem)
        if found:
            return 1
        try_out(wheel, folder)
    print("the wheel is whole, installs, imports nothing optional, appends and reads")
    return 0


if __name__ == "__main__":
    sys.exit(main())
