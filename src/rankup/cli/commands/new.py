"""``rankup new``: write a job.toml, from the options of a job or from a few questions."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from rankup.cli.job_options import SCRIPT_LAST, job_options
from rankup.cli.options import JsonOption
from rankup.cli.output import console
from rankup.cli.submitted_job import IgnoreOption, draw_notes, explain, ignored_codes, job_from
from rankup.errors import RankupError
from rankup.findings.engine import fails
from rankup.resolve.advice import advise
from rankup.resolve.job_toml import asked_toml
from rankup.sites.lookup import choose_site
from rankup.sites.site import Site

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("new", context_settings=SCRIPT_LAST)
@job_options("submit")
def new(
    out: Annotated[Path, typer.Option(metavar="FILE", help="the file to write; it must not exist")] = Path(
        "job.toml"
    ),
    ignore: IgnoreOption = None,
    as_json: JsonOption = False,
    **asked: Any,
) -> None:
    """Write a job.toml: the site, the script, and the resources that you ask for.

    The job is checked as `rankup render` checks it. On a terminal, what a job needs and no option gave is asked for.
    """
    codes = ignored_codes(ignore)
    if out.exists():
        raise RankupError(
            "job-file-exists",
            f"the file {out} exists, and is not overwritten",
            hint=f"rankup render {out} shows its job; --out other.toml writes another file",
        )
    if not as_json and sys.stdin.isatty() and sys.stderr.isatty():
        asked |= _answers(asked)
    elif not asked["command"] and asked["job"] is None:
        raise RankupError(
            "no-script", "there is nothing to run", hint="rankup new train.py; on a terminal, rankup new asks"
        )
    job = job_from(asked, ignore=codes)
    if asked["explain_config"]:
        print(explain(job))
        return
    text = asked_toml(job)
    with out.open("x", encoding="utf-8") as file:
        file.write(text)
    findings = advise(job, ignore=codes)
    if as_json:
        found = [finding.as_dict() for finding in findings]
        console.print_json({"file": str(out), "text": text, "findings": found, "notes": job.site.notes})
    else:
        draw_notes(job)
        console.draw_findings(findings)
        print(f"{console.shown(out.absolute())} is written\n\n{text}")
        print(f"rankup render {out}    look at its script")
        print(f"rankup submit {out}    submit it")
    raise typer.Exit(1 if fails(findings) else 0)


def _answers(asked: dict[str, Any]) -> dict[str, Any]:
    """The values of options that were not given. Enter takes what is in brackets, or leaves a value out."""
    if asked["job"] is not None or (asked["command"] or [""])[0].endswith(".toml"):
        return {}
    answers: dict[str, Any] = {}
    if not asked["command"]:
        answers["command"] = shlex.split(_ask("script and its arguments"))
    name = asked["site"]
    if not name:
        here, _ = choose_site(None, os.environ, Path.cwd())
        name = answers["site"] = _ask("site (rankup sites list)", here.name)
    site, _ = choose_site(name, os.environ, Path.cwd())
    for key, question, default in _questions(site):
        if asked[key] in (None, [], ()) and (answer := _ask(question, default)):
            answers[key] = answer
    return answers


def _questions(site: Site) -> Iterator[tuple[str, str, str]]:
    """(key, question, default) of what a job at ``site`` needs."""
    yield "nodes", "nodes", "1"
    yield "gpus_per_node", "GPUs per node", str(site.node.gpus or 0)
    yield "time", "time limit, e.g. 90m or 24h", ""
    for key in site.required:
        if key != "time":
            yield key, key.replace("_", " "), ""


def _ask(question: str, default: str = "") -> str:
    return str(typer.prompt(question, default=default, show_default=bool(default), err=True)).strip()
