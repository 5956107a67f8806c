"""``--resume`` on the command line of ``rankup run``, and the lines that say how a run ended and how to resume it."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from typer.core import TyperCommand

from rankup.cli.output.console import shown
from rankup.core.goodput import write_goodput
from rankup.core.records import read_records
from rankup.core.rundir import RunDir
from rankup.core.units import duration
from rankup.run.markers import REQUEUE_CODE
from rankup.run.outcome import Result

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


def end_lines(result: Result, *, head: bool = True) -> list[str]:
    """How a run has ended, and how to resume it if it is not done; ``head``, node 0, says that for all."""
    took = duration(result.seconds)
    ended = head and result.code in (0, 1) and result.run.path.is_dir()
    told = write_goodput(result.run.path) if ended else None
    goodput = [f"rankup: {told.line()}"] if told else []
    if result.code == 0:
        return [f"rankup: done after {took}", *goodput]
    how = {REQUEUE_CODE: "stopped, as it was asked to, and saved"}.get(result.code, "failed")
    if result.code > 128:
        how = f"ended by {signal.Signals(result.code - 128).name}"
    elif result.worker_code is not None and result.worker_code > 0:
        how = f"failed with exit code {result.worker_code}"
    said = f"rankup: {how} after {took}; logs in {shown(result.run.logs)}"
    if not head or not result.run.path.is_dir():
        return [said]
    explained = [explain_line(result.run)] if result.code == 1 else []
    return [said, *goodput, *explained, continue_line(result.run)]


def explain_line(run: RunDir) -> str:
    """What to type to learn why a run failed."""
    return f"explain: rankup explain {shown(run.path)}"


def begins_again(run: RunDir) -> bool:
    """Whether a resume finds nothing to go on from. Snapshots that the environment has elsewhere are not looked at."""
    from rankup.run.attempts import newest_snapshot

    return _DIRECTORY not in os.environ and newest_snapshot(run) is None


def continue_line(run: RunDir) -> str:
    """How to resume a run that is not done."""
    from rankup.run.attempts import newest_snapshot

    snapshot = newest_snapshot(run)
    command = f"rankup run --resume {shown(run.path)}"
    if snapshot is not None:
        return f"continue: {command} (from {snapshot.path.relative_to(run.path / 'snapshots')})"
    if elsewhere := os.environ.get(_DIRECTORY):
        return f"continue: {command} (snapshots are in {elsewhere})"
    if (run.path / "snapshots").is_dir():
        begins = read_records(run.records / "steps.jsonl", "begin")
        every = begins[-1]["facts"].get("snapshot_every", "off") if begins else "off"
        due = "" if every == "off" else f" (first due after {every})"
        return f"no snapshot yet{due}: {command} begins again"
    return f"no snapshot: {command} begins again, in the same directory"
