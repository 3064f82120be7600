"""Whole directories: an input is a seed that changes a directory, which every view then opens.

The checks are in `tests.proof.directory_case` and `tests.proof.data_directories`. The proof of
mutated directories runs them with many more seeds; here they also run under the sanitizers, and a
seed that failed once stays in the corpus.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

from tests.proof.data_directories import DataImage, own_data_images, run_data_case
from tests.proof.directory_case import run_case
from tests.proof.partition_images import Image, own_images

__all__ = ["open_directory"]

_memory = Path("/dev/shm")
_FOLDER: Final = Path(
    tempfile.mkdtemp(prefix="kafkalog-fuzz-", dir=_memory if _memory.is_dir() else None)
)
atexit.register(shutil.rmtree, _FOLDER, ignore_errors=True)


@cache
def _images() -> list[Image | DataImage]:
    made = _FOLDER / "made"
    images: list[Image | DataImage] = [*own_images(made), *own_data_images(made)]
    shutil.rmtree(made)
    return images


def open_directory(data: bytes) -> None:
    """Change an image by a seed of up to eight bytes, and check it in every view."""
    seed = int.from_bytes(data[:8])
    image = _images()[seed % len(_images())]
    try:
        if isinstance(image, Image):
            result = run_case(image, seed, _FOLDER / "case")
        else:
            result = run_data_case(image, seed, _FOLDER / "case")
    finally:
        shutil.rmtree(_FOLDER / "case", ignore_errors=True)
    assert not result.problems, [image.name, *result.problems, *result.changes]
