"""From the options of ``rankup train`` and ``rankup scale`` to a job of ``python -m rankup.train``."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rankup.cli.options import process_count
from rankup.core.registry import target_of
from rankup.errors import RankupError
from rankup.run.execute import LocalJob
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


def workload_job(
    workload: str,
    nproc_per_node: str,
    *,
    options: Mapping[str, Any],
    name: str = "",
    runs_root: Path = Path("runs"),
    threads: int | None = None,
    env: Mapping[str, str] | None = None,
) -> tuple[LocalJob, TrainOptions]:
    """The job that trains ``workload`` (a built-in name or ``module:Class``).

    ``options``: fields of ``TrainOptions`` given as flags; the ranks, which import the workload, fill in its defaults
    for the others.
    """
    target = workload if ":" in workload else target_of("workload", workload, WORKLOADS)
    short = workload.partition(":")[2] or workload
    chosen = TrainOptions.asked(target, short, options)
    nproc = process_count(nproc_per_node)
    row = STRATEGIES.get(chosen.strategy)  # none of "auto"
    if nproc is None and row is not None and row.one_process:
        nproc = 1  # the strategy uses all GPUs from one process, or one GPU
    if nproc is not None and "global_batch" in options and chosen.global_batch < nproc:
        raise RankupError(
            "global-batch-too-small",
            f"--global-batch must be at least the number of processes, {nproc}; got {chosen.global_batch}",
            hint="the global batch is shared out over all processes",
        )
    job = LocalJob(
        command=("-m", "rankup.train", chosen.to_json()),
        name=name or short,
        nproc=nproc,
        runs_root=runs_root,
        threads=threads,
        env=env or {},
    )
    return job, chosen
