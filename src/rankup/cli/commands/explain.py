"""``rankup explain``: why a job failed, from its logs, with the lines that show it; or what a code means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from rankup.batch.store import SubmittedRun, find, is_local, is_run
from rankup.cli.options import JsonOption
from rankup.cli.output import console
from rankup.cli.run_argument import RUNS_ROOT, RunsRootOption
from rankup.errors import RankupError
from rankup.explain.explain_logs import explain_run
from rankup.explain.explanation import explanation_lines
from rankup.explain.run_directory import RunFacts, read_run

_HANGS = """  why:   the job has come to its end, was ended from outside, or hangs, which prints nothing
  hint:  `sacct -j JOB` or `qstat -x JOB` tells how it ended; while it runs, `py-spy dump --pid PID` on each node tells
         where a rank waits, and `rankup doctor` whether the nodes reach each other"""

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def explain(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[LOG…|RUN|CODE]",
            help="logs of any job, files or folders; or a run: directory, id, name or job id; default: the latest run; "
            "or a code of rankup: state-lost, RK101",
        ),
    ] = None,
    runs_root: RunsRootOption = RUNS_ROOT,
    as_json: JsonOption = False,
) -> None:
    """Say why a job failed: the first error of the rank that failed first, what it means and what to do.

    Reads logs of any job, of rankup or not: one file of all ranks or a file per rank, also compressed. Give all files
    of a job at once: an error in one of them is often the consequence of another. Exit code 1 if a failure was found,
    0 if the logs show none.

    A code that rankup has printed (state-lost, RK101) is explained by all that is said under it.
    """
    try:
        run = _run_of(targets or [], runs_root)
    except RankupError as error:
        if error.code == "no-such-log" and targets and _explain_code(targets[0].strip("[]"), as_json):
            return
        raise
    if run is None:
        _refuse_empty([Path(target) for target in targets or []])
    found, notes, last = explain_run(
        _facts_of(run) if run else RunFacts(tuple(Path(target) for target in targets or []))
    )
    hangs = last if run is None else None  # how a run ended is in its directory
    if as_json:
        shown = {"failure": found.as_dict() if found else None, "notes": notes}
        console.print_json({**shown, "last": str(hangs) if hangs else None})
    elif found is not None:
        head, *rest = explanation_lines(found)
        print(console.paint(head, "bold"))
        print("\n".join(rest))
    else:
        print("no failure in the logs" + (", and no end of the job" if hangs else ""))
        if hangs:
            print(f"  {hangs}\n{_HANGS}")
        print("".join(f"  note:  {note}\n" for note in notes), end="")
    raise typer.Exit(1 if found else 0)


def _run_of(targets: Sequence[str], runs_root: Path) -> SubmittedRun | None:
    """The run that is meant; None if logs are."""
    if len(targets) > 1 or (targets and _is_log(Path(targets[0]))):
        return None
    target = targets[0] if targets else ""
    try:
        return find(target, runs_root)
    except RankupError as error:
        if error.code not in ("no-such-run", "no-runs") or not target:
            raise
        raise RankupError(
            "no-such-log",
            f"there is no file, no run and no code named {target!r}",
            context=f"runs are looked for in {runs_root}",
            hint="give the log files of a job, or a run: `rankup status --all` lists them; or a code of rankup",
        ) from error


def _explain_code(code: str, as_json: bool) -> bool:
    """Print what ``code`` means, if it is one of rankup."""
    from rankup.cli.commands.rules import explained, rule_as_dict, rule_of
    from rankup.explain.codes import page_of, said_under

    if rule := rule_of(code):
        if as_json:
            console.print_json(rule_as_dict(rule))
        else:
            print(explained(rule))
        return True
    said = said_under(code)
    if said and as_json:
        console.print_json({"code": code, "said": [asdict(one) for one in said]})
    elif said:
        print(page_of(code, said))
    return bool(said)


def _refuse_empty(paths: Sequence[Path]) -> None:
    if all(path.is_file() and not path.stat().st_size for path in paths):
        raise RankupError(
            "empty-log",
            "there is nothing in the log" if len(paths) == 1 else "there is nothing in any of the logs",
            context=", ".join(map(str, paths)),
            hint="the job has printed nothing yet, or writes elsewhere: `scontrol show job JOB` names its StdOut and "
            "StdErr, `qstat -f JOB` its Output_Path and Error_Path",
        )


def _is_log(path: Path) -> bool:
    try:
        return path.is_file() or (path.is_dir() and not is_run(path) and not is_local(path))
    except OSError:  # a name that is too long for a file
        return False


def _facts_of(run: SubmittedRun) -> RunFacts:
    folders = list(run.tasks().values()) or [run.run.path]
    return read_run(run.run.logs, tuple(run.logs().values()), tuple(folders))
