"""The command table and the dispatcher. ``rankup --help`` reads the table and imports nothing else."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from rankup.cli import console
from rankup.core.registry import lookup
from rankup.errors import RankupError

# name → (module with ``app``, one line); the groups are the three promises, then what serves them all.
COMMANDS: dict[str, dict[str, tuple[str, str]]] = {
    "it starts": {
        "run": ("run", "run any script on all the processes of this machine or allocation"),
        "submit": ("submit", "submit a job to SLURM or PBS: described once, right for any site"),
        "render": ("render", "print the job's script: plain bash, to read or to submit by hand"),
        "world": (
            "world",
            "who am I: rank, hosts, launcher, device, affinity, and where each value came from",
        ),
    },
    "it survives": {
        "status": ("status", "how submitted runs stand: waiting and why, running where, ended how"),
        "logs": ("logs", "what a job printed; -f: until its end, over requeues"),
        "cancel": ("cancel", "end jobs, at once or after they have saved"),
        "resume": ("resume", "a run that has ended goes on from its last snapshot"),
        "snapshots": ("snapshots", "saved states: list, verify, compare, export a plain model"),
        "verify": ("verify", "prove that a training survives: kill it, resume it, compare bit for bit"),
    },
    "it pays": {
        "scale": ("scale", "measure the same work on 1, 2, … processes: an honest speed-up table"),
    },
    "what it knows": {
        "sites": ("sites", "clusters that are known; a profile for yours"),
        "env": ("env", "environments for jobs, built on the architecture that jobs run on"),
    },
    "to work with": {
        "train": ("train", "train a built-in workload, or your own"),
        "data": ("data", "fetch data sets before the job: compute nodes have no internet"),
    },
}

HELP = """\
Usage: rankup COMMAND …

From one process on a laptop to many GPUs on many nodes, and still the same model, only faster.
"""


def help_text() -> str:
    """The page of ``rankup --help``."""
    lines = [HELP]
    for group, commands in COMMANDS.items():
        lines.append(f"{group}:")
        lines.extend(f"  {name:<10} {summary}" for name, (_, summary) in commands.items())
        lines.append("")
    lines.append(
        "`rankup COMMAND --help` tells a command's options; `--debug` shows the traceback of an error."
    )
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    """The entry point. Exit codes: 0 well, 1 a failed run or findings, 2 wrong usage, 75 asks to be requeued."""
    try:
        _main(list(sys.argv[1:] if argv is None else argv))
    except BrokenPipeError:  # the reader has closed the pipe, as `head` does
        console.let_go(sys.stdout)
    finally:
        _flush()


def _flush() -> None:
    """Now, and not when the interpreter ends: there a reader that has gone (``| head``) would be a traceback."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            console.let_go(stream)


def _main(args: list[str]) -> None:
    if not args or args[0] in ("--help", "-h", "help"):
        print(help_text())
        raise SystemExit(0 if args else 2)
    if args[0] == "--version":
        from rankup import __version__

        print(f"rankup {__version__}")
        return
    if args[0] == "--debug":
        os.environ["RANKUP_DEBUG"] = "1"  # for the ranks as well
        args = args[1:]
    console.answer_in_json(False)
    try:
        _dispatch(args)
    except RankupError as error:
        if console.debugging():
            raise
        console.draw_error(error)
        raise SystemExit(error.exit_code) from None


def _dispatch(args: Sequence[str]) -> None:
    table = {
        name: f"rankup.cli.commands.{module}:app"
        for commands in COMMANDS.values()
        for name, (module, _) in commands.items()
    }
    name = args[0] if args else ""
    app = lookup("command", name, table)
    # -h as well, also of a command's own commands, which inherit it.
    app(args=list(args[1:]), prog_name=f"rankup {name}", help_option_names=["-h", "--help"])  # type: ignore[operator]  # a typer.Typer
