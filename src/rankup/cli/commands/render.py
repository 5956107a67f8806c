"""``rankup render``: print the job script, and nothing else, on stdout. The script runs without rankup."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rankup.cli.job_options import SCRIPT_LAST, job_options
from rankup.cli.options import JsonOption
from rankup.cli.output import console
from rankup.cli.submitted_job import IgnoreOption, draw_notes, explain, ignored_codes, job_from
from rankup.findings.engine import fails
from rankup.resolve.advice import advise
from rankup.script.render import render

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("render", context_settings=SCRIPT_LAST)
@job_options("submit")
def render_command(
    run_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="run directory; default: the script creates one")
    ] = None,
    ignore: IgnoreOption = None,
    as_json: JsonOption = False,
    **asked: Any,
) -> None:
    """Print the job script, to read it or to submit it by hand.

    The script is plain bash and runs without rankup. Findings about the job go to stderr; with an error among them the
    exit code is 1, and the script is printed all the same. Of a job that the site cannot have, such as one without an
    account where it needs one, there is no script.
    """
    codes = ignored_codes(ignore)
    job = job_from(asked, ignore=codes)
    if asked["explain_config"]:
        print(explain(job))
        return
    findings = advise(job, ignore=codes)
    text = render(job.spec, job.site, run_dir.absolute() if run_dir else None)
    if as_json:
        found = [finding.as_dict() for finding in findings]
        console.print_json({"script": text, "findings": found, "notes": job.site.notes})
    else:
        draw_notes(job)
        console.draw_findings(findings)
        print(text, end="" if text.endswith("\n") else "\n")
    raise typer.Exit(1 if fails(findings) else 0)
