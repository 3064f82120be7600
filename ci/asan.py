"""Runner of the core's tests with AddressSanitizer and UBSan: `python ci/asan.py [PYTEST ARGS]`.

Without arguments it runs `tests/core` and `tests/engine`, replays the corpora of `tests/fuzz`, and
gives each of its targets new inputs for some seconds, by a fresh seed; properties get a quarter of
the examples that the plain tests give them. The extensions are built with
KAFKALOG_SANITIZE=1 in a temporary copy of the sources; those next to the sources are unchanged. The
sanitizers' libraries are preloaded, because Python itself was built without them, and Python
allocates by malloc, so that each block has its own bounds.

Before the tests the sanitizer itself is tested: kernels get arrays that declare one byte more than
was allocated, and each process must be ended by it. The exit status is that of pytest, or 2 if
nothing could be checked. A compiler without ASan is a failure.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIBRARIES = ("libasan.so", "libubsan.so")
# New inputs for each fuzz target; hours on demand: `python3 ci/proof.py fuzzing --minutes 60`.
FUZZ_SECONDS = 2

# One byte past a block of malloc, which only the sanitizer can find. Each has its own process,
# forked after all imports, which the sanitizer must end.
OVERREAD = """
import json, os, sys, tempfile
import numpy
from numpy.lib.stride_tricks import as_strided
from kafkalog._core import batch, crc32, crc32c, index, key_hash, murmur2, offset_map, varint
def one_more(values):
    block = numpy.array(values, numpy.uint8)
    return as_strided(block, shape=(block.size + 1,))
answers = {}
for name, call in json.loads(sys.argv[1]).items():
    with tempfile.TemporaryFile() as said:
        child = os.fork()
        if child == 0:
            os.dup2(said.fileno(), 2)
            eval(call)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        said.seek(0)
        answers[name] = status, said.read().decode("utf-8", "replace")
print(json.dumps(answers))
"""
# Names of the error in the sanitizer; the second for a wide load that ends after the block.
OVERREAD_REPORTS = ("heap-buffer-overflow", "unknown-crash")
OVERREADS = {
    "varint": "varint.decode_varint(one_more([0x80]))",
    "crc32c portable": "crc32c.value_with('portable', one_more(range(60)))",
    "crc32c in use": "crc32c.value_with(crc32c.implementation(), one_more([7] * 1099))",
    "crc32 portable": "crc32.value_with('portable', one_more(range(60)))",
    "crc32 in use": "crc32.value_with(crc32.implementation(), one_more([7] * 1099))",
    "crc32 of a small message": "crc32.value_with(crc32.implementation(), one_more([7] * 61))",
    "key hash, words": "murmur2.value(one_more([7] * 15))",
    "key hash, tail": "murmur2.value(one_more([7] * 16))",
    "message header": "batch.parse_header(one_more([0] * 11 + [14] + [0] * 5))",
    "batch header": "batch.parse_header(one_more([0] * 11 + [49] + [0] * 4 + [2] + [0] * 43))",
    "time index": "index.check_time_index(one_more([1] * 23))",
    "md5 portable": "key_hash.md5_with('portable', [one_more([7] * 60)])",
    "md5 in lanes": "key_hash.md5_with(key_hash.md5_implementations()[0], [one_more([7] * 15)])",
    "siphash": "key_hash.siphash(bytes(16), [one_more([7] * 15)])",
    "memory of an offset map": "offset_map.OffsetMap(one_more([1] * 47), secret=bytes(16))",
}


def preload() -> str | None:
    """Return the sanitizers' libraries for LD_PRELOAD, None if the compiler has none."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    paths = []
    for library in LIBRARIES:
        command = [os.environ.get("CC", compiler), f"-print-file-name={library}"]
        try:
            found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            return None
        path = Path(found.strip())
        if not path.is_absolute():
            return None
        paths.append(str(path.resolve()))
    return " ".join(paths)


