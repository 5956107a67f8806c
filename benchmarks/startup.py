"""How long a command line takes to print its help or version: rankup, torchrun and an empty Python."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.contest import Claim, Result, take_turns
from rankup.core import shell

SEES_TORCH = """
import sys
from rankup.cli.app import main
try:
    main(["--help"])
except SystemExit:
    pass
sys.exit("torch" in sys.modules)
"""


def timed(command: Sequence[str]) -> Callable[[], float]:
    def measure() -> float:
        began = time.perf_counter()
        done = shell.run(command)
        seconds = time.perf_counter() - began
        if done.code != 0:
            raise SystemExit(f"{shell.quote(command)} failed with {done.code}:\n{done.err}")
        return seconds

    return measure


def run(quick: bool) -> Result:
    here = Path(sys.executable).parent  # the commands of this environment, which PATH may not have
    measures = {
        "python -c pass": timed([sys.executable, "-c", "pass"]),
        "rankup --help": timed([str(here / "rankup"), "--help"]),
        "rankup --version": timed([str(here / "rankup"), "--version"]),
        "torchrun --help": timed([str(here / "torchrun"), "--help"]),
    }
    take_turns(measures, 1)  # a warm-up: the files are in the page cache afterwards
    rounds = take_turns(measures, 3 if quick else 20)
    loads_torch = shell.run([sys.executable, "-c", SEES_TORCH]).code != 0
    return Result(
        "startup",
        "Starting the command line",
        "s",
        {},
        rounds,
        [
            Claim("rankup --help, seconds", "rankup --help", None, 0.15, at_most=True),
            Claim("rankup --version, seconds", "rankup --version", None, 0.2, at_most=True),
        ],
        [f"`rankup --help` imports {'torch: it must not' if loads_torch else 'no torch'}."],
    )
