"""``rankup scale``: measure the same work in several configurations, and say what more processes bring."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from rankup.cli.job_options import flags_from
from rankup.cli.options import JsonOption
from rankup.cli.output import console
from rankup.cli.output.console import shown
from rankup.cli.output.progress import hide_progress_of_ranks
from rankup.cli.output.rank_lines import LineView
from rankup.cli.shared_options import taking
from rankup.cli.study_jobs import check_keys, fair_threads, is_workload, job_of
from rankup.cli.training_options import training_fields, training_from
from rankup.cli.workload_job import require_torch
from rankup.core.rundir import RunDir
from rankup.core.toml_file import read_toml
from rankup.core.units import duration
from rankup.errors import RankupError
from rankup.findings.engine import fails
from rankup.scale.journal import Journal, StudyPlan
from rankup.scale.machine import Machine
from rankup.scale.plan import Trial, parse_grid, placeholders_in
from rankup.scale.read_run import parse_metric
from rankup.scale.results import Measured
from rankup.scale.runner import collect, run_as_jobs, run_here
from rankup.scale.summary import StudyReport, report, write

app = typer.Typer(add_completion=False, rich_markup_mode=None)
_STUDY = "Study"


class ScaleCommand(TyperCommand):
    """``--grid`` takes several words; what follows a script is the script's, what follows a workload is ours."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        args = spread_grid(args)
        ctx.allow_interspersed_args = False
        _, rest, _ = self.make_parser(ctx).parse_args(list(args))
        ctx.allow_interspersed_args = not rest or is_workload(rest[0])
        return super().parse_args(ctx, args)


def spread_grid(args: Sequence[str]) -> list[str]:
    """``--grid a=1 b=2`` → ``--grid a=1 --grid b=2``."""
    spread: list[str] = []
    taking_grid = False
    for word in args:
        is_pair = "=" in word and not word.startswith("-")
        if taking_grid and is_pair:
            spread += ["--grid", word]
            continue
        if taking_grid and spread[-1] == "--grid":
            spread.append(word)
            taking_grid = False
            continue
        taking_grid = word == "--grid"
        if not taking_grid:
            spread.append(word)
    return spread


