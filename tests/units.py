"""Which tests run one after another on one worker, and which begin first.

A file's tests stay on one worker: what their module prepares is prepared once. The tests of ``APART`` take seconds
each, and most of them wait: each goes to the worker that is free. Those of a real SLURM wait even more, and run beside
the others; their files share ``CLUSTERS``, each of which starts a cluster or two. What takes longest begins first.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from xdist.scheduler import LoadScopeScheduling

# About as long as each other.
CLUSTERS = (
    ("doctor", "rehearse"),
    ("time_limit", "life", "jobs", "run", "training", "submit"),
    ("scale", "frameworks", "script", "env", "lab", "world"),
)
# Files of many slow tests that prepare nothing together, the slowest first.
APART = (
    "script/test_script_runs.py",
    "programs/test_programs.py",
)


class Units(LoadScopeScheduling):
    """For ``--dist loadfile``."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0].removeprefix("tests/")
        return nodeid if path in APART else CLUSTER_OF.get(path, path)


CLUSTER_OF = {
    f"cluster/test_cluster_{name}.py": f"cluster {number}"
    for number, names in enumerate(CLUSTERS, 1)
    for name in names
}


def in_order(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Those that take longest first, so that no worker is left with one of them at the end."""
    first = {path: place for place, path in enumerate((*CLUSTER_OF, *APART))}
    return sorted(
        items, key=lambda item: first.get(item.nodeid.partition("::")[0].removeprefix("tests/"), len(first))
    )
