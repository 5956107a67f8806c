"""``rankup report``: figures, tables and one page, from a study or from any runs."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rankup.batch.store import find
from rankup.cli.options import JsonOption
from rankup.cli.output import console
from rankup.cli.output.console import shown
from rankup.cli.output.month import hours_of_month
from rankup.cli.run_argument import RUNS_ROOT, RunsRootOption
from rankup.errors import RankupError
from rankup.findings.finding import Finding
from rankup.scale.journal import Journal, StudyPlan
from rankup.scale.report.centres import check_centre
from rankup.scale.results import StudyResults, read_results
from rankup.scale.runner import collect, unfinished

if TYPE_CHECKING:  # it imports NumPy
    from rankup.scale.report.content import Content

app = typer.Typer(add_completion=False, rich_markup_mode=None)
_RESULTS, _PLAN = "results.json", "study.json"


@app.command()
def report(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN…|STUDY",
            help="runs (directory, id or name), or one study (directory or results.json)",
        ),
    ],
    month: Annotated[
        str,
        typer.Option(
            metavar="YYYY-MM",
            help="no page: the device-hours of all runs below these directories that began in this month",
        ),
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="write here; default: report in the directory of the run or study"),
    ] = None,
    title: Annotated[str, typer.Option(metavar="TEXT", help="heading of the page")] = "",
    centre: Annotated[
        str,
        typer.Option(
            "--for",
            metavar="csc|cscs|generic",
            help="of a study: also the scalability report for this centre",
        ),
    ] = "",
    runs_root: RunsRootOption = RUNS_ROOT,
    as_json: JsonOption = False,
) -> None:
    """Make a report of a study or of any runs: one page, figures (SVG, PDF, PNG), tables (CSV, Markdown, LaTeX).

    The page is one file that needs no network. Several runs without --out are reported in ./report.
    """
    if month:
        hours_of_month([Path(target) for target in targets], month, as_json=as_json)
        return
    if find_spec("matplotlib") is None:
        raise RankupError("no-matplotlib", "matplotlib is not installed", hint="pip install 'rankup[report]'")
    from rankup.scale.report.proposal import write_for
    from rankup.scale.report.write import write

    if centre:
        check_centre(centre)
    content, place = _content(targets, title, runs_root)
    if centre and not content.rows:
        raise RankupError(
            "no-study", "a report for a centre is of a study", context=" ".join(targets), hint="rankup scale"
        )
    written = write(content, out or place)
    proposal = write_for(centre, content, place.parent, out or place) if centre else []
    if as_json:
        console.print_json(
            {
                "report": str(written.page),
                "summary": written.summary,
                "figures": written.figures,
                "tables": written.tables,
                "proposal": [str(path) for path in proposal],
                "findings": [finding.as_dict() for finding in content.findings],
            }
        )
        return
    print("\n".join(written.summary))
    if content.findings:
        console.draw_findings(content.findings)
    print(f"\nreport     {shown(written.page.absolute())}")
    for path in proposal:
        print(f"proposal   {shown(path.absolute())}")


def _content(targets: list[str], title: str, runs_root: Path) -> tuple[Content, Path]:
    """What the report is about, and where it goes unless somebody says otherwise."""
    from rankup.scale.report.content import of_runs, of_study
    from rankup.scale.report.judged import judged_rows
    from rankup.scale.summary import report as judge

    studies = [target for target in targets if _is_study(Path(target))]
    if studies and len(targets) > 1:
        raise RankupError(
            "several-studies",
            "a report is of one study, or of runs",
            context=" ".join(targets),
            hint="make a report of each study; or name the runs below it to see them in one",
        )
    if studies:
        path = Path(studies[0])
        folder = path.parent if path.is_file() else path
        results, plan, missing = _measured(path)
        made = judge(results, plan.baseline if plan else "", allow_unfair=bool(plan and plan.allow_unfair))
        findings = [*missing, *made.findings]
        content = of_study(made.study, folder, rows=judged_rows(made), findings=findings, title=title)
        return content, folder / "report"
    paths = [_run(target, runs_root) for target in targets]
    return of_runs(paths, title=title), paths[0] / "report" if len(paths) == 1 else Path("report")


def _is_study(path: Path) -> bool:
    return path.is_file() or any((path / name).exists() for name in (_RESULTS, _PLAN))


def _measured(path: Path) -> tuple[StudyResults, StudyPlan | None, list[Finding]]:
    """The results of the study at ``path``; of one that was interrupted, or goes on, what it has measured so far."""
    if path.is_file() or not (path / _PLAN).exists():
        return read_results(path if path.is_file() else path / _RESULTS), None, []
    journal = Journal.open(path)
    missing = unfinished(journal)
    if missing is None and (path / _RESULTS).exists():
        return read_results(path / _RESULTS), journal.plan, []
    return collect(journal), journal.plan, [missing] if missing else []


def _run(target: str, runs_root: Path) -> Path:
    """The directory of a run; any directory with records counts."""
    path = Path(target)
    return path if (path / "records").is_dir() else find(target, runs_root).run.path
