"""``rankup top``: what each rank of a run does now, live."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable
from typing import Annotated

import typer

from rankup.cli.options import JsonOption
from rankup.cli.output import console
from rankup.cli.output.top.columns import SORTS, filtered, in_order
from rankup.cli.output.top.plain import plain_lines
from rankup.cli.run_argument import RUNS_ROOT, RunsRootOption, TargetArgument
from rankup.cli.run_watch import RunWatch
from rankup.cli.stacks import Stacks
from rankup.core.registry import target_of
from rankup.monitor.frame import Frame

app = typer.Typer(add_completion=False, rich_markup_mode=None)
_INTERVAL, _PLAIN_INTERVAL = 2.0, 10.0


@app.command()
def top(
    target: TargetArgument = "",
    once: Annotated[bool, typer.Option("--once", help="print one moment and end")] = False,
    sort: Annotated[
        str, typer.Option(metavar="COLUMN", help=f"order of the ranks: {', '.join(SORTS)}")
    ] = "rank",
    only: Annotated[
        str,
        typer.Option(
            "--filter",
            metavar="RANKS",
            help="only these ranks (0-3,7), those of hosts with this in their names, or those with alerts (!)",
        ),
    ] = "",
    stacks: Annotated[
        bool, typer.Option("--stacks", help="print the stacks of all ranks (py-spy on their nodes) and end")
    ] = False,
    interval: Annotated[
        float | None,
        typer.Option(min=0.5, metavar="SECONDS", help="time between two moments; default: 2, in a pipe 10"),
    ] = None,
    runs_root: RunsRootOption = RUNS_ROOT,
    as_json: JsonOption = False,
) -> None:
    """Show what each rank of a run does: its GPU, step time, data wait, loss; and alerts with their causes.

    It reads the run directory, so it works on a login node too. It ends with the run. Without a terminal it prints
    lines; --json prints one JSON object for each moment. Keys: q quit, s sort, f filter, p py-spy, j and k scroll.
    """
    target_of("order", sort, dict.fromkeys(SORTS, ""))
    filtered([], only)  # an invalid one raises
    watch = RunWatch.of(target, runs_root)

    def read() -> Frame:
        frame = watch.frame()
        return frame.with_ranks(in_order(filtered(frame.ranks, only, frame.alerted), sort))

    if stacks:
        _print_stacks(watch, as_json=as_json)
        return
    if as_json or once or not sys.stdout.isatty():
        _print(read, once=once, as_json=as_json, interval=interval or _PLAIN_INTERVAL)
        return
    from rankup.cli.output.top.live import show
    from rankup.cli.output.top.screen import View

    last = show(watch.frame, View(sort, only), interval or _INTERVAL, lambda frame: Stacks(watch.path, frame))
    if last.ended:  # what stays on the terminal
        print("\n".join(plain_lines(last, shutil.get_terminal_size().columns)))


def _print(read: Callable[[], Frame], *, once: bool, as_json: bool, interval: float) -> None:
    """Frame after frame, until the run ends; with ``once`` one."""
    while True:
        frame = read()
        if as_json and once:
            console.print_json(frame.as_dict())
        else:
            text = json.dumps(frame.as_dict()) if as_json else "\n".join(plain_lines(frame))
            print(text, flush=True)
        if once or frame.ended:
            return
        if not as_json:
            print()
        time.sleep(interval)


def _print_stacks(watch: RunWatch, *, as_json: bool) -> None:
    asked = Stacks(watch.path, watch.frame())
    found = asked.wait()
    if as_json:
        console.print_json({"run": str(watch.path), "stacks": found, "silent": asked.silent})
    else:
        print("\n".join(text.rstrip() for text in found.values()))
    for host in asked.silent:
        console.say(f"rankup: {host} has no sampler, and was not asked")
    if not found:
        raise typer.Exit(1)
