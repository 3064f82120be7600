"""Properties: every fast read and append path equals the slow path, over any log.

`any_logs.py` makes logs of everything that a log may be made of; `truth.py` reads the bytes of a
directory with the slow reference codecs and returns its rows, and the readers that may see them.
Read paths are compared with that list; append paths have to write bytes that make it.

Each test takes KAFKALOG_PROPERTY_EXAMPLES examples, as few as the gate has time for if it is not
set. `docs/contributing/properties.md` lists the paths that are tested elsewhere, with reasons.
"""

from __future__ import annotations

import os
from typing import Final

from hypothesis import HealthCheck, settings

__all__ = ["EXAMPLES", "of_examples"]

# Of each test; a long run takes some thousands.
EXAMPLES: Final = int(os.environ.get("KAFKALOG_PROPERTY_EXAMPLES", "12"))


def of_examples(share: float = 1) -> settings:
    """Return the settings of a test, which may take more or fewer examples than others."""
    return settings(
        max_examples=max(1, round(EXAMPLES * share)),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
