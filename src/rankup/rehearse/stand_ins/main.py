"""Command → stand-in. ``write_wrappers`` puts one small shell script for each on PATH."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rankup.core.registry import load
from rankup.rehearse.scenario import Scenario
from rankup.rehearse.stand_ins.answers import NAMES
from rankup.rehearse.stand_ins.context import Here, stand_in_command
from rankup.rehearse.stand_ins.files import CHANGE_TOOLS, COPY_TOOLS

_ML = ("load", "purge", "use", "list", "avail", "unload", "swap", "spider", "reset", "restore")
_HERE = "rankup.rehearse.stand_ins"

#: Module → the commands that its ``main`` stands in for.
COMMANDS: dict[str, tuple[str, ...]] = {
    "srun": ("srun",),
    "mpirun": ("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prun"),
    "remote": ("pbsdsh", "pbs_tmrsh", "ssh", "rsh", "pdsh", "clush"),
    "python": (
        "python", "python2", "python3", *(f"python3.{minor}" for minor in range(6, 16)), "torchrun", "torchrun_jsc",
        "accelerate", "accelerate-launch", "deepspeed", "horovodrun", "ipython",
    ),
    "containers": ("apptainer", "singularity", "docker", "podman", "podman-hpc", "nvidia-docker", "enroot",
    "shifter", "ch-run"),
    "answers": NAMES,
}  # fmt: skip
#: Those that change files, below ``files``: all of them only without a sandbox.
FILE_COMMANDS = {True: COPY_TOOLS, False: (*COPY_TOOLS, *CHANGE_TOOLS)}
#: Stand-ins that may become the real command: so it stays where it is.
RUN_FOR_REAL = (*FILE_COMMANDS[False], "git", "pkill", "killall")


def commands(scenario: Scenario) -> Iterator[str]:
    """All commands that have a stand-in."""
    for names in COMMANDS.values():
        yield from names
    yield from FILE_COMMANDS[scenario.confined]


def _module(name: str) -> str:
    if name in FILE_COMMANDS[False]:
        return "files"
    return next((module for module, names in COMMANDS.items() if name in names), name)


def main(argv: Sequence[str]) -> None:
    """``NAME SCRATCH ARGUMENTS…``: become the stand-in of a command."""
    name, scratch, *args = argv
    here = Here(name, Path(scratch), args)
    if name == "ml":
        here.name, here.args = "module", ["load", *args] if args and args[0] not in _ML else args
    run: Callable[[Here], Any] = load(f"{_HERE}.{_module(name)}:main")  # type: ignore[assignment]
    try:
        code = run(here)
        sys.stdout.flush()
    except BrokenPipeError:
        code = 141
    raise SystemExit(code or 0)


def write_wrappers(scenario: Scenario) -> None:
    """A wrapper for each command, in the scenario's ``bin``."""
    scenario.bin.mkdir()
    for name in commands(scenario):
        path = scenario.bin / name
        path.write_text(wrapper(scenario, name))
        path.chmod(0o755)


def wrapper(scenario: Scenario, name: str) -> str:
    command = shlex.join([*stand_in_command(scenario), name, str(scenario.scratch)])
    return f'#!/bin/sh\nexec {command} "$@"\n'