@app.command(cls=ScaleCommand)
@taking(training_fields())
def scale(
    context: typer.Context,
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WORKLOAD|SCRIPT [ARGS…]",
            help="a workload as for `rankup train`, a script as for `rankup run`, or a study.toml",
        ),
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=V,V…",
            help="configurations: nodes, nproc, gpus, cpus-per-task, launcher, strategy, precision, device, "
            "global-batch; a script's own keys stand as {key} in its arguments",
            rich_help_panel=_STUDY,
        ),
    ] = None,
    nproc_per_node: Annotated[
        str, typer.Option(metavar="N,N,…", help="short for --grid nproc=N,N,…", rich_help_panel=_STUDY)
    ] = "",
    repeats: Annotated[
        int, typer.Option(metavar="R", help="measured runs of each, after a warm-up", rich_help_panel=_STUDY)
    ] = 3,
    baseline: Annotated[
        str, typer.Option(metavar="KEY=V,…", help="compare with this configuration", rich_help_panel=_STUDY)
    ] = "",
    weak: Annotated[
        bool,
        typer.Option("--weak/--strong", help="--weak: --global-batch is per process", rich_help_panel=_STUDY),
    ] = False,
    metric: Annotated[
        str,
        typer.Option(
            metavar="PATTERN",
            help="take seconds from the output, e.g. 'time = ([0-9.]+)'",
            rich_help_panel=_STUDY,
        ),
    ] = "",
    site: Annotated[
        str, typer.Option(metavar="NAME", help="submit the runs as jobs of this site", rich_help_panel=_STUDY)
    ] = "",
    at_once: Annotated[
        int,
        typer.Option(metavar="K", min=1, help="with --site: at most K jobs at once", rich_help_panel=_STUDY),
    ] = 4,
    resume: Annotated[
        Path | None, typer.Option(metavar="DIR", help="go on with the study in DIR", rich_help_panel=_STUDY)
    ] = None,
    allow_unfair: Annotated[
        bool,
        typer.Option("--allow-unfair", help="print refused ratios too, marked", rich_help_panel=_STUDY),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Measure the same work in several configurations: times, speed-up, efficiency, and where the time goes.

    Ratios are printed only if the runs did the same work and the repeats suffice; otherwise the reason is printed,
    and the exit code is 1. The study's directory has the results, the figures and report.html.
    """
    if resume is not None:
        journal = Journal.open(resume)
    else:
        plan = _plan(
            context, command or [], grid or [], nproc_per_node, repeats, baseline, weak, metric, site, at_once
        )
        # Before anything runs: what is wrong with a job of the grid is said now.
        for trial in plan.order[: len(plan.points)]:
            job_of(plan, trial, Path.cwd())
        root = Path(plan.flags.get("runs_root", "runs")).expanduser()
        folder = RunDir.create(root, f"scale-{_name(plan)}").path
        journal = Journal.create(folder, plan)
    hide_progress_of_ranks()
    console.say(f"rankup: study of {len(journal.plan.points)} configurations in {shown(journal.folder)}")
    _run(journal)
    results = collect(journal)
    made = report(results, journal.plan.baseline, allow_unfair=allow_unfair)
    path = write(made, journal.folder)
    page = _page(made, journal.folder)
    target = sys.stderr if as_json else sys.stdout
    if as_json:
        console.print_json(json.loads(path.read_text()))
    else:
        print("\n" + made.text)
    print(f"results    {shown(path)}", file=target)
    if page is not None:
        print(f"report     {shown(page)}", file=target)
    raise typer.Exit(1 if fails(made.findings) else 0)


def _run(journal: Journal) -> None:
    plan, view = journal.plan, TrialLines()
    if plan.site:
        run_as_jobs(journal, lambda trial: job_of(plan, trial, journal.folder), view, os.environ)
    else:
        run_here(journal, lambda trial: job_of(plan, trial, journal.folder), view)


def _page(made: StudyReport, folder: Path) -> Path | None:
    """report.html and the figures; None if Matplotlib is not installed."""
    if find_spec("matplotlib") is None or not made.rows:
        return None
    from rankup.scale.report.content import of_study
    from rankup.scale.report.judged import judged_rows
    from rankup.scale.report.write import write as write_page

    content = of_study(made.study, folder, rows=judged_rows(made), findings=made.findings)
    return write_page(content, folder / "report").page


def _plan(
    context: typer.Context,
    command: Sequence[str],
    grid: Sequence[str],
    nproc: str,
    repeats: int,
    baseline: str,
    weak: bool,
    metric: str,
    site: str,
    at_once: int,
) -> StudyPlan:
    flags, training = flags_from(context, but="nproc_per_node"), training_from(context)
    given: Mapping[str, Any] = {}
    tables = read_toml(Path(command[0]), "study") if command and command[0].endswith(".toml") else {}
    if "study" in tables:
        given = tables["study"]
        command = [str(word) for word in given.get("command", ())]
        grid = [f"{key}={','.join(map(str, values))}" for key, values in given.get("grid", {}).items()]
        training = {**given.get("training", {}), **training}
        flags = {**given.get("job", {}), **flags}
        repeats, baseline = given.get("repeats", repeats), given.get("baseline", baseline)
        weak, metric = (
            given.get("scaling", "weak" if weak else "strong") == "weak",
            given.get("metric", metric),
        )
        site, at_once = given.get("site", site), given.get("at_once", at_once)
    if not command:
        raise RankupError(
            "nothing-to-measure",
            "no workload or script is given",
            hint="rankup scale mnist-cnn --grid nproc=1,2",
        )
    words = [*grid, *([f"nproc={nproc}"] if nproc else [])] or ["nproc=1,2"]
    parsed = parse_grid(words, placeholders=placeholders_in(command))
    if is_workload(command[0]):
        require_torch()
        if len(command) > 1:
            raise RankupError(
                "unexpected-argument",
                f"unexpected argument {command[1]!r}",
                hint=f"rankup scale {command[0]} --help",
            )
    elif training:
        option = "--" + next(iter(training)).replace("_", "-")
        raise RankupError(
            "not-a-workload",
            f"{option} is an option of workloads, and {command[0]} is a script",
            hint=f"options of the script come after it: rankup scale … {command[0]} {option} …",
        )
    if repeats < 1:
        raise RankupError("bad-repeats", f"--repeats must be at least 1, got {repeats}", hint="--repeats 3")
    if metric:
        parse_metric(metric)
    scaling = "weak" if weak else "strong"
    check_keys(command, parsed, scaling)
    machine = Machine.here()
    return StudyPlan(
        command=list(command),
        grid=parsed,
        repeats=repeats,
        scaling=scaling,
        baseline=baseline,
        metric=metric,
        site=site,
        at_once=at_once,
        flags={**flags, **fair_threads(parsed, flags)} if not site else flags,
        training=training,
        machine=asdict(machine),
        load=machine.load,
    )


def _name(plan: StudyPlan) -> str:
    return Path(plan.command[0].rpartition(":")[2]).stem


class TrialLines(LineView):
    """A line per run on stderr, and the ranks' errors; stdout is for the table."""

    def begins(self, number: int, total: int, trial: Trial) -> None:
        what = f"repeat {trial.repeat}" if trial.repeat else "warm-up"
        _say(f"run {number} of {total}: {trial.name}, {what} …")

    def submitted(self, trial: Trial, job: str) -> None:
        _say(f"  job {job}")

    def ended(self, trial: Trial, measured: Measured | None, failure: Mapping[str, Any] | None) -> None:
        if failure is not None:
            _say(f"  {failure['message']}")
        elif measured is not None:
            accuracy = "" if measured.accuracy is None else f", accuracy {measured.accuracy:.2%}"
            _say(f"  {trial.name}: {duration(measured.seconds)}{accuracy}")

    def line(self, rank: int | None, stream: str, text: str) -> None:
        if stream == "err":
            super().line(rank, stream, text)
        elif rank in (0, None) and text.startswith("epoch "):
            _say(f"  {text}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
