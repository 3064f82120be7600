"""Mutated directories: partitions of all brokers and of this library, changed by every mutation.

Each case runs in a worker process with a bound on its time and its memory, on a folder in memory
where there is one, for nothing here is about the disk. A case is made again by the name of its
image and its seed: `python3 ci/proof.py mutations --option image=NAME --option case=SEED`.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import random
import resource
import shutil
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock
from typing import Generic, TypeVar

from tests.proof.data_directories import DataImage, data_images, run_data_case, write_changed
from tests.proof.directory_case import CaseResult, changed_copy, run_case
from tests.proof.harness import Proof
from tests.proof.partition_images import Image, broker_images, own_images

__all__ = ["Worker", "run", "run_any_case"]

AnyImage = Image | DataImage
OneImage = TypeVar("OneImage")

CASE_SECONDS = 30
# Limit of a worker beyond what it was forked with: parts that ran before leave memory mapped.
MEMORY_BYTES = 1 << 30
IN_MEMORY = Path("/dev/shm")
# Data directories are few and large: without it a hundredth of the cases would be of them.
DATA_WEIGHT = 8
# A worker is replaced after so many cases, so that what one keeps does not add up.
CASES_OF_WORKER = 2000


def run(proof: Proof) -> None:
    """Change directories until the time is over."""
    with _folder(proof) as folder:
        made = folder / "made"
        images: list[AnyImage] = [
            *own_images(made),
            *broker_images(),
            *data_images(folder / "data"),
        ]
        for used in (made, folder / "data"):
            shutil.rmtree(used)
        proof.count("images", len(images))
        name = proof.options.get("image")
        if name is not None:
            images = [image for image in images if image.name == name]
        workers = [
            Worker(images, folder / f"{number}", run=run_any_case) for number in range(_cores())
        ]
        reporting = Lock()
        try:
            with ThreadPoolExecutor(len(workers)) as pool:
                list(pool.map(lambda worker: _work(proof, images, worker, reporting), workers))
        finally:
            for worker in workers:
                worker.stop()


def _work(
    proof: Proof, images: Sequence[AnyImage], worker: Worker[AnyImage], reporting: Lock
) -> None:
    only = proof.options.get("case")
    weights = [
        (1 if isinstance(image, Image) else DATA_WEIGHT) / (20_000 + image.size_bytes)
        for image in images
    ]
    while proof.seconds_left() > 0:
        seed = proof.random.getrandbits(48) if only is None else int(only)
        (number,) = random.Random(seed).choices(range(len(images)), weights)
        result = worker.perform(number, seed)
        with reporting:
            _judge(proof, images[number], seed, result)
        if only is not None:
            return


def _judge(proof: Proof, image: AnyImage, seed: int, result: CaseResult) -> None:
    proof.count("mutated directories" if isinstance(image, Image) else "mutated data directories")
    for name, count in sorted(result.counts.items()):
        proof.count(name, count)
    if result.problems:
        with tempfile.TemporaryDirectory(prefix="kafkalog-proof-case-") as name:
            if isinstance(image, Image):
                changes = changed_copy(image, seed, Path(name))
            else:
                changes = write_changed(image, seed, Path(name))
            lines = [*result.problems, *changes, f"image {image.name}, case {seed}"]
            proof.broken(_title(result.problems[0]), "\n".join(lines), [Path(name)])


def _title(problem: str) -> str:
    """Return a problem without its numbers, so that equal ones can be counted."""
    return " ".join("".join(each for each in problem if not each.isdigit()).split())[:80]


@contextmanager
def _folder(proof: Proof) -> Iterator[Path]:
    if not os.access(IN_MEMORY, os.W_OK):
        yield proof.folder
        return
    with tempfile.TemporaryDirectory(prefix="kafkalog-proof-", dir=IN_MEMORY) as name:
        yield Path(name)


def _cores() -> int:
    return max(1, len(os.sched_getaffinity(0)))


class Worker(Generic[OneImage]):
    """
    A process that runs cases; if it hangs or dies it is replaced, which is the result.

    Args:
        images: what cases change.
        folder: files of a case.
        run: runs a case of an image and a seed.
        memory_bytes: most memory that a case may map.
    """

    def __init__(
        self,
        images: Sequence[OneImage],
        folder: Path,
        *,
        run: Callable[[OneImage, int, Path], CaseResult],
        memory_bytes: int = MEMORY_BYTES,
    ) -> None:
        self._images = images
        self._folder = folder
        self._run = run
        self._memory_bytes = memory_bytes
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("fork")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=self._serve, args=(theirs, self._pipe), daemon=True)
        self._process.start()
        theirs.close()
        self._cases = 0

    def perform(self, number: int, seed: int) -> CaseResult:
        """Run one case; what ends the process is a problem."""
        if self._cases >= CASES_OF_WORKER:
            self.stop()
            self._start()
        self._cases += 1
        try:
            self._pipe.send((number, seed))
            if self._pipe.poll(CASE_SECONDS):
                result: CaseResult = self._pipe.recv()
                return result
            problem = f"no answer within {CASE_SECONDS} s"
        except (EOFError, OSError):
            self._process.join(5)
            code = self._process.exitcode or 0
            problem = f"the process ended: {signal.Signals(-code).name if code < 0 else code}"
        self.stop()
        self._start()
        return CaseResult(problems=[problem])

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()
        self._pipe.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _serve(self, pipe: Connection, theirs: Connection) -> None:
        """Run the cases that come through a pipe, in the process of the worker."""
        images, folder = self._images, self._folder
        theirs.close()
        logging.disable()
        limit = _data_bytes() + self._memory_bytes
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        folder.mkdir(parents=True, exist_ok=True)
        while True:
            try:
                number, seed = pipe.recv()
            except EOFError:
                return
            try:
                result = self._run(images[number], seed, folder / "case")
            except Exception:  # noqa: BLE001 - an error that has no type here is what is looked for
                lines = traceback.format_exc().splitlines()
                result = CaseResult(problems=[f"untyped error: {lines[-1]}"], changes=lines)
            shutil.rmtree(folder / "case", ignore_errors=True)
            pipe.send(result)


def run_any_case(image: AnyImage, seed: int, folder: Path) -> CaseResult:
    """Run a case of a partition or of a data directory."""
    if isinstance(image, Image):
        return run_case(image, seed, folder)
    return run_data_case(image, seed, folder)


def _data_bytes() -> int:
    """Return how much of what RLIMIT_DATA bounds this process has mapped."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if "VmData" in line)) << 10
