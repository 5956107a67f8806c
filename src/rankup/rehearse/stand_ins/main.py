"""Command → stand-in. ``write_wrappers`` puts one small shell script for each on PATH."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rankup.core.registry import load
from rankup.rehearse.scenario import Scenario
from rankup.rehearse.stand_ins.context import Here, stand_in_command

_HERE = "rankup.rehearse.stand_ins"

#: Module → the commands that its ``main`` stands in for.
COMMANDS: dict[str, tuple[str, ...]] = {
    "srun": ("srun",),
    "slurm_tools": ("scontrol", "squeue", "sbatch", "salloc", "scancel", "sinfo", "sacct", "sstat", "sbcast",
    "sgather", "sattach"),
    "python": (
        "python", "python2", "python3", *(f"python3.{minor}" for minor in range(6, 16)), "torchrun",
        "torchrun_jsc", "accelerate",
        "accelerate-launch", "deepspeed", "horovodrun", "ipython",
    ),
}  # fmt: skip


def main(argv: Sequence[str]) -> None:
    """``NAME SCRATCH ARGUMENTS…``: become the stand-in of a command."""
    name, scratch, *args = argv
    here = Here(name, Path(scratch), args)
    module = next((module for module, names in COMMANDS.items() if name in names), name)
    run: Callable[[Here], Any] = load(f"{_HERE}.{module}:main")  # type: ignore[assignment]
    try:
        code = run(here)
        sys.stdout.flush()
    except BrokenPipeError:
        code = 141
    raise SystemExit(code or 0)


def write_wrappers(scenario: Scenario) -> None:
    """A wrapper for each command, in the scenario's ``bin``."""
    scenario.bin.mkdir()
    for names in COMMANDS.values():
        for name in names:
            path = scenario.bin / name
            path.write_text(wrapper(scenario, name))
            path.chmod(0o755)


def wrapper(scenario: Scenario, name: str) -> str:
    command = shlex.join([*stand_in_command(scenario), name, str(scenario.scratch)])
    return f'#!/bin/sh\nexec {command} "$@"\n'
