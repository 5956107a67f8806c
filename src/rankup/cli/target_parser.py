"""Reads a script or a workload with its own options inside another command: ``rankup verify mnist-cnn --lr 1``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import typer

from rankup.cli.options import given
from rankup.cli.training_options import training_from
from rankup.cli.workload_job import training_of, workload_job
from rankup.core.registry import load
from rankup.errors import RankupError
from rankup.resolve.here import resolve_here
from rankup.resolve.job_toml import read_job_file
from rankup.resolve.resolved import Resolved
from rankup.train.options import TrainOptions
from rankup.workloads import WORKLOADS

# Options of `rankup train` that the other command sets itself.
_NOT_HERE = ("nproc_per_node", "threads", "name", "runs_root", "as_json", "save_model", "log")


def script_or_workload_job(command: Sequence[str], flags: Mapping[str, Any]) -> Resolved:
    """``("train.py", "--lr", "1")`` as ``rankup run`` would start it, ``("mnist-cnn", "--lr", "1")`` as ``rankup
    train``, ``("job.toml",)`` as that job says. A workload is a built-in name or ``module:Class``."""
    first, *words = command
    if first in WORKLOADS or (":" in first and not Path(first).exists()):
        return workload_job(training_of(first, options_from_words(first, words)), flags)
    return resolve_here(flags, command=tuple(command))


def training_asked(workload: str, options: Mapping[str, Any]) -> tuple[TrainOptions, Path | None]:
    """How ``workload`` is trained, and the file if it is the job.toml of a training: ``options`` win over that."""
    if not workload.endswith(".toml"):
        return training_of(workload, options), None
    file = Path(workload)
    command = [str(word) for word in read_job_file(file)["job"].get("command", ())]
    if command[:2] == ["-m", "rankup.train"] and len(command) == 3:
        before = TrainOptions.from_json(command[2])
        asked = {name: getattr(before, name) for name in before.given}
        return TrainOptions.asked(before.workload, before.name, {**asked, **options}), file
    if command[:3] == ["-m", "rankup", "train"] and len(command) > 3:
        return training_of(command[3], {**options_from_words(command[3], command[4:]), **options}), file
    raise RankupError(
        "no-training",
        f"the job of {workload} is not a training of `rankup train`",
        context=" ".join(command),
        hint=f"rankup run {workload}",
    )


def options_from_words(workload: str, words: Sequence[str]) -> dict[str, Any]:
    """Fields of ``TrainOptions`` that ``words`` set, as ``rankup train WORKLOAD WORDS`` reads them."""
    # By its name: it imports this module.
    app = cast(typer.Typer, load("rankup.cli.commands.train:app"))
    # An unknown word is reported as a usage error of `rankup train`.
    context = cast(
        typer.Context, typer.main.get_command(app).make_context("rankup train", [workload, *words])
    )
    for name in _NOT_HERE:
        if given(context, name):
            raise RankupError(
                "misplaced-option",
                f"--{name.removeprefix('as_').replace('_', '-')} is not an option of the workload here",
                context=f"after {workload}",
                hint="options of the command itself go before the workload",
            )
    return training_from(context)
