"""Processes that each train a model of their own, which is hardly what several processes were started for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from rankup.core.rundir import RunDir

# Seconds after which it is said for the first time; again when the run ends.
EARLY = 60.0
# Its presence asks ``torch_hook`` for the number of optimizer steps.
COUNT_STEPS = "RANKUP_COUNT_OPTIMIZER_STEPS"
HOOK = Path(__file__).parent / "torch_hook"


def with_torch_hook(env: Mapping[str, str]) -> dict[str, str]:
    """The variable by which torch finds our hook when a rank imports it; see ``torch_hook``."""
    before = env.get("PYTHONPATH", "")
    return {"PYTHONPATH": f"{before}{os.pathsep}{HOOK}" if before else str(HOOK)}


def trained_alone(run: RunDir) -> int:
    """How many ranks trained a model of their own. Only runs with ``torch_hook`` tell."""
    return sum(1 for _ in run.path.glob("trained-alone-*"))


def optimizer_steps(run: RunDir) -> int | None:
    """Steps that the optimizers of rank 0 took, in a run that had ``COUNT_STEPS`` in its environment; None if nobody
    knows."""
    try:
        return int((run.path / "optimizer-steps").read_text())
    except (OSError, ValueError):
        return None


def count_separate_models(run: RunDir, *, ended: bool) -> str:
    """In a line, how many ranks train alone; "" unless there are several."""
    count = trained_alone(run)
    if count < 2:
        return ""
    what = "each trained their own model" if ended else "each train their own model"
    return (
        f"rankup: {count} processes {what}: they are in no process group. For one model: rankup.init() and "
        "run.prepare(), or init_process_group() and DistributedDataParallel"
    )
