"""What ``rankup submit`` and ``rankup render`` share: the job that a command line asks for, and ``--ignore``."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from rankup.batch.queue import UNKNOWN_JOB
from rankup.cli.job_options import flags_from
from rankup.cli.output.console import say
from rankup.core.columns import aligned
from rankup.core.registry import target_of
from rankup.core.units import clock, size
from rankup.errors import RankupError
from rankup.findings.finding import Finding
from rankup.resolve.advice import ADVICE
from rankup.resolve.precedence import resolve
from rankup.resolve.resolved import Resolved
from rankup.schedulers.base import scheduler_named
from rankup.schedulers.queue_limits import CODE
from rankup.spec.job_values import DURATIONS
from rankup.spec.jobspec import JobSpec

IgnoreOption = Annotated[
    list[str] | None,
    typer.Option("--ignore", metavar="CODE", help="leave out findings with this code; may be repeated"),
]


def ignored_codes(codes: list[str] | None) -> tuple[str, ...]:
    """The codes of ``--ignore``. Raises ``RankupError`` for one that no finding about a job or its program has."""
    for code in codes or ():
        if code.upper().startswith("RK"):
            from rankup.check.selection import check_codes

            check_codes([code], where="--ignore")
        else:
            target_of("finding", code, dict.fromkeys([*ADVICE, CODE, UNKNOWN_JOB], ""))
    return tuple(codes or ())


def job_from(
    asked: Mapping[str, Any], *, interactive: bool = False, ignore: Collection[str] = ()
) -> Resolved:
    """The job that the command line asks for, with nothing left to decide. ``ignore``: codes of advice."""
    flags, file, site = flags_from(asked), asked["job"], asked["site"]
    command = flags.pop("command", ())
    if interactive and not command and file is None:
        command, flags = ("bash",), {"name": "interactive", **flags}
    return resolve(
        flags, command=command, file=file, site=site, env=os.environ, folder=Path.cwd(), ignore=ignore
    )


def found_in_program(job: Resolved, ignore: Collection[str] = ()) -> list[Finding]:
    """What `rankup check` finds in the program of a job; codes of its rules in ``ignore`` are left out."""
    from rankup.check.facts.start import Start
    from rankup.check.paths import check_program
    from rankup.check.selection import read_selection

    spec = job.spec
    path = spec.folder / spec.command[0]
    kept = read_selection(path)
    selection = replace(kept, ignore=(*kept.ignore, *ignore))
    start = Start(spec.launcher, spec.nodes, spec.nproc_per_node, spec.gpus_per_node, spec.cpus_per_task)
    return check_program(path, start, selection, job.site)


def draw_notes(job: Resolved) -> None:
    """What the profile of the site tells its users."""
    for note in job.site.notes:
        say(f"note: {job.site.name}: {note}")


def interactive_command(job: Resolved) -> list[str]:
    """The command of the scheduler's client that opens a shell on the job's resources."""
    return scheduler_named(job.site.scheduler).interactive_command(job.spec, job.site)


def become_a_shell(job: Resolved) -> NoReturn:
    """Replace this process by the scheduler's client, which opens a shell on the job's resources.

    There is no run directory and no script.
    """
    command = interactive_command(job)
    try:
        os.execvpe(command[0], command, scheduler_named(job.site.scheduler).clean(os.environ))
    except OSError as error:
        raise RankupError(
            "scheduler-missing",
            f"cannot start {command[0]}: {error.strerror}",
            hint=f"{command[0]} is a command of the scheduler: run this on a login node of the cluster",
        ) from error


def explain(job: Resolved) -> str:
    """A line for each value: key, value, and where it came from."""
    rows = [("site", job.site.name, job.origin["site"])]
    for key in JobSpec.model_fields:
        value = getattr(job.spec, key)
        if key == "env":
            rows += [(f"env.{k}", repr(v), job.origin[f"env.{k}"]) for k, v in value.items()]
        elif key in job.origin:
            rows.append((key, _shown(key, value), job.origin[key]))
    # A long list of modules moves its own origin to the right, and not those of all other lines.
    return "\n".join(aligned(rows, widest=32))


def _shown(key: str, value: Any) -> str:
    if value in (None, "", (), {}):
        return "-"
    if key in DURATIONS:
        return clock(value)
    if key == "mem":
        return size(value)
    if isinstance(value, dict):
        return " ".join(f"{name}={one}" for name, one in value.items())
    return " ".join(value) if isinstance(value, tuple) else str(value)
