"""Runs a study: each turn as a run of its own, with its own processes and run directory, one after the other."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rankup.core.findings import Finding, Severity
from rankup.errors import RankupError
from rankup.jobs.interrupts import Interrupts
from rankup.jobs.local import LocalJob, Result, View, execute
from rankup.scale.grid import Turn, count_of
from rankup.scale.measured import Measured, read_run


class Progress(View, Protocol):
    """Who looks on: told of each turn, and shown what the ranks print meanwhile."""

    def begins(self, number: int, total: int, turn: Turn) -> None: ...

    def ended(self, measured: Measured) -> None: ...


@dataclass(frozen=True)
class Study:
    """What was measured, in the order of running, without warm-ups. ``failure``: of the run that ended the study."""

    runs: list[Measured]
    failure: Finding | None
    folder: Path


def measure(
    turns: Sequence[Turn],
    job_of: Callable[[Turn], LocalJob],
    progress: Progress,
    *,
    execute: Callable[[LocalJob, View], Result] = execute,
) -> Study:
    """Run all ``turns`` in order, and stop at the first run that fails.

    Raises what keeps a run from starting, the failure of a warm-up (nothing was measured yet), and ``interrupted``.
    ``folder`` of the study is named after its first run, and not made here.
    """
    runs: list[Measured] = []
    folder = Path()
    with Interrupts() as between:
        for number, turn in enumerate(turns, 1):
            progress.begins(number, len(turns), turn)
            result = execute(job_of(turn), progress)
            if number == 1:
                folder = result.run.path.with_name(f"scale-{result.run.path.name}")
            signum = between.first or (result.code - 128 if result.code > 128 else None)
            if signum is not None:
                raise _interrupted(signum, number - 1, turns, result)
            try:
                measured = _measured(turn, result)
            except RankupError as error:
                if turn.repeat == 0:
                    raise
                return Study(runs, _finding(error), folder)
            progress.ended(measured)
            if turn.repeat > 0:
                runs.append(measured)
    return Study(runs, None, folder)


def _measured(turn: Turn, result: Result) -> Measured:
    if result.code == 0:
        return read_run(turn, result.run)
    which = f"repeat {turn.repeat}" if turn.repeat else "the warm-up"
    error = result.error
    raise RankupError(
        error.code if error else "run-stopped",
        f"{which} of {count_of(turn.processes)} failed: " + (error.message if error else "it was stopped"),
        context=error.context if error else str(result.run.path),
        hint=error.hint if error else "",
        exit_code=1,
    )


def _finding(error: RankupError) -> Finding:
    return Finding(error.code, Severity.ERROR, error.message, place=error.context, fix=error.hint)


def _interrupted(signum: int, done: int, turns: Sequence[Turn], result: Result) -> RankupError:
    return RankupError(
        "interrupted",
        f"ended by {signal.Signals(signum).name} after {done} of {len(turns)} runs",
        context=f"their records stay in {result.run.path.parent}",
        exit_code=128 + signum,
    )
