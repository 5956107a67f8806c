"""Which tests run one after another on one worker, and which begin first.

A file's tests stay on one worker: what their module prepares is prepared once. The tests of ``APART`` take seconds
each, and most of them wait: each goes to the worker that is free. Those of a real SLURM wait even more, and run beside
the others; their files share ``CLUSTERS``, each of which starts a cluster or two. So do those of a real PBS, when the
former are done. What takes longest begins first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

# About as long as each other.
CLUSTERS = (
    ("drill_here", "drill"),
    ("doctor", "rehearse", "jobs", "run", "stage", "freeze", "tutorial"),
    ("time_limit", "state", "life", "training", "submit", "spare"),
    ("scale", "frameworks", "script", "sampler", "env", "sites", "lab", "world"),
)
PBS_CLUSTERS = (("drill_here",), ("life",), ("nodes", "training", "drill"))
# Files of many slow tests that prepare nothing together, the slowest first.
APART = (
    "script/test_script_runs.py",
    "programs/test_programs.py",
    "verify/test_any_script.py",
    "verify/test_resume_faults.py",
    "verify/test_script_interruptions.py",
    "verify/test_script_input.py",
    "cli/test_one_job_file.py",
    "monitor/test_alerts.py",
    "rehearse/test_rehearse_output.py",
    "run/test_agents.py",
    "run/test_run_sampler.py",
    "run/test_many_processes.py",
    "train/test_train_command.py",
    "verify/test_planted.py",
)
# Then these files, whole: what their modules prepare takes long, or a test of theirs does.
NEXT = (
    "runtime/unregistered/test_lost.py",
    "scale/report/test_report_page.py",
    "runtime/test_bare_environment.py",
    "runtime/data/test_streams.py",
    "runtime/data/test_streams_of_libraries.py",
    "strategies/test_strategies_same_model.py",
    "strategies/test_deepspeed.py",
    "runtime/records/test_records.py",
    "strategies/test_any_world.py",
    "test_wheel.py",
    "verify/test_planted_worlds.py",
    "rehearse/test_sandbox.py",
    "runtime/test_same_model.py",
    "runtime/test_prepare_types.py",
    "runtime/checkpointing/test_check_settings.py",
    "strategies/test_parts_of_a_model.py",
    "strategies/test_ddp_buckets.py",
    "docs/test_tutorial.py",
    "runtime/checkpointing/test_elastic.py",
    "runtime/data/test_loader_workers.py",
    "cli/test_scale_command.py",
    "examples/test_frameworks.py",
    "script/test_script_goldens.py",
)


class Units(LoadScopeScheduling):
    """For ``--dist loadfile``. xdist itself would begin with the files of most tests, and end with the single tests of
    ``APART``: then most workers wait, and the processors with them."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0].removeprefix("tests/")
        return nodeid if path in APART else {**CLUSTER_OF, **PBS_OF}.get(path, path)


def _cluster_of(kind: str, clusters: Sequence[Sequence[str]]) -> dict[str, str]:
    """Path of a file → its cluster."""
    return {
        f"{kind}/test_{kind}_{name}.py": f"{kind} {number}"
        for number, names in enumerate(clusters, 1)
        for name in names
    }


CLUSTER_OF, PBS_OF = _cluster_of("cluster", CLUSTERS), _cluster_of("pbs", PBS_CLUSTERS)


def mark_repetitions(items: Sequence[pytest.Item]) -> None:
    """Of a test marked ``repeated``, all but the first set of parameters are ``slow``."""
    begun: set[tuple[str, str]] = set()
    for item in items:
        if item.get_closest_marker("repeated"):
            test = (item.nodeid.partition("::")[0], getattr(item, "originalname", item.name))
            if test in begun:
                item.add_marker("slow")
            begun.add(test)


def in_order(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Those that take longest first, so that no worker is left with one of them at the end."""
    first = {path: place for place, path in enumerate((*CLUSTER_OF, *APART, *PBS_OF, *NEXT))}
    return sorted(
        items, key=lambda item: first.get(item.nodeid.partition("::")[0].removeprefix("tests/"), len(first))
    )
