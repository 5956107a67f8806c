"""``rankup drill``: a job script meets the failures that a week brings."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated

import typer

from rankup.cli.options import JsonOption
from rankup.cli.output import console
from rankup.core.nearest import did_you_mean
from rankup.core.rundir import RunDir, default_name
from rankup.core.units import duration, parse_duration
from rankup.drill.copied_job import USUAL_LEAD_S, JobScript, read_script
from rankup.drill.drill import Drill, DrillPlan
from rankup.drill.failures import FAILURES, NAMES, Failure, Settings, by_command
from rankup.drill.here import cluster_here
from rankup.drill.judge import changes_of_check, judge_all
from rankup.drill.pbs import PbsQueue
from rankup.drill.queue import Cluster, Queue
from rankup.drill.slurm import SlurmQueue
from rankup.drill.table import as_dict, text
from rankup.errors import RankupError

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("drill", context_settings={"allow_interspersed_args": False})
def drill_command(
    script: Annotated[Path, typer.Argument(metavar="JOB.sh", help="a job script of SLURM or PBS")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGUMENT]…", help="arguments of the script")
    ] = None,
    failures: Annotated[
        str, typer.Option("--failures", metavar="NAMES", help=f"only these of: {', '.join(NAMES)}")
    ] = "",
    step: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="strike after step N; default: two steps after the first save"),
    ] = None,
    limit: Annotated[str, typer.Option(metavar="TIME", help="the time limit of each job, e.g. 10m")] = "10m",
    short: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="the time limit that strikes; default: a minute and a half more than its --signal asks for",
        ),
    ] = "",
    outage: Annotated[str, typer.Option(metavar="TIME", help="for so long the folder is read-only")] = "60s",
    again: Annotated[
        str,
        typer.Option(
            metavar="COMMAND", help="how you start the job after it has ended; default: the same submit"
        ),
    ] = "",
    leave_out: Annotated[
        list[str] | None,
        typer.Option("--leave-out", metavar="GLOB", help="files of the job's folder that are not copied"),
    ] = None,
    lose_node: Annotated[
        str, typer.Option("--lose-node", metavar="COMMAND", help="an operator's way to lose the node {node}")
    ] = "",
    return_node: Annotated[
        str, typer.Option("--return-node", metavar="COMMAND", help="and to bring it back")
    ] = "",
    here: Annotated[
        bool,
        typer.Option("--here", help="on a SLURM or PBS that comes up on this machine, or on a pretended one"),
    ] = False,
    user: Annotated[
        str,
        typer.Option("--as", metavar="USER", help="with --here: whose jobs; default: who has called sudo"),
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", help="do not ask before jobs are submitted")] = False,
    as_json: JsonOption = False,
) -> None:
    """Submit copies of a job, let a failure strike each of them, and show what the job makes of it.

    It needs the queue's commands here, or --here. Nothing of the job's folder is changed: each failure meets a copy.
    The exit code is 1 if a failure is not survived.
    """
    job = read_script(script)
    queue = _queue(job)
    if arguments and not queue.takes_arguments:
        raise RankupError(
            "no-arguments", "qsub passes no arguments to a job script", hint="write them into the script"
        )
    if here and (lose_node or return_node):
        raise RankupError(
            "two-operators", "--here loses its nodes itself", context="--lose-node, --return-node"
        )
    if user and not here:
        raise RankupError(
            "not-here", "--as is for --here: your queue runs your own jobs", context=f"--as {user}"
        )
    chosen = _chosen(failures)
    seconds = {"limit": _seconds("limit", limit), "outage": _seconds("outage", outage)}
    lead = job.lead or USUAL_LEAD_S
    # SLURM counts minutes, and may be a minute late.
    at_limit = _seconds("short", short) if short else -(-(lead + 90) // 60) * 60
    if not yes and not here:
        _ask(queue, chosen, seconds["limit"])
    lines = _Lines()
    if here:
        spare = any(failure.name == "second-job" for failure in chosen)
        where: AbstractContextManager[Cluster] = cluster_here(job, user, spare=spare, says=lines.begins)
    else:
        where = nullcontext(Cluster(queue, by_command(lose_node), by_command(return_node)))
    with where as cluster:
        settings = Settings(
            **seconds, short=at_limit, lose_node=cluster.lose_node, return_node=cluster.return_node,
            pretended=bool(cluster.pretended),
        )  # fmt: skip
        home = RunDir.create(job.folder / "runs", f"drill-{default_name((script.name,))}", parts=()).path
        plan = DrillPlan(job, tuple(arguments or ()), settings, chosen, step, again, tuple(leave_out or ()))
        drill = Drill(plan, cluster, home, lines)
        outcomes = [drill.meet(failure) for failure in chosen]
        verdicts, checked = judge_all(drill, outcomes), changes_of_check(job)
    if as_json:
        answer = as_dict(drill.reference, verdicts, checked)
        console.print_json({**answer, "pretended": cluster.pretended, "folder": str(home)})
    else:
        print("\n" + text(drill.reference, verdicts, checked))
        if cluster.pretended:
            print(f"pretended  {cluster.pretended}")
        print(f"copies     {home}")
    raise typer.Exit(0 if all(verdict.survived for verdict in verdicts if verdict.outcome.struck) else 1)


def _queue(job: JobScript) -> Queue:
    if job.scheduler == "slurm":
        return SlurmQueue()
    if job.scheduler == "pbs":
        return PbsQueue()
    raise RankupError(
        "no-directives",
        f"{job.path.name} has neither #SBATCH nor #PBS",
        hint="a drill is for job scripts; for a program it is `rankup verify`",
    )


def _chosen(names: str) -> tuple[Failure, ...]:
    wanted = [name for name in names.replace(",", " ").split() if name]
    for name in wanted:
        if name not in NAMES:
            raise RankupError(
                "unknown-failure",
                f"there is no failure {name!r}{did_you_mean(name, NAMES)}",
                context="--failures",
                hint=f"one of: {', '.join(NAMES)}",
            )
    return tuple(failure for failure in FAILURES if not wanted or failure.name in wanted)


def _seconds(option: str, value: str) -> int:
    try:
        return parse_duration(value)
    except ValueError as error:
        raise RankupError("bad-time", str(error), context=f"--{option}") from None


def _ask(queue: Queue, chosen: tuple[Failure, ...], limit: int) -> None:
    what = (
        f"{len(chosen) + 1} jobs or more go to the {queue.name} queue, one after another, each of at most "
        f"{duration(limit)}"
    )
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise RankupError("not-asked", what, hint="--yes says that this is all right")
    if not typer.confirm(f"{what}. All right?", err=True):
        raise typer.Exit(2)


class _Lines:
    """On stderr."""

    def begins(self, what: str) -> None:
        console.say(f"{what} …")

    def says(self, text: str) -> None:
        console.say(f"  {text}")
