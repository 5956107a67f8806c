"""``rankup train``: train a built-in workload or your own, on this machine or allocation."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from rankup.cli.job_options import RESUME_WITH, flags_from, some_job_options
from rankup.cli.options import JsonOption, taking
from rankup.cli.output import console
from rankup.cli.resume_options import end_lines
from rankup.cli.target_parser import training_asked
from rankup.cli.training_options import training_from, training_options
from rankup.cli.workload_job import require_torch, workload_job
from rankup.core.records import read_records
from rankup.core.rundir import RUN_DIR_VARIABLE
from rankup.run.execute import View, execute
from rankup.runtime.loggers.base import logger_names
from rankup.world import World

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
@taking([*some_job_options("run", "nproc_per_node", "lost"), RESUME_WITH])
@training_options
def train(
    context: typer.Context,
    workload: str,
    target_accuracy: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE", help="stop at this test accuracy, e.g. 0.9", rich_help_panel="Training"
        ),
    ] = None,
    patience: Annotated[
        int,
        typer.Option(
            metavar="EPOCHS",
            help="stop only after so many epochs in a row at the target",
            rich_help_panel="Training",
        ),
    ] = 1,
    snapshot_every: Annotated[
        str, typer.Option(metavar="INTERVAL", help="save a snapshot every 10m, 500 steps, 2 epochs, or off")
    ] = "10m",
    log_interval: Annotated[
        int, typer.Option(metavar="N", help="print a line every N steps; 0: every few seconds")
    ] = 0,
    log: Annotated[
        str,
        typer.Option(
            metavar="csv|tensorboard|wandb|mlflow", help="also log there; several with commas between them"
        ),
    ] = "",
    save_model: Annotated[
        Path | None, typer.Option(metavar="FILE", help="write the state_dict to this file at the end")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="train and test one batch only")] = False,
    as_json: JsonOption = False,
    **asked: Any,
) -> None:
    """Train a workload, evaluate it after each epoch, and print a summary at the end.

    A workload may have its own default for an option; the summary marks these.
    """
    require_torch()
    logger_names(log)
    bar = sys.stdout.isatty() and not as_json
    options, file = training_asked(workload, training_from(context))
    # A launcher has started us once per rank already, or a job's script has: then its run directory is ours.
    if World.detect().world_size > 1 or os.environ.get(RUN_DIR_VARIABLE):
        from rankup.train.__main__ import work

        work(options)
        return
    job = workload_job(options, flags_from(asked), file)
    from rankup.cli.output.progress import BarView, PlainView

    with ExitStack() as stack:
        view: View = (
            stack.enter_context(BarView(job.spec.world_size, plain=True))
            if bar
            else PlainView(to_stderr=as_json)
        )
        result = execute(job, view, debug=console.debugging())
    if error := result.run.left_error():
        raise error
    if as_json and result.code == 0:
        (summary,) = read_records(result.run.records / "epochs.jsonl", "summary")
        console.print_json({"run": str(result.run.path), **summary})
    if result.error is not None:
        console.draw_error(result.error)
    elif result.code == 0:
        print(f"records    {result.run.records}", file=sys.stderr if as_json else sys.stdout)
    for line in end_lines(result) if result.code != 0 else ():
        console.say(line)
    raise typer.Exit(result.code)
