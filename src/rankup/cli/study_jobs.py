"""From a trial of a study to the job that runs it: a workload with its options, or a script with its arguments."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rankup.cli.target_parser import training_asked
from rankup.errors import RankupError
from rankup.resolve.here import resolve_here
from rankup.resolve.resolve import resolve
from rankup.resolve.resolved import Resolved
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
    if is_workload(plan.command[0]):
        command, file = _training_command(plan, trial)
    else:
        command, file = fill_in(plan.command, trial), None
    if plan.site:
        return resolve(
            flags, command=command, file=None, site=plan.site, env=os.environ, folder=Path.cwd(), ignore=()
        )
    return resolve_here(flags, command=command, file=file)


def check_keys(command: Sequence[str], grid: Mapping[str, Any], scaling: str) -> None:
    """Raises RankupError for a key that nothing takes: a script takes training options by {key} alone."""
    if is_workload(command[0]):
        return
    named = placeholders_in(command)
    for key in grid:
        if key in TRAINING_KEYS and key not in named:
            raise RankupError(
                "key-not-taken",
                f"{command[0]} does not say how it takes {key}",
                context=" ".join(command),
                hint=f"name it in the script's arguments: {command[0]} --{key} {{{key}}}",
            )
    if scaling == "weak" and not {"processes", "global-batch"} & set(named):
        raise RankupError(
            "no-weak-scaling",
            f"--weak requires that {command[0]} trains on more samples with more processes",
            context=" ".join(command),
            hint=f"e.g. {command[0]} --batch-per-process 64 --processes {{processes}}",
        )


def fair_threads(grid: Mapping[str, Sequence[Any]], flags: Mapping[str, Any]) -> dict[str, int]:
    """``{"cpus_per_task": …}``: as many threads for each process of every configuration, on CPUs; {} if it is said."""
    if (
        {"cpus-per-task", "gpus"} & set(grid)
        or {"threads", "cpus_per_task"} & set(flags)
        or count_gpus(os.environ)
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
    row = STRATEGIES.get(training.strategy)
    if row is not None and row.one_process and trial.processes > 1:
        raise RankupError(
            "one-process-strategy",
            f"--strategy {training.strategy} is one process, and the grid asks for {trial.processes}",
            context=trial.name,
            hint="--strategy auto is none for one process and ddp for several",
        )
    return ("-m", "rankup.train", training.to_json()), file
