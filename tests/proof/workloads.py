"""The workloads that cuts and kills end."""

from __future__ import annotations

import contextlib
import importlib

import pyarrow as pa

from tests.proof.checking import check_logs
from tests.proof.checking_managers import check_topics
from tests.proof.harness import Proof
from tests.proof.managers import write_topics
from tests.proof.rounds import Workload
from tests.proof.single_logs import write_logs

__all__ = ["load_modules", "workloads"]

_ALL = (
    Workload("single logs", write_logs, check_logs, 16_000),
    Workload("managers", write_topics, check_topics, 40_000),
)


def workloads(proof: Proof) -> list[Workload]:
    """Return them all, or the one whose first word `--option workload=` names."""
    prefix = proof.options.get("workload", "")
    return [each for each in _ALL if each.name.startswith(prefix)]


def load_modules() -> None:
    """
    Import what a writer would import when it first needs it.

    Every writer is a fork of the judge: without this each of them spends most of its short life on
    the same imports (pyarrow takes in pandas with the first array), and does little else.
    """
    pa.array([b""], pa.binary())
    for name in ("isal.igzip_lib", "isal.isal_zlib", "dateutil.tz", "grp", "pwd", "zoneinfo"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
