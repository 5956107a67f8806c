"""Builds the environment of ``rankup env create``, here or in a job, and shows the output."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rankup.batch.env_create import as_job, build_here, read_facts, write_script
from rankup.batch.follow import JobLog
from rankup.batch.submit import plan, submit
from rankup.cli.output import console
from rankup.cli.run_argument import follow_to_end
from rankup.core import shell
from rankup.errors import RankupError
from rankup.script.env_build import FACTS, Environment, render

# The site's name and the job's flags; None if the environment is built here.
Job = tuple[str, Mapping[str, Any]] | None


def show_plan(environment: Environment, job: Job, as_json: bool) -> None:
    """Print the script and, if it needs a job, the command that would submit it."""
    script, commands = render(environment), []
    if job is not None:
        commands = [shell.quote(c) for c in plan(as_job(environment, *job, os.environ, Path.cwd()))[1]]
    if as_json:
        console.print_json({"script": script, "commands": commands})
        return
    print(script, end="")
    if commands:
        print("# would run in a job, submitted by:", *commands, sep="\n#   ")


def build(environment: Environment, job: Job, arch: str, as_json: bool) -> dict[str, Any]:
    """Build the environment and return its facts. Raises ``RankupError`` if the build fails."""
    path = environment.path(arch)
    if (path / FACTS).exists():
        raise RankupError(
            "environment-exists",
            f"the environment {str(path)!r} exists already",
            hint="use it, remove it, or choose another --name or --path",
        )
    if job is None:
        code, where = build_here(environment, sys.stderr if as_json else sys.stdout), "here"
    else:
        resolved = as_job(environment, *job, os.environ, Path.cwd())
        write_script(environment)
        submitted = submit(resolved, env=os.environ)
        where = f"job {submitted.ids()[0]}, {submitted.run.path}"
        console.say(f"{where} builds {path}")
        code, standing = follow_to_end(submitted, JobLog(submitted), to_stderr=as_json)
        if standing is None:  # Ctrl-C: the job continues, which follow_to_end has printed
            raise SystemExit(code)
    if code > 128:
        raise SystemExit(code)
    if code != 0:
        raise RankupError(
            "environment-failed",
            f"the environment {path} was not built; its partial files are removed",
            context=where,
            hint="see the output above for the cause",
            exit_code=1,
        )
    return read_facts(path)
