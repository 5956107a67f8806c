"""The words of ``rankup train`` where another command takes them over: ``rankup verify mnist-cnn --epochs 1``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, cast

import typer

from rankup.cli.workload_job import asked_for, settings_from
from rankup.errors import RankupError
from rankup.train.options import TrainOptions

# Options of the command that runs the training, not of the training.
_NOT_HERE = ("nproc_per_node", "threads", "name", "runs_root", "as_json", "save_model", "log")


def training_options(workload: str, words: Sequence[str]) -> dict[str, Any]:
    """Fields of ``TrainOptions`` that ``words`` ask for, as ``rankup train WORKLOAD WORDS`` reads them."""
    from rankup.cli.commands.train import app

    # A word that it does not know is a usage error of `rankup train`, and is drawn as such.
    context = cast(
        typer.Context, typer.main.get_command(app).make_context("rankup train", [workload, *words])
    )
    for name in asked_for(context, dict.fromkeys(_NOT_HERE)):
        raise RankupError(
            "misplaced-option",
            f"--{name.removeprefix('as_').replace('_', '-')} is not for the training that is examined here",
            context=f"after {workload}",
            hint="options of this command stand before the workload",
        )
    known = {field.name for field in fields(TrainOptions)}
    asked = {name: value for name, value in context.params.items() if name in known and name != "workload"}
    asked["settings"] = settings_from(asked["settings"])
    return asked_for(context, {name: value for name, value in asked.items() if name not in _NOT_HERE})
