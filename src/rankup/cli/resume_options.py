"""``--resume``, and ``--name`` of a run that has not finished: which run directory an attempt goes on in."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from rankup.batch.store import LocalRun, SubmittedRun, all_runs, find
from rankup.cli.run_argument import RUNS_ROOT, shown
from rankup.core.rundir import RunDir, default_name
from rankup.core.units import duration
from rankup.errors import RankupError
from rankup.run.attempts import end_reason, living_process, newest_snapshot
from rankup.run.markers import read_markers
from rankup.run.outcome import REQUEUE_CODE, Result

# The first snapshot of a training that does not say otherwise (rankup.Snapshots), and the variable that does.
_FIRST_SNAPSHOT, _EVERY = "10m", "RANKUP_SNAPSHOT_EVERY"
_DIRECTORY = "RANKUP_SNAPSHOT_DIR"


class RunCommand(TyperCommand):
    """``--resume`` may stand without a value: before another option, before a script, and at the end."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        flags = {"-h", "--help"}
        for option in self.params:
            if getattr(option, "is_flag", False) or getattr(option, "is_bool_flag", False):
                flags |= set(option.opts)
        return super().parse_args(ctx, with_value(args, flags))


def with_value(args: Sequence[str], flags: Collection[str]) -> list[str]:
    """``args`` with ``--resume=`` where ``--resume`` stands without a run; what follows the script stays as it is."""
    given, i = list(args), 0
    while i < len(given) and given[i].startswith("-") and given[i] != "--":
        if given[i] == "--resume":
            value = given[i + 1] if i + 1 < len(given) else "-"
            if value.startswith("-") or _is_script(value):
                given[i] = "--resume="
            else:
                given[i : i + 2] = [f"--resume={value}"]
        elif given[i] not in flags and "=" not in given[i]:
            i += 1  # its value
        i += 1
    return given


def _is_script(text: str) -> bool:
    path = Path(text)
    return path.suffix in (".py", ".pyz", ".sh") or ("/" in text and path.is_file())


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
        hint=f"not finished: {named}" if named else "leave --resume out to run it again from the beginning",
    )


def _unfinished(run: RunDir) -> bool:
    """Not done, not running now, and with something to go on from: a snapshot, or it did not end by itself."""
    traces = read_markers(run.path)
    if traces.outcome == "done" or living_process(run):
        return False
    by_itself = traces.outcome == "failed" and traces.exit_code == 1
    return not by_itself or newest_snapshot(run) is not None


def ask_about_namesake(flags: Mapping[str, Any]) -> Path | None:
    """The directory of the last run of the name that was given, if it has not finished and is to be gone on with.

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
            hint=f"go on with it: rankup run --resume {shown(run.path)}; or begin anew under another --name",
        )
    print(f"rankup: {state}: {shown(run.path)}", file=sys.stderr)
    if not typer.confirm("go on with it? (n: begin anew beside it)", default=True, err=True):
        return None
    return run.path


def end_lines(result: Result, node_rank: int = 0) -> list[str]:
    """How a run has ended, and how it goes on if it has not come to its end; node 0 knows that for all."""
    took = duration(result.seconds)
    if result.code == 0:
        return [f"rankup: done after {took}"]
    how = {REQUEUE_CODE: "stopped, as it was asked to, and saved"}.get(result.code, "failed")
    if result.code > 128:
        how = f"ended by {signal.Signals(result.code - 128).name}"
    elif result.worker_code is not None and result.worker_code > 0:
        how = f"failed with exit code {result.worker_code}"
    said = f"rankup: {how} after {took}; logs in {shown(result.run.logs)}"
    return [said] if node_rank or not result.run.path.is_dir() else [said, continue_line(result.run)]


def continue_line(run: RunDir) -> str:
    """How a run that has not come to its end goes on."""
    snapshot = newest_snapshot(run)
    command = f"rankup run --resume {shown(run.path)}"
    if snapshot is not None:
        return f"continue: {command} (from {snapshot.path.relative_to(run.path / 'snapshots')})"
    if elsewhere := os.environ.get(_DIRECTORY):
        return f"continue: {command} (snapshots are in {elsewhere})"
    if (run.path / "snapshots").is_dir():
        first = os.environ.get(_EVERY) or _FIRST_SNAPSHOT
        return f"no snapshot yet (first due after {first}): {command} begins again"
    return f"no snapshot: {command} begins again, in the same directory"
