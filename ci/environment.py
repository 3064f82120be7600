"""The virtual environment that `ci/demo.py` and `ci/test.py` work in: made once, kept in step.

Runs under the system's python3 with nothing but the standard library. The environment is `.venv`
in the project's root. pip and setuptools are upgraded in it before anything else, because those
that a distribution ships are too old for this project's metadata; then the project is installed
editable and without build isolation, so that the extensions are built in place with the same
compiler flags every time. A stamp in `.venv` remembers what was installed: a second run with
nothing changed does no work, and one with changed sources only rebuilds.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv"
PYTHON = ENVIRONMENT / "bin" / "python"
STAMP = ENVIRONMENT / "kafkalog-install.json"

# Packages that a build of the project without isolation needs.
BUILD_REQUIREMENTS = ("setuptools>=77.0.3", "Cython>=3.1,<4")

# An environment with the extras of the key also has those of the value.
COVERS = {"dev": {"dev", "demo"}, "demo": {"demo"}}

SWITCHES = ("KAFKALOG_DEBUG", "KAFKALOG_SANITIZE", "KAFKALOG_OPTIMIZE")


class SetupError(Exception):
    """The environment could not be made; the message is an instruction."""


def ensure(extras: str) -> Path:
    """Make or refresh the environment with these extras and return its interpreter."""
    if sys.version_info < (3, 11):  # noqa: UP036 - this file also meets interpreters it refuses
        raise SetupError(f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}")
    _check_machine()
    if not PYTHON.exists():
        _make()
    hashes = {"requirements": _requirements_hash(), "sources": _sources_hash()}
    present = _read_stamp()
    if present.get("requirements") != hashes["requirements"] or extras not in COVERS.get(
        str(present.get("extras")), set()
    ):
        _install(extras)
        present["extras"] = extras
    elif present.get("sources") != hashes["sources"] or not _extensions_built():
        _rebuild()
    STAMP.write_text(json.dumps({**hashes, "extras": present["extras"]}, indent=1) + "\n")
    return PYTHON


def become(name: str, extras: str, *arguments: str) -> NoReturn:
    """Make or refresh the environment and continue as its interpreter, in the project's root."""
    try:
        python = ensure(extras)
    except SetupError as error:
        sys.exit(f"{name}: {error}")
    sys.stdout.flush()
    os.chdir(ROOT)
    os.execv(python, [str(python), *arguments])


def run(command: Sequence[str | Path], *, title: str = "") -> None:
    """Run a command in the project's root with its output on ours; raise when it fails."""
    words = [str(word) for word in command]
    print(f"== {title or shlex.join(words)}", flush=True)
    begun = time.monotonic()
    result = subprocess.run(words, cwd=ROOT, check=False)
    if result.returncode != 0:
        raise SetupError(f"exit status {result.returncode} from: {shlex.join(words)}")
    print(f"   done in {time.monotonic() - begun:.0f} s", flush=True)


def _check_machine() -> None:
    """Raise an error of one sentence instead of a hundred lines of a compiler."""
    hint = "on Debian and Ubuntu: apt install gcc python3-dev python3-venv"
    compiler = os.environ.get("CC", "cc").split()[0]
    if shutil.which(compiler) is None and shutil.which("gcc") is None:
        raise SetupError(f"C compiler not found ({hint})")
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        raise SetupError(f"the headers of {sys.executable} are missing ({hint})")


def _make() -> None:
    try:
        run([sys.executable, "-m", "venv", ENVIRONMENT], title=f"making {ENVIRONMENT.name}")
    except SetupError as error:
        # Half an environment would be taken for a whole one by the next run.
        shutil.rmtree(ENVIRONMENT, ignore_errors=True)
        hint = "on Debian and Ubuntu: apt install python3-venv"
        raise SetupError(f"python3 -m venv failed ({hint})") from error


def _install(extras: str) -> None:
    pip: list[str | Path] = [
        PYTHON,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "--quiet",
    ]
    run([*pip, "--upgrade", "pip", *BUILD_REQUIREMENTS], title="upgrading pip and setuptools")
    run(
        [*pip, "--no-build-isolation", "--editable", f".[{extras}]"],
        title=f"building and installing kafkalog[{extras}]: a minute or two the first time",
    )


def _rebuild() -> None:
    run(
        [PYTHON, "setup.py", "--quiet", "build_ext", "--inplace"],
        title="building the changed extensions",
    )


def _extensions_built() -> bool:
    sources = (ROOT / "kafkalog").glob("*/*.pyx")
    return all(any(path.parent.glob(f"{path.stem}.*.so")) for path in sources)


def _requirements_hash() -> str:
    return _hash([ROOT / "pyproject.toml"], version=sys.version)


def _sources_hash() -> str:
    switches = ",".join(f"{name}={os.environ.get(name, '')}" for name in SWITCHES)
    return _hash(_build_inputs(), version=switches)


def _build_inputs() -> Iterator[Path]:
    yield ROOT / "setup.py"
    for pattern in ("*.pyx", "*.pxd", "*_hw.c", "mapping_guard.c", "*.h"):
        yield from sorted((ROOT / "kafkalog").rglob(pattern))


def _hash(paths: Iterator[Path] | list[Path], *, version: str) -> str:
    digest = hashlib.sha256(version.encode())
    for path in paths:
        digest.update(f"\0{path.relative_to(ROOT)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _read_stamp() -> dict[str, object]:
    try:
        stamp = json.loads(STAMP.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}
