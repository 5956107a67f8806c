"""``rankup scale``: measure the same work on 1, 2, … processes."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rankup.cli.job_options import flags_from
from rankup.cli.options import JsonOption
from rankup.cli.output import console
from rankup.cli.output.rank_lines import LineView
from rankup.cli.target_parser import training_asked
from rankup.cli.training_options import training_from, training_options
from rankup.cli.workload_job import require_torch, workload_job
from rankup.core.units import duration
from rankup.scale.grid import Trial, count_of, parse_process_counts, trials
from rankup.scale.machine import Machine
from rankup.scale.measured import Measured
from rankup.scale.study import measure
from rankup.scale.summary import report, write

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
@training_options
def scale(
    context: typer.Context,
    workload: str,
    nproc_per_node: Annotated[
        str, typer.Option(metavar="N,N,…", help="numbers of processes; the smallest is the baseline")
    ] = "1,2",
    repeats: Annotated[
        int, typer.Option(metavar="R", help="measured runs of each number, after a warm-up")
    ] = 3,
    as_json: JsonOption = False,
) -> None:
    """Measure the same work on 1, 2, … processes and print a speed-up table.

    If the runs did not do the same work, it prints the reason instead of a table, and the exit code is 1.
    """
    require_torch()
    counts = parse_process_counts(nproc_per_node)
    order = trials(counts, repeats)
    flags, jobs = flags_from(context, but="nproc_per_node"), {}
    for turn in order:
        asked = {**training_from(context), "dry_run": turn.repeat == 0, "snapshot_every": "off"}
        training, file = training_asked(workload, asked)
        jobs[turn] = workload_job(training, {**flags, "nproc_per_node": turn.processes}, file)
    here = Machine.here()
    study = measure(order, jobs.__getitem__, TrialLines())
    made = report(study, here)
    path = write(made, study.folder)
    if as_json:
        console.print_json(made.results)
    else:
        print("\n" + made.text)
    print(f"results    {path}", file=sys.stderr if as_json else sys.stdout)
    raise typer.Exit(0 if made.comparable else 1)


class TrialLines(LineView):
    """A line per run and per epoch on stderr, and the ranks' errors; stdout is for the table."""

    def begins(self, number: int, total: int, turn: Trial) -> None:
        what = f"repeat {turn.repeat}" if turn.repeat else "warm-up"
        print(f"run {number} of {total}: {count_of(turn.processes)}, {what} …", file=sys.stderr, flush=True)

    def ended(self, measured: Measured) -> None:
        if measured.turn.repeat:
            trained = f"{duration(measured.seconds)} of training, test accuracy {measured.accuracy:.2%}"
            print(f"  {trained}", file=sys.stderr, flush=True)

    def line(self, rank: int | None, stream: str, text: str) -> None:
        if stream == "err":
            super().line(rank, stream, text)
        elif rank in (0, None) and text.startswith("epoch "):
            print(f"  {text}", file=sys.stderr, flush=True)
