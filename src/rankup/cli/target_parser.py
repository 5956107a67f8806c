"""Reads a script or a workload with its own options inside another command: ``rankup verify mnist-cnn --lr 1``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import typer

from rankup.cli.training_options import given, training_from
from rankup.cli.workload_job import workload_job
from rankup.core.rundir import default_name
from rankup.errors import RankupError
from rankup.run.execute import LocalJob
from rankup.run.resolve import rank_command
from rankup.workloads import WORKLOADS

# Options of `rankup train` that the other command sets itself.
_NOT_HERE = ("nproc_per_node", "threads", "name", "runs_root", "as_json", "save_model", "log")


def script_or_workload_job(command: Sequence[str], threads: int | None, runs_root: Path) -> LocalJob:
    """``("train.py", "--lr", "1")`` as ``rankup run`` would start it, ``("mnist-cnn", "--lr", "1")`` as ``rankup
    train``. A workload is a built-in name or ``module:Class``."""
    first, *words = command
    if first in WORKLOADS or (":" in first and not Path(first).exists()):
        options = options_from_words(first, words)
        return workload_job(first, "auto", options=options, threads=threads, runs_root=runs_root)[0]
    whole = tuple(command)
    rank_command(whole, sys.executable)  # raises for a mistake before a directory is created
    return LocalJob(whole, name=default_name(whole), threads=threads, runs_root=runs_root)


def options_from_words(workload: str, words: Sequence[str]) -> dict[str, Any]:
    """Fields of ``TrainOptions`` that ``words`` set, as ``rankup train WORKLOAD WORDS`` reads them."""
    from rankup.cli.commands.train import app

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
