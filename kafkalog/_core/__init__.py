"""Native kernels: bytes in, numbers out. No files, no locks, no policy (docs/architecture.md)."""

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

if not any(Path(__path__[0], f"record{suffix}").exists() for suffix in EXTENSION_SUFFIXES):
    # Python that is started in a checkout finds this folder before an installed package.
    raise ImportError(
        f"kafkalog in {Path(__path__[0]).parent} is a source tree without compiled modules: start"
        " Python in another folder to use the installed package, or compile here with"
        " `python setup.py build_ext --inplace`"
    )
