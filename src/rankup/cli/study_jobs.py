"""From a trial of a study to the job that runs it: a workload with its options, or a script with its arguments."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rankup.cli.target_parser import training_asked
from rankup.core.nearest import nearest
from rankup.errors import RankupError
from rankup.resolve.here import resolve_here
from rankup.resolve.precedence import resolve
from rankup.resolve.resolved import Resolved
from rankup.run.separate_models import COUNT_STEPS
from rankup.scale.journal import StudyPlan
from rankup.scale.plan import JOB_KEYS, TRAINING_KEYS, Trial, fill_in, placeholders_in
from rankup.strategies import STRATEGIES
from rankup.workloads import WORKLOADS
from rankup.world.devices import count_gpus, cpu_affinity


def is_workload(word: str) -> bool:
    """Whether ``word`` names a training of ``rankup train``, and not a script."""
    return word in WORKLOADS or (":" in word and not Path(word).exists()) or word.endswith(".toml")


def job_of(plan: StudyPlan, trial: Trial, folder: Path) -> Resolved:
    """The job of ``trial``, whose runs lie below ``folder``."""
    asked = trial.asked
    flags = {**plan.flags, **{JOB_KEYS[key]: value for key, value in asked.items() if key in JOB_KEYS}}
    flags |= {"name": "trials", "runs_root": folder}
    cwd = Path(plan.cwd or Path.cwd())
    if is_workload(plan.command[0]):
        command, file = _training_command(plan, trial)
    else:
        command, file = fill_in(plan.command, trial), None
    if plan.site:
        # A run in two parts would be timed wrongly, and a proof is no part of a measurement.
        flags = {"max_requeues": 0, "proof": False, **flags}
        return resolve(
            flags, command=command, file=None, site=plan.site, env=os.environ, folder=cwd, ignore=()
        )
    try:
        job = resolve_here(flags, command=command, file=file, folder=cwd)
    except RankupError as error:
        if error.code != "incomplete-nodes":  # which speaks of `rankup run` on machines by hand
            raise
        raise RankupError(
            "no-nodes",
            f"{trial.name} requires {asked.get('nodes', 1)} nodes, and this process is not in an allocation",
            context="--grid nodes",
            hint="--site NAME submits the runs as jobs; or run it inside an allocation",
        ) from error
    if plan.metric:  # its work is known to nobody else
        counting = job.spec.model_copy(update={"env": {**job.spec.env, COUNT_STEPS: "1"}})
        job = replace(job, spec=counting)
    # Of an allocation so many nodes, and not, as --nnodes 1 says, this machine.
    return replace(job, origin={**job.origin, "nodes": "grid"}) if "nodes" in asked else job


def check_keys(command: Sequence[str], grid: Mapping[str, Any], scaling: str, site: str) -> None:
    """Raises RankupError for a key that nothing takes: a script takes training options by {key} alone."""
    if "launcher" in grid and not site:
        raise RankupError(
            "key-not-taken",
            "runs here are started by torchrun: launcher is a key of jobs",
            context="--grid launcher",
            hint="--site NAME submits the runs as jobs",
        )
    if is_workload(command[0]):
        return
    if not Path(command[0]).exists() and (meant := nearest(command[0], WORKLOADS)):
        raise RankupError(
            "unknown-workload",
            f"{command[0]!r} is neither a script nor a workload; did you mean {meant!r}?",
            hint=f"workloads: {', '.join(WORKLOADS)}",
        )
    named = placeholders_in(command)
    for key in grid:
        if key in TRAINING_KEYS and key not in named:
            raise RankupError(
                "key-not-taken",
                f"{command[0]} does not say how it takes {key}",
                context=" ".join(command),
                hint=f"name it in the script's arguments: {command[0]} --{key} {{{key}}}",
            )
    if (
        scaling == "weak"
        and "global-batch" not in named
        and not any("{processes}" in word for word in command)
    ):
        raise RankupError(
            "no-weak-scaling",
            f"--weak requires that {command[0]} trains on more samples with more processes",
            context=" ".join(command),
            hint=f"e.g. {command[0]} --batch-per-process 64 --processes {{processes}}",
        )


def check_processes(grid: Mapping[str, Sequence[Any]], training: Mapping[str, Any]) -> None:
    """Raises RankupError where the processes of this machine are more than its CPUs, or its GPUs. Of a job, the
    scheduler says so."""
    on_cpus = not count_gpus(os.environ) or training.get("device") == "cpu" or "cpu" in grid.get("device", ())
    most = max(int(count) for count in grid.get("nproc", (1,)))
    there = len(cpu_affinity()) if on_cpus else max(count_gpus(os.environ), len(cpu_affinity()))
    if most > there:
        raise RankupError(
            "too-many-processes",
            f"nproc={most} are more processes than this machine has CPUs, {there}: they would wait for each other",
            context="--grid nproc",
            hint=f"at most nproc={there} here; --site NAME submits the runs as jobs of a larger machine",
        )


def fair_threads(
    grid: Mapping[str, Sequence[Any]], flags: Mapping[str, Any], training: Mapping[str, Any]
) -> dict[str, int]:
    """``{"cpus_per_task": …}``: as many threads for each process of every configuration, on CPUs; {} if it is said."""
    if (
        {"cpus-per-task", "gpus"} & set(grid)
        or {"threads", "cpus_per_task"} & set(flags)
        or (count_gpus(os.environ) and training.get("device") != "cpu")
    ):
        return {}
    most = max(int(count) for count in grid.get("nproc", (flags.get("nproc_per_node", 1),)))
    return {"cpus_per_task": max(1, len(cpu_affinity()) // most)}


def _training_command(plan: StudyPlan, trial: Trial) -> tuple[tuple[str, ...], Path | None]:
    asked = {**plan.training, **{TRAINING_KEYS[k]: v for k, v in trial.asked.items() if k in TRAINING_KEYS}}
    asked |= {"snapshot_every": "off"}
    if plan.scaling == "weak":
        if "global_batch" not in asked:
            raise RankupError(
                "no-batch-per-process",
                "--weak requires --global-batch, the batch of one process",
                hint="--weak --global-batch 64",
            )
        asked["global_batch"] = int(asked["global_batch"]) * trial.processes
    if trial.repeat == 0:
        apart = asked.get("strategy", "auto") in ("auto", "none", "ddp") and "accumulate" not in asked
        asked["breakdown" if apart else "dry_run"] = True
    training, file = training_asked(plan.command[0], asked)
    if "global_batch" in training.given and training.global_batch < trial.processes:
        raise RankupError(
            "global-batch-too-small",
            f"the global batch must be at least the number of processes, {trial.processes}; "
            f"got {training.global_batch}",
            context=trial.name,
            hint="the global batch is shared out over all processes",
        )
    row = STRATEGIES.get(training.strategy)
    if row is not None and row.one_process and trial.processes > 1:
        raise RankupError(
            "one-process-strategy",
            f"--strategy {training.strategy} is one process, and the grid asks for {trial.processes}",
            context=trial.name,
            hint="--strategy auto chooses none for one process, and ddp for several",
        )
    return ("-m", "rankup.train", training.to_json()), file
