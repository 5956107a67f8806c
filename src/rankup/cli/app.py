"""The command table and the dispatcher. ``rankup --help`` reads the table and imports nothing else."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rankup.cli.output import console
from rankup.core.registry import lookup
from rankup.errors import RankupError

# name → (module with ``app``, one line), grouped by what one does.
COMMANDS: dict[str, dict[str, tuple[str, str]]] = {
    "Run and submit": {
        "run": ("run", "run a script on all processes of this machine or allocation"),
        "train": ("train", "train a built-in workload, or your own"),
        "new": ("new", "write a job.toml, from options or a few questions"),
        "submit": ("submit", "submit a job to SLURM or PBS, on any cluster with a profile"),
        "render": ("render", "print the job script: plain bash, to read or to submit by hand"),
        "rehearse": ("rehearse", "run a job script on a pretended cluster, without a queue"),
        "check": ("check", "find mistakes in job scripts and programs, also others'"),
        "rules": ("rules", "list and explain what check looks for"),
    },
    "Jobs": {
        "status": ("status", "show runs: which wait and why, run where, ended how"),
        "top": ("top", "watch every rank of a run live, with alerts and their causes"),
        "logs": ("logs", "print the log of a run; -f follows it to its end"),
        "explain": ("explain", "say why a job failed, from its logs or anybody's"),
        "cancel": ("cancel", "cancel jobs, at once or after they have saved"),
        "resume": ("resume", "submit a run again, from its last snapshot"),
    },
    "Reliability": {
        "snapshots": ("snapshots", "list, verify, compare and export saved states"),
        "verify": ("verify", "prove exact resume: kill a training, resume it, compare bits"),
        "drill": ("drill", "let the failures of a week strike a job script"),
    },
    "Measure": {
        "scale": ("scale", "measure the same work on 1, 2, … processes: a speed-up table"),
        "report": ("report", "make figures, tables and a page of a study or of any runs"),
        "predict": ("predict", "predict what larger sizes reach"),
        "check-results": ("check_results", "judge a published table of speed-ups"),
    },
    "Clusters": {
        "doctor": ("doctor", "name what is broken on the nodes, before a job waits for it"),
        "sites": ("sites", "list and check profiles of clusters, write one for yours"),
        "env": ("env", "build environments for jobs on the architecture they run on"),
        "data": ("data", "download data sets before the job, on a login node"),
        "world": ("world", "show this process's rank, hosts, launcher and device"),
        "mcp": ("mcp", "serve the commands that change nothing to an assistant"),
        "completion": ("completion", "print the completion script for bash, zsh or fish"),
    },
}

_ABOUT = "From one process to many GPUs on many nodes, and still the same model."
_MORE = """\
`rankup COMMAND --help` shows the options of a command, with examples.
`rankup --debug COMMAND …` shows the traceback of an error."""


def help_text() -> str:
    """The page of ``rankup --help``."""

    def bold(text: str) -> str:
        return console.paint(text, "bold")

    lines = [f"{bold('Usage:')} rankup COMMAND …", "", _ABOUT, ""]
    for group, commands in COMMANDS.items():
        lines.append(bold(f"{group}:"))
        lines += [
            f"  {console.paint(f'{name:<13}', 'cyan')}  {summary}" for name, (_, summary) in commands.items()
        ]
        lines.append("")
    return "\n".join([*lines, _MORE])


def main(argv: Sequence[str] | None = None) -> None:
    """The entry point. Exit codes: 0 success, 1 a failed run or findings, 2 wrong usage, 75 requeue requested."""
    try:
        _main(list(sys.argv[1:] if argv is None else argv))
    except BrokenPipeError:  # the reader has closed the pipe, as `head` does
        console.let_go(sys.stdout)
    except KeyboardInterrupt:  # while a command is imported: what it does later ends with an error of its own
        raise SystemExit(130) from None
    finally:
        _flush()


def _flush() -> None:
    """Flush here, not when the interpreter ends: there a closed pipe (``| head``) would print a traceback."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            console.let_go(stream)


def _main(args: list[str]) -> None:
    if args[:1] == ["help"] and len(args) > 1:
        args = [*args[1:], "--help"]
    if not args or args[0] in ("--help", "-h", "help"):
        print(help_text())
        if not args:
            from rankup.cli.next_steps import next_steps

            print("\n".join(next_steps(Path())))
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
        _check_folder()
        _dispatch(args)
    except RankupError as error:
        if console.debugging():
            raise
        console.draw_error(error)
        raise SystemExit(error.exit_code) from None


def _check_folder() -> None:
    """Every command reads its paths relative to the current directory, which may be deleted while a shell is in it."""
    try:
        Path.cwd()
    except FileNotFoundError:
        raise RankupError(
            "no-such-folder",
            "the current directory was deleted",
            hint="cd to a directory that exists; `cd .` if it was made anew under the same path",
        ) from None


def load_command(name: str) -> Any:
    """The click command (or group) called ``name``; its module is imported now."""
    table = {
        name: f"rankup.cli.commands.{module}:app"
        for commands in COMMANDS.values()
        for name, (module, _) in commands.items()
    }
    app = lookup("command", name, table)
    from typer.main import get_command

    return get_command(app)  # type: ignore[arg-type]  # a typer.Typer


# -h as well, also of a command's own commands, which inherit it.
CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"]}


def _dispatch(args: Sequence[str]) -> None:
    name, *rest = args or [""]
    command = load_command(name)
    from typer import Abort

    from rankup.cli.usage_errors import ClickError, usage_error

    for one in (command, *getattr(command, "commands", {}).values()):
        one.get_help = _Help(one)
    try:
        code = command.main(args=rest, prog_name=f"rankup {name}", standalone_mode=False, **CONTEXT_SETTINGS)
    except ClickError as error:
        path = f"rankup {name}"
        while rest and rest[0] in getattr(command, "commands", {}):
            path, command, rest = f"{path} {rest[0]}", command.commands[rest[0]], rest[1:]
        if _asks_for_json(command, rest):
            console.answer_in_json()
        raise usage_error(error, path) from None
    except Abort:  # Ctrl-C or the end of the input at a question
        console.say("rankup: aborted")
        code = 1
    raise SystemExit(code if isinstance(code, int) else 0)


class _Help:
    """Draws the help of a click command; rich is imported only then."""

    def __init__(self, command: Any) -> None:
        self._command = command

    def __call__(self, context: Any) -> str:
        from rankup.cli.output.help import help_page

        return help_page(self._command, context)


def _asks_for_json(command: Any, args: Sequence[str]) -> bool:
    """Whether ``--json`` is among the command's own options, although another of its words is wrong."""
    lenient = {"resilient_parsing": True, "ignore_unknown_options": True, "allow_extra_args": True}
    try:
        with command.make_context("rankup", list(args), **lenient) as context:
            return bool(context.params.get("as_json"))
    except Exception:  # what is wrong is told anyway, as text then
        return False
