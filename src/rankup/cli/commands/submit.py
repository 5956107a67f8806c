"""``rankup submit``: submit a job to the scheduler of the site, or open a shell on the same resources."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from rankup.batch.queue import unknown_jobs
from rankup.batch.store import SubmittedRun
from rankup.batch.submit import over_queue_limits, plan, submit
from rankup.cli.job_options import SCRIPT_LAST, job_options
from rankup.cli.options import JsonOption
from rankup.cli.output import console
from rankup.cli.output.console import shown
from rankup.cli.submitted_job import (
    IgnoreOption,
    become_a_shell,
    draw_notes,
    explain,
    found_in_program,
    ignored_codes,
    interactive_command,
    job_from,
)
from rankup.core import shell
from rankup.findings.engine import fails
from rankup.findings.error import FindingsError
from rankup.findings.finding import in_order
from rankup.resolve.advice import advise
from rankup.resolve.resolved import Resolved

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("submit", context_settings=SCRIPT_LAST)
@job_options("submit")
def submit_command(
    follow: Annotated[bool, typer.Option("--follow", help="print the log until the job has ended")] = False,
    interactive: Annotated[
        bool, typer.Option("--interactive", help="open a shell on the same resources")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="print the script and the submit command, submit nothing")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="submit in spite of errors in the job")] = False,
    ignore: IgnoreOption = None,
    as_json: JsonOption = False,
    **asked: Any,
) -> None:
    """Submit a job to SLURM or PBS. Arguments after the script belong to the script.

    Errors in the job are reported before it is submitted; the exit code is then 1.
    """
    codes = ignored_codes(ignore)
    job = job_from(asked, interactive=interactive, ignore=codes)
    if asked["explain_config"]:
        print(explain(job))
        return
    asked_queue = [*over_queue_limits(job, env=os.environ, ignore=codes), *unknown_jobs(job, ignore=codes)]
    findings = in_order([*advise(job, ignore=codes), *asked_queue, *found_in_program(job, codes)])
    errors = dict.fromkeys(finding.code for finding in findings if fails([finding]))
    if errors and not force:
        ignored = " ".join(f"--ignore {code}" for code in errors)
        conclusion = f"not submitted; {ignored} leaves this out, --force submits in spite of all errors"
        raise FindingsError(findings, exit_code=1, conclusion=conclusion)
    answer: dict[str, Any] = {
        "findings": [finding.as_dict() for finding in findings],
        "notes": job.site.notes,
    }
    if not as_json:
        draw_notes(job)
        console.draw_findings(findings)
    if interactive and not dry_run:
        become_a_shell(job)
    if interactive:
        command = shell.quote(interactive_command(job))
        console.print_json({**answer, "commands": [command]}) if as_json else print(command)
        return
    if dry_run:
        _show_plan(job, answer, as_json)
        return
    run = submit(job, env=os.environ)
    answer |= {"run": str(run.run.path), "jobs": run.ids(), "job": run.ids()[0], "site": run.site}
    if not as_json:
        _show_submitted(run)
    code = 0
    if follow:
        from rankup.batch.follow import JobLog
        from rankup.cli.run_argument import follow_to_end

        code, standing = follow_to_end(run, JobLog(run), to_stderr=as_json)
        answer |= {**(standing.as_dict() if standing else {}), "code": code}
    if as_json:
        console.print_json(answer)
    raise typer.Exit(code)


def _show_plan(job: Resolved, answer: dict[str, Any], as_json: bool) -> None:
    text, tokens = plan(job)
    commands = [shell.quote(command) for command in tokens]
    if as_json:
        console.print_json({**answer, "script": text, "commands": commands})
        return
    print(text)
    print("# submit command:", *commands, sep="\n#   ")


def _show_submitted(run: SubmittedRun) -> None:
    first, *later = run.ids()
    path = shown(run.run.path)
    print(f"job {first} submitted ({run.site})")
    if later:
        print(f"  successors     {' '.join(later)}: each continues after the time limit of the one before")
    print(f"  run directory  {path}")
    print(f"  follow         rankup logs -f {path}")
    print(f"  cancel         rankup cancel {path}")
