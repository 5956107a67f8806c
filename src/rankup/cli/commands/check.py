"""``rankup check``: mistakes in job scripts, training programs and tutorials, before the queue."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from rankup.check.inputs import EMPTY
from rankup.check.paths import FIX_REFUSED, Checked, check_paths, difference, repair_paths
from rankup.check.rule import Safety
from rankup.check.selection import Selection, check_codes, read_selection
from rankup.cli.options import JsonOption
from rankup.cli.output import console, diagnostics
from rankup.cli.submitted_job import found_in_program
from rankup.core.collector import uncollected
from rankup.core.files import write_atomic
from rankup.core.registry import target_of
from rankup.errors import RankupError
from rankup.findings.engine import fails
from rankup.findings.error import findings_of
from rankup.findings.finding import Finding, Severity
from rankup.findings.text import text_lines
from rankup.resolve.advice import advise
from rankup.resolve.precedence import resolve
from rankup.sites.lookup import find_site

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("check")
@uncollected(to_the_end=True)
def check(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH…", help="job scripts, programs, pages, job.toml, folders")
    ],
    select: Annotated[
        list[str] | None,
        typer.Option("--select", metavar="CODES", help="only these rules: RK101, RK3, a name"),
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option("--ignore", metavar="CODES", help="leave out these rules")
    ] = None,
    site: Annotated[
        str | None, typer.Option("--site", metavar="SITE", help="judge for this cluster (rankup sites list)")
    ] = None,
    fix: Annotated[
        bool, typer.Option("--fix", help="apply fixes that cannot change a run that works")
    ] = False,
    unsafe_fixes: Annotated[bool, typer.Option("--unsafe-fixes", help="apply all fixes")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="print the fixes as a diff and write nothing")] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="warnings fail as well, and programs that were not found")
    ] = False,
    explain_files: Annotated[
        bool, typer.Option("--explain-files", help="list what each file was taken for, and why")
    ] = False,
    form: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="text, json, github or sarif")
    ] = "text",
    as_json: JsonOption = False,
) -> None:
    """Find mistakes in job scripts (SLURM, PBS) and in the training programs that they start, of anybody.

    Exit code 1 if there is an error that is sure, with --strict also for warnings. A comment allows one place:
    # rankup: allow RK115 (why). The project's choice stands in rankup.toml or pyproject.toml.
    """
    write = target_of("format", "json" if as_json else form, diagnostics.FORMATS)
    if write != "text":
        console.answer_in_json()
    kept = read_selection(paths[0] if paths[0].exists() else Path.cwd())
    selection = Selection(
        select=check_codes(select or (), where="--select") or kept.select,
        ignore=(*kept.ignore, *check_codes(ignore or (), where="--ignore")),
        exclude=kept.exclude,
        site=site or kept.site,
        strict=strict or kept.strict,
    )
    profile = find_site(selection.site, os.environ, Path.cwd()) if selection.site else None
    safeties = frozenset(Safety) if unsafe_fixes else frozenset({Safety.SAFE})
    if fix or unsafe_fixes or diff:
        checked, changes = repair_paths(paths, selection, profile, safeties)
        if diff:
            for before, after in changes.values():
                print(difference(before, after), end="")
            if refused := [one for one in checked.other if one.code == FIX_REFUSED]:
                console.say("\n".join(text_lines(refused)))
            elif not changes:
                console.say(_no_fix(checked, safeties))
            raise typer.Exit(1 if changes else 0)
        for path, (_, after) in changes.items():
            _write(Path(path), after.text)
        fixed = len(changes)
    else:
        checked, fixed = check_paths(paths, selection, profile), 0
    if explain_files:
        kinds = checked.inputs.kinds
        if write == "json":
            console.print_json({name: {"kind": kind, "why": why} for name, (kind, why) in kinds.items()})
        else:
            print("\n".join(f"{name}: {kind} ({why})" for name, (kind, why) in kinds.items()))
        raise typer.Exit(0)
    checked.other += [*_jobs(checked, selection.site), *_unknown(checked)]
    failed = _failed(checked, selection.strict)
    diagnostics.write(write, checked, fixed_files=fixed, failed=failed)
    raise typer.Exit(1 if failed else 0)


def _no_fix(checked: Checked, safeties: frozenset[Safety]) -> str:
    """Why a diff is empty."""
    found = len(checked.findings)
    if not found:
        return "nothing found"
    left = sum(checked.can_fix(one) and one.rule.safety not in safeties for one in checked.diagnostics)
    which, needs = ("safe ", f"; {left} can be fixed with --unsafe-fixes") if left else ("", "")
    return f"{found} finding{'s' * (found != 1)}, none has a {which}fix{needs}"


def _failed(checked: Checked, strict: bool) -> bool:
    found = checked.findings
    warned = bool(checked.not_followed) or any(f.severity is not Severity.NOTE for f in found)
    return fails(found) or (strict and warned)


def _write(path: Path, text: str) -> None:
    write_atomic(path.resolve(), text, mode=path.stat().st_mode & 0o777)


def _jobs(checked: Checked, site: str) -> list[Finding]:
    """What `rankup submit` would say of each job.toml."""
    found = []
    for path in checked.inputs.job_files:
        try:
            resolved = resolve(
                {}, command=(), file=path, site=site or None, env=os.environ, folder=path.absolute().parent
            )
            said = [*advise(resolved), *found_in_program(resolved)]
        except RankupError as error:
            said = findings_of(error)
        found += [replace(one, place=f"{path}: {one.place}".removesuffix(": ")) for one in said]
    return found


_OTHER = "this file is not a job script, a Python program or a page"
_READS = "rankup check reads job scripts, Python, Markdown, reStructuredText, HTML, notebooks and job.toml"


def _unknown(checked: Checked) -> list[Finding]:
    """An empty module is a part of many packages; any other empty file is a mistake."""
    found = []
    for path in checked.inputs.skipped:
        severity, message, fix = Severity.WARNING, _OTHER, _READS
        if checked.inputs.kinds[str(path)][1] == EMPTY:
            severity = Severity.WARNING if path.suffix == ".py" else Severity.ERROR
            message, fix = "this file is empty", "write it again, or name the file that you mean"
        found.append(Finding("nothing-to-check", severity, message, str(path), fix=fix))
    return found
