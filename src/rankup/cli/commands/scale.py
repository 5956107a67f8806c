"""``rankup scale``: measure the same work in several configurations, and say what more processes bring."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from rankup.cli.job_options import some_job_options
from rankup.cli.options import JsonOption, given, taking
from rankup.cli.output import console
from rankup.cli.output.console import shown
from rankup.cli.output.progress import progress_of_ranks_hidden
from rankup.cli.output.trial_lines import TrialLines
from rankup.cli.study_jobs import is_workload, job_of
from rankup.cli.study_plan import JOB_OPTIONS, plan_from
from rankup.cli.training_options import training_fields
from rankup.core.rundir import RunDir, default_name
from rankup.errors import RankupError
from rankup.findings.engine import fails
from rankup.resolve.advice import option_after_script
from rankup.resolve.resolved import Resolved
from rankup.scale.journal import Journal, StudyPlan
from rankup.scale.plan import Trial
from rankup.scale.predicted import Predictions
from rankup.scale.report.centres import check_centre
from rankup.scale.runner import collect, run_as_jobs, run_here
from rankup.scale.summary import StudyReport, report, write

app = typer.Typer(add_completion=False, rich_markup_mode=None)
_STUDY = "Study"


class ScaleCommand(TyperCommand):
    """``--grid`` takes several words; what follows a script is the script's, what follows a workload is ours."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        args = spread_grid(args)
        ctx.allow_interspersed_args = False
        found, _, _ = self.make_parser(ctx).parse_args(list(args))
        words = found.get("command") or ()
        ctx.allow_interspersed_args = not words or is_workload(words[0])
        return super().parse_args(ctx, args)


def spread_grid(args: Sequence[str]) -> list[str]:
    """``--grid a=1 b=2`` → ``--grid a=1 --grid b=2``."""
    spread: list[str] = []
    first = more = False  # whether the word is a grid's first one, or may be a further one
    for word in args:
        if first:
            spread.append(word)
            first, more = False, True
        elif more and "=" in word and not word.startswith("-"):
            spread += ["--grid", word]
        else:
            spread.append(word)
            first, more = word == "--grid", False
    return spread


@app.command(cls=ScaleCommand)
@taking([*training_fields(), *some_job_options("submit", *JOB_OPTIONS)])
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
    target_accuracy: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="stop at this test accuracy, e.g. 0.9", rich_help_panel="Data"),
    ] = None,
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
    centre: Annotated[
        str,
        typer.Option(
            "--for",
            metavar="csc|cscs|generic",
            help="also write the scalability report that this centre asks for",
            rich_help_panel=_STUDY,
        ),
    ] = "",
    as_json: JsonOption = False,
    **_asked: Any,
) -> None:
    """Measure the same work in several configurations: times, speed-up, efficiency, and where the time goes.

    Ratios are printed only if the runs did the same work and the repeats suffice; otherwise the reason is printed,
    and the exit code is 1. The study's directory has the results, the figures and report.html.
    """
    if centre:
        check_centre(centre)
    journal = _resumed(context, resume) if resume is not None else _new(plan_from(context))
    count = len(journal.plan.points)
    console.say(f"rankup: study of {count} configuration{'s' * (count != 1)} in {shown(journal.folder)}")
    with journal.alone():
        _run(journal)
    results = collect(journal)
    unfair = allow_unfair or journal.plan.allow_unfair
    try:
        made = report(results, journal.plan.baseline, allow_unfair=unfair)
    except RankupError:  # a baseline that nothing is: what was measured is kept
        write(report(results), journal.folder)
        raise
    path = write(made, journal.folder)
    page, proposal = _page(made, journal.folder, centre)
    target = sys.stderr if as_json else sys.stdout
    if as_json:
        console.print_json(json.loads(path.read_text()))
    else:
        print("\n" + made.text)
    print(f"results    {shown(path)}", file=target)
    if page is not None:
        print(f"report     {shown(page)}", file=target)
    for one in proposal:
        print(f"proposal   {shown(one)}", file=target)
    raise typer.Exit(1 if fails(made.findings) else 0)


def _new(plan: StudyPlan) -> Journal:
    # Before anything runs: what is wrong with a job of the grid is said now.
    jobs = [job_of(plan, trial, Path.cwd()) for trial in plan.order[: len(plan.points)]]
    for found in option_after_script(jobs[0]):
        console.say(f"rankup: {found.message}: {found.fix}")
    root = Path(plan.flags.get("runs_root", "runs")).expanduser()
    return Journal.create(RunDir.create(root, f"scale-{_name(plan)}", parts=()).path, plan)


def _resumed(context: typer.Context, folder: Path) -> Journal:
    journal = Journal.open(folder)
    again = [
        name
        for name in context.params
        if name not in ("resume", "allow_unfair", "centre", "as_json") and given(context, name)
    ]
    if again:
        raise RankupError(
            "resumed-as-it-was",
            f"a study goes on with the plan that it began with, and {again[0].replace('_', '-')} is given",
            context=str(journal.folder / "study.json"),
            hint=f"rankup scale --resume {folder}; another plan is another study",
        )
    return journal


def _run(journal: Journal) -> None:
    plan, view = journal.plan, TrialLines()
    predictions = Predictions(journal, collect, console.say)

    def job(trial: Trial) -> Resolved:
        return job_of(plan, trial, journal.folder)

    if plan.site:
        run_as_jobs(journal, job, view, os.environ, predictor=predictions)
        return
    with progress_of_ranks_hidden():
        run_here(journal, job, view, predictor=predictions)


def _page(made: StudyReport, folder: Path, centre: str) -> tuple[Path | None, list[Path]]:
    """report.html, and the report for ``centre``; neither if Matplotlib is not installed."""
    if find_spec("matplotlib") is None or not made.rows:
        return None, []
    from rankup.scale.report.content import of_study
    from rankup.scale.report.judged import judged_rows
    from rankup.scale.report.proposal import write_for
    from rankup.scale.report.write import write as write_page

    content = of_study(made.study, folder, rows=judged_rows(made), findings=made.findings)
    page = write_page(content, folder / "report").page
    return page, write_for(centre, content, folder, folder / "report") if centre else []


def _name(plan: StudyPlan) -> str:
    return str(plan.flags.get("name") or default_name((plan.command[0].rpartition(":")[2],)))