def copy_sources(target: Path) -> None:
    """
    Copy what the build and the tests need, without extensions; golden data is linked.

    C files of Cython are included, with their times: they are the same for any kind of build, and
    files older than their sources are generated again.
    """
    built = shutil.ignore_patterns("*.so", "__pycache__", "golden")
    for folder in ("kafkalog", "tests"):
        shutil.copytree(ROOT / folder, target / folder, ignore=built)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, target / name)
    (target / "tests" / "golden").symlink_to(ROOT / "tests" / "golden")


def proves_itself(folder: Path, environment: dict[str, str]) -> bool:
    """Return whether every deliberate over-read is reported as one, in one of our extensions."""
    result = subprocess.run(
        [sys.executable, "-c", OVERREAD, json.dumps(OVERREADS)],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    blind = []
    for name, (status, said) in json.loads(result.stdout).items():
        seen = any(f"AddressSanitizer: {kind}" in said for kind in OVERREAD_REPORTS)
        if status == 0 or not seen or "kafkalog/_core" not in said:
            blind.append(name)
            print(said[-2000:])
    print(f"{len(OVERREADS)} deliberate over-reads, unnoticed: {', '.join(blind) or 'none'}")
    return not blind


def run_python(*runs: list[str]) -> int:
    """Run Python with the sanitized extensions, once for each list of arguments; its status."""
    with tempfile.TemporaryDirectory(prefix="kafkalog-asan-") as name:
        environment = build(Path(name))
        if environment is None:
            return 2
        for arguments in runs:
            command = [sys.executable, *arguments]
            status = subprocess.run(command, cwd=name, env=environment, check=False).returncode
            if status:
                return status
        return 0


def run_tests(folder: Path, environment: dict[str, str], arguments: list[str]) -> int:
    """Run pytest and show the report of a sanitizer: pytest itself would swallow it and die."""
    for options in ("ASAN_OPTIONS", "UBSAN_OPTIONS"):
        environment = environment | {options: f"{environment[options]}:log_path={folder}/report"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    status = subprocess.run(command, cwd=folder, env=environment, check=False).returncode
    reports = sorted(folder.glob("report.*"))
    for report in reports:
        print(report.read_text("utf-8", "replace"))
    return status or (1 if reports else 0)


def fuzz(folder: Path, environment: dict[str, str]) -> int:
    """Run every fuzz target on inputs that no run had before; its seed is in the output."""
    options = ["--blind", "--seconds", str(FUZZ_SECONDS), "--found", str(folder / "found")]
    command = [sys.executable, "-m", "tests.fuzz", "all", *options]
    return subprocess.run(command, cwd=folder, env=environment, check=False).returncode


def build(folder: Path) -> dict[str, str] | None:
    """Build a copy of the sources with sanitizers; return the environment to run it in, or None."""
    libraries = preload()
    if libraries is None:
        print("!!! THIS COMPILER HAS NO AddressSanitizer/UBSan: THE CORE WAS NOT CHECKED !!!")
        print("!!! Install gcc's libasan and libubsan (Debian: libgcc-<version>-dev).      !!!")
        return None
    copy_sources(folder)
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    sanitize = {**os.environ, "KAFKALOG_SANITIZE": "1"}
    if subprocess.run(command, cwd=folder, env=sanitize, check=False).returncode != 0:
        print("the build with sanitizers failed")
        return None
    return {
        **os.environ,
        "LD_PRELOAD": libraries,
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(folder),
        # Leaks are CPython's own at exit; unaligned loads do not occur: cores load by bytes.
        "ASAN_OPTIONS": "detect_leaks=0:strict_string_checks=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        "KAFKALOG_EXAMPLES_SHARE": os.environ.get("KAFKALOG_EXAMPLES_SHARE", "0.25"),
    }


def main(arguments: list[str]) -> int:
    """Build, prove, test."""
    with tempfile.TemporaryDirectory(prefix="kafkalog-asan-") as name:
        folder = Path(name)
        environment = build(folder)
        if environment is None or not proves_itself(folder, environment):
            return 2
        status = run_tests(
            folder, environment, arguments or ["tests/core", "tests/engine", "tests/fuzz"]
        )
        return status or (0 if arguments else fuzz(folder, environment))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
