"""``rankup status``: the status of runs, from one query to each scheduler."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rankup.batch.freeze import read_frozen
from rankup.batch.queue import STATUS_PATIENCE_S, query_statuses
from rankup.batch.status import RunStatus
from rankup.batch.store import SubmittedRun, all_runs, find
from rankup.cli.options import JsonOption
from rankup.cli.output import console
from rankup.cli.output.console import shown
from rankup.cli.output.table import Cell, print_table
from rankup.cli.run_argument import RUNS_ROOT, OneOrAllArgument, RunsRootOption, as_dict
from rankup.core.goodput import goodput_of
from rankup.core.progress import newest_step, progress_numbers, progress_place
from rankup.core.units import duration
from rankup.schedulers.base import JobState

app = typer.Typer(add_completion=False, rich_markup_mode=None)
_RECENT = 10
_LONG_NAME = 30  # columns: a shorter one is not broken
_HEAD = ("job", "name", "state", "time", "nodes or reason", "run directory", "progress")
_COLOURS = {JobState.RUNNING: "green", JobState.PENDING: "yellow", JobState.FAILED: "red"}


@app.command()
def status(
    target: OneOrAllArgument = "",
    every: Annotated[bool, typer.Option("--all", help="also runs that ended long ago")] = False,
    timeout: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="wait at most so long for the scheduler")
    ] = STATUS_PATIENCE_S,
    runs_root: RunsRootOption = RUNS_ROOT,
    as_json: JsonOption = False,
) -> None:
    """Show one run in detail, or all runs that wait or run and the last ten that ended.

    If the scheduler does not answer, it shows what the run directories tell, then an error; the exit code is 1.
    """
    jobs = [find(target, runs_root)] if target else all_runs(runs_root)
    standings, silent = query_statuses(jobs, timeout)
    runs = list(zip(jobs, standings, strict=True))
    older: list[tuple[SubmittedRun, RunStatus]] = []
    if not target and not every:
        older = [run for run in runs if run[1].state.ended][:-_RECENT]
        runs = [run for run in runs if run not in older]
    if as_json:
        console.print_json([{**as_dict(*run), **(_goodput(run[0]) if target else {})} for run in runs])
    elif target:
        print("\n".join(_details(*runs[0])))
    elif runs:
        rows = [_row(*run) for run in runs]
        head: tuple[str, ...] = _HEAD
        if not any(row[-1] for row in rows):  # no run tells of its steps
            head, rows = _HEAD[:-1], [row[:-1] for row in rows]
        long = ("name",) if any(len(job.spec.name) > _LONG_NAME for job in jobs) else ()
        print_table(head, rows, fold=(*long, "nodes or reason", "run directory", "progress"))
        if older:
            print(f"… and {len(older)} older run{'s' * (len(older) > 1)}: rankup status --all")
    else:
        print(f"no runs in {runs_root}")
    for error in silent:
        if not as_json:
            console.draw_error(error)
        raise typer.Exit(error.exit_code)


def _row(job: SubmittedRun, s: RunStatus) -> tuple[Cell, ...]:
    ident = "local" if job.scheduler == "run" else s.id
    state: Cell = (s.word, _COLOURS[s.state]) if s.state in _COLOURS else s.word
    progress = "" if s.state.ended else _progress(job, s)
    return ident, job.spec.name, state, _time(s), _where_or_why(s), shown(job.run.path), progress


def _details(job: SubmittedRun, standing: RunStatus) -> list[str]:
    traces, told = standing.traces, goodput_of(job.run.path)
    facts = {
        "task": "" if job.task is None else str(job.task),
        "state": standing.word + (f": {standing.reason}" if standing.reason else ""),
        "job": "" if job.scheduler == "run" else " ".join(job.ids()),
        "queue": standing.queue,
        "nodes": standing.nodes,
        "time": _time(standing),
        "progress": _progress(job, standing),
        "attempts": str(traces.attempts or ""),
        "requeues": _requeues(job, standing),
        "goodput": told.line().removeprefix("goodput ") if told else "",
        "exit code": "" if standing.code is None else str(standing.code),
        "site": job.site,
        "code": str(read_frozen(job.run) or "") if job.spec.freeze else "",
        "run directory": shown(job.run.path),
        "explain": f"rankup explain {shown(job.run.path)}" if standing.state is JobState.FAILED else "",
    }
    lines = [job.spec.name, *(f"  {name:<15}{value}" for name, value in facts.items() if value)]
    for index, task in standing.tasks.items():
        lines.append(f"  task {index:<10}{task.word}" + (f": {task.reason}" if task.reason else ""))
    return lines


def _goodput(job: SubmittedRun) -> dict[str, Any]:
    """Of one run: it reads all of its records."""
    told = goodput_of(job.run.path)
    return {"goodput": told.as_dict() if told else None}


def _progress(job: SubmittedRun, standing: RunStatus) -> str:
    """Of a run that goes on: where it is, and the time left; of one that has ended: where it came to."""
    if job.task is not None or job.tasks() or (step := newest_step(job.run)) is None:
        return ""
    if standing.state.ended:
        step = {**step, "left": None}
    return f"{progress_place(step)}  {progress_numbers(step)}"


def _where_or_why(standing: RunStatus) -> str:
    """The nodes of a running job; of any other, the reason of its state."""
    return standing.reason if standing.suspended else standing.nodes or standing.reason


def _requeues(job: SubmittedRun, standing: RunStatus) -> str:
    """Each task of an array may be requeued so often."""
    count, most = standing.traces.requeues, job.spec.max_requeues
    each = f"{count}, of {most} for each task" if standing.tasks else f"{count} of {most}"
    return each if count else ""


def _time(standing: RunStatus) -> str:
    """Schedulers tell whole seconds, and 0 of a job that waits."""
    return duration(standing.elapsed) if standing.elapsed else ""
