"""Build of the compiled packages: one table of extensions, one table of Cython directives.

Switches (environment):
  KAFKALOG_DEBUG=1      line tracing, -O0 -g, C assertions: coverage and gdb see the .pyx lines
  KAFKALOG_SANITIZE=1   AddressSanitizer and UBSan (run through ci/asan.py, which preloads them)
  KAFKALOG_OPTIMIZE=0   another -O than 3, where only the building itself is tried
"""

from __future__ import annotations

import os
from pathlib import Path

from Cython.Build import cythonize
from Cython.Compiler import Options
from setuptools import Extension, setup

DEBUG = os.environ.get("KAFKALOG_DEBUG") == "1"
SANITIZE = os.environ.get("KAFKALOG_SANITIZE") == "1"
OPTIMIZE = os.environ.get("KAFKALOG_OPTIMIZE", "3")

PACKAGE = Path("kafkalog")

# What Cython itself needs for typed memoryviews, in one module instead of a copy in each: half of
# the C, and of the time to compile it, is gone with the copies. cythonize writes it.
SHARED = "kafkalog._core.cython_shared"

# Package -> module -> further C sources. Every .pyx has its line here.
EXTENSIONS: dict[str, dict[str, list[str]]] = {
    "_core": {
        "status": [],
        "mapping": ["mapping_guard.c"],
        "varint": [],
        "crc32c": ["crc32c_hw.c"],
        "crc32": ["crc32_hw.c"],
        "header": [],
        "assign_offsets": [],
        "batch": [],
        "batch_totals": [],
        "index": [],
        "bytes_column": [],
        "arrow_source": [],
        "murmur2": [],
        "partition_writer": [],
        "timestamps": [],
        "record": [],
        "columns": [],
        "compressed_decode": [],
        "message_set": [],
        "message": [],
        "summary": [],
        "point_read": [],
        "time_read": [],
        "batch_memory": [],
        "header_writer": [],
        "encoded_headers": [],
        "column_writer": [],
        "headers_column": [],
        "record_groups": [],
        "sent_ranges": [],
        "records_builder": [],
        "builder": [],
        "batch_metadata": [],
        "memory_records": [],
        "append_fast_path": [],
        "append_limits": [],
        "run_builder": [],
        "message_builder": [],
        "decoded_rows": [],
        "recompress": [],
        "lz4_blocks": [],
        "snappy_blocks": [],
        "zstd_frames": [],
        "payloads": [],
        "key_hash": ["key_hash_hw.c"],
        "offset_table": [],
        "exact_rows": [],
        "offset_map": [],
        "record_filter": [],
        "batch_rows": [],
        "key_collection": [],
        "run_filter": [],
        "arrow_export": [],
        "row_filter": [],
        "row_measure": [],
        "row_columns": [],
        "arrow_decode_step": [],
        "arrow_decode": [],
        "row_builder": [],
    },
    "_engine": {
        "append_file": [],
        "append_info": [],
        "append_lane": [],
        "commit_source": [],
        "commit_table": [],
        "counters": [],
        "delayed_records": [],
        "delayed_send": [],
        "durable_slots": [],
        "epoch_state": [],
        "file_writer": [],
        "gate_state": [],
        "histogram": [],
        "index_buffer": [],
        "iteration": [],
        "point_lookup": [],
        "producer_window": [],
        "roll_planner": [],
        "segment_appender": [],
        "fetch_data": [],
        "snapshot": [],
        "system_clock": [],
    },
}

DIRECTIVES: dict[str, object] = {
    "language_level": 3,
    "boundscheck": True,
    "wraparound": False,
    "initializedcheck": False,
    "nonecheck": True,
    "cdivision": True,
    "auto_pickle": False,
    "autotestdict": False,
    "embedsignature": True,
    "embedsignature.format": "python",
    "linetrace": DEBUG,
    "warn.unused": True,
    "warn.maybe_uninitialized": True,
    "warn.deprecated.DEF": True,
}

Options.warning_errors = True


def compile_flags() -> tuple[list[str], list[str], list[tuple[str, str | None]]]:
    """Return (compiler flags, linker flags, macros) for the chosen kind of build."""
    compile_args = ["-Wall", "-Wextra", "-Wsign-compare", "-Wconversion", "-fvisibility=hidden"]
    link_args: list[str] = []
    macros: list[tuple[str, str | None]] = []
    if SANITIZE:
        sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
        # Unoptimized: all that could be seen is there, and it compiles in a third of the time.
        compile_args += [*sanitizers, "-O0", "-g", "-fno-omit-frame-pointer"]
        link_args += sanitizers
    elif DEBUG:
        compile_args += ["-O0", "-g"]
        macros += [("CYTHON_TRACE_NOGIL", "1"), ("KAFKALOG_DEBUG", "1")]
    else:
        # Python's own flags often ask for debug information: a fifth of the time, most of the size.
        compile_args += [f"-O{OPTIMIZE}", "-g0"]
    return compile_args, link_args, macros


def extensions() -> list[Extension]:
    """Return one Extension for each line of the table, and the one that all of them share."""
    compile_args, link_args, macros = compile_flags()
    sources = {
        f"kafkalog.{package}.{name}": [f"{package}/{name}.pyx", *(f"{package}/{c}" for c in more)]
        for package, modules in EXTENSIONS.items()
        for name, more in modules.items()
        if (PACKAGE / package / f"{name}.pyx").exists()
    }
    sources[SHARED] = ["_core/cython_shared.c"]
    return [
        Extension(
            module,
            sources=[str(PACKAGE / file) for file in files],
            # Headers that only a .c includes: Cython sees those named in a .pyx by itself.
            depends=sorted(map(str, PACKAGE.glob("_core/*.h"))) if files[1:] else [],
            extra_compile_args=compile_args,
            extra_link_args=link_args,
            define_macros=macros,
        )
        for module, files in sources.items()
    ]


setup(
    ext_modules=cythonize(
        extensions(),
        compiler_directives=DIRECTIVES,
        nthreads=2,
        shared_utility_qualified_name=SHARED,
    ),
    # The C compiler runs once per extension: side by side, a fresh build takes half the time.
    options={"build_ext": {"parallel": os.cpu_count() or 1}},
)
