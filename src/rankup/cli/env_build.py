"""What ``rankup env create`` does once it is decided: here or in a job, shown as it goes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rankup.batch.env_create import as_job, build_here, read_facts, write_script
from rankup.batch.follow import JobLog
from rankup.batch.submit import plan, submit
from rankup.cli import console
from rankup.cli.run_targets import follow_to_end
from rankup.core import shell
from rankup.errors import RankupError
from rankup.script.python_environment import FACTS, Environment, render

# The site's name and the job's flags; None where no job is needed.
Job = tuple[str, Mapping[str, Any]] | None


def show_plan(environment: Environment, job: Job, as_json: bool) -> None:
    """Print the script, and the command that would submit it."""
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
    """Build it, and say what is there now. Raises ``RankupError`` where nothing is."""
    path = environment.path(arch)
    if (path / FACTS).exists():
        raise RankupError(
            "environment-exists",
            f"there is an environment {str(path)!r} already",
            hint="use it, or remove it, or choose another --name or --path",
        )
    if job is None:
        code, where = build_here(environment, sys.stderr if as_json else sys.stdout), "here"
    else:
        resolved = as_job(environment, *job, os.environ, Path.cwd())
        write_script(environment)
        submitted = submit(resolved, env=os.environ)
        where = f"job {submitted.ids()[0]}, {submitted.run.path}"
        print(f"{where} builds {path}", file=sys.stderr)
        code, standing = follow_to_end(submitted, JobLog(submitted), to_stderr=as_json)
        if standing is None:  # a Ctrl-C: the job goes on, which has been said
            raise SystemExit(code)
    if code > 128:
        raise SystemExit(code)
    if code != 0:
        raise RankupError(
            "environment-failed",
            f"{path} was not built, and nothing of it is left",
            context=where,
            hint="what went wrong stands above",
            exit_code=1,
        )
    return read_facts(path)
