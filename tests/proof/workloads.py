"""The workloads that cuts and kills end."""

from __future__ import annotations

from tests.proof.checking import check_logs
from tests.proof.checking_managers import check_topics
from tests.proof.harness import Proof
from tests.proof.managers import write_topics
from tests.proof.rounds import Workload
from tests.proof.single_logs import write_logs

__all__ = ["workloads"]

_ALL = (
    Workload("single logs", write_logs, check_logs, 0.35),
    Workload("managers", write_topics, check_topics, 0.6),
)


def workloads(proof: Proof) -> list[Workload]:
    """Return them all, or the one whose first word `--option workload=` names."""
    wanted = proof.options.get("workload", "")
    return [each for each in _ALL if each.name.startswith(wanted)]
