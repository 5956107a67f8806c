"""From the options of ``rankup train`` and ``rankup scale`` to a job of ``python -m rankup.train``."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rankup.core.registry import target_of
from rankup.errors import RankupError
from rankup.resolve.here import resolve_here
from rankup.resolve.resolved import Resolved
from rankup.strategies import STRATEGIES
from rankup.train.options import TrainOptions
from rankup.workloads import WORKLOADS


def require_torch() -> None:
    if find_spec("torch") is None:
        raise RankupError(
            "no-torch",
            "torch is not installed in this Python",
            hint="pip install torch, load the cluster's module, or run rankup from an environment with torch",
        )


def training_of(workload: str, options: Mapping[str, Any]) -> TrainOptions:
    """How ``workload`` (a built-in name or ``module:Class``) is trained.

    ``options``: fields of ``TrainOptions`` given as flags; the ranks, which import the workload, fill in its defaults
    for the others.
    """
    target = workload if ":" in workload else target_of("workload", workload, WORKLOADS)
    return TrainOptions.asked(target, workload.partition(":")[2] or workload, options)


def workload_job(training: TrainOptions, flags: Mapping[str, Any], file: Path | None = None) -> Resolved:
    """The job that runs ``training``; ``flags`` by the keys of ``JobSpec``, over those of ``file``, a job.toml."""
    nproc = flags.get("nproc_per_node")
    row = STRATEGIES.get(training.strategy)  # none of "auto"
    if nproc is None and row is not None and row.one_process:
        nproc = 1  # the strategy uses all GPUs from one process, or one GPU
    # Other values of nproc are refused with the other mistakes of the job.
    if isinstance(nproc, int) and "global_batch" in training.given and training.global_batch < nproc:
        raise RankupError(
            "global-batch-too-small",
            f"--global-batch must be at least the number of processes, {nproc}; got {training.global_batch}",
            hint="the global batch is shared out over all processes",
        )
    asked = dict(flags) if nproc is None else {**flags, "nproc_per_node": nproc}
    if file is None:
        asked.setdefault("name", training.name)
    return resolve_here(asked, command=("-m", "rankup.train", training.to_json()), file=file)
