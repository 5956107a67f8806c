"""Finds the run that ``--resume`` names, and asks about one of the same ``--name`` that has not finished."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from rankup.batch.store import LocalRun, SubmittedRun, all_runs, find
from rankup.cli.output.console import say, shown
from rankup.cli.run_argument import RUNS_ROOT
from rankup.core.rundir import RunDir, default_name
from rankup.errors import RankupError
from rankup.run.attempts import end_reason, living_process, newest_snapshot
from rankup.run.markers import read_markers


def run_to_resume(target: str, flags: Mapping[str, Any], command: tuple[str, ...]) -> Path:
    """The directory of the run that ``target`` means; "" or "last": the latest, of the name or script if given."""
    root = Path(flags.get("runs_root", RUNS_ROOT))
    wanted = target if target not in ("", "last") else flags.get("name", "")
    if not wanted and command:
        wanted = default_name(command)
    run = find(wanted or "last", root)
    if not isinstance(run, LocalRun):
        raise RankupError(
            "submitted-run",
            f"{shown(run.run.path)} was submitted to a scheduler",
            context=f"job {' '.join(run.ids())}",
            hint=f"rankup resume {shown(run.run.path)}",
        )
    if read_markers(run.run.path).outcome == "done":
        raise _done(run, root)
    return run.run.path


def _done(run: SubmittedRun, root: Path) -> RankupError:
    others = [r for r in all_runs(root) if isinstance(r, LocalRun) and _unfinished(r.run)]
    named = ", ".join(f"rankup run --resume {shown(r.run.path)}" for r in others[-3:])
    return RankupError(
        "already-done",
        f"{shown(run.run.path)} is done: there is nothing to resume",
        hint="leave --resume out to run it again from the beginning"
        + (f"; other runs are not finished: {named}" if named else ""),
    )


def _unfinished(run: RunDir) -> bool:
    """Not done, not running now, and worth a resume: it has a snapshot, or it did not end by itself."""
    traces = read_markers(run.path)
    if traces.outcome == "done" or living_process(run):
        return False
    by_itself = traces.outcome == "failed" and traces.exit_code == 1
    return not by_itself or newest_snapshot(run) is not None


def ask_about_namesake(flags: Mapping[str, Any]) -> Path | None:
    """The directory of the last run of the name that was given, if it has not finished and is to be resumed.

    That is asked on a terminal, and is an error elsewhere.
    """
    name, root = flags["name"], Path(flags.get("runs_root", RUNS_ROOT))
    runs = [r for r in all_runs(root) if isinstance(r, LocalRun) and r.spec.name == name]
    if not runs or not _unfinished(runs[-1].run):
        return None
    run = runs[-1].run
    snapshot = newest_snapshot(run)
    reached = f"its last snapshot is {snapshot.name}" if snapshot else "without a snapshot"
    state = f"the run {name!r} has not finished ({end_reason(run, read_markers(run.path))}; {reached})"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise RankupError(
            "unfinished-run",
            state,
            context=shown(run.path),
            hint=f"resume it: rankup run --resume {shown(run.path)}; or start a new run under another --name",
        )
    say(f"rankup: {state}: {shown(run.path)}")
    if not typer.confirm("resume it? (n: start a new run beside it)", default=True, err=True):
        return None
    return run.path
