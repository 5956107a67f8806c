"""Runs a study: each turn as a run of its own, with its own processes and run directory, one after the other."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rankup.errors import RankupError
from rankup.findings.error import findings_of
from rankup.findings.finding import Finding
from rankup.resolve.resolved import Resolved
from rankup.run.execute import Result, View, execute
from rankup.scale.grid import Trial, count_of
from rankup.scale.measured import Measured, read_run


class StudyView(View, Protocol):
    """Who looks on: told of each turn, and shown what the ranks print meanwhile."""

    def begins(self, number: int, total: int, turn: Trial) -> None: ...

    def ended(self, measured: Measured) -> None: ...


@dataclass(frozen=True)
class Study:
    """What was measured, in the order of running, without warm-ups. ``failure``: of the run that ended the study."""

    runs: list[Measured]
    failure: Finding | None
    folder: Path


def measure(
    turns: Sequence[Trial],
    job_of: Callable[[Trial], Resolved],
    progress: StudyView,
    *,
    execute: Callable[[Resolved, View], Result] = execute,
) -> Study:
    """Run all ``turns`` in order, and stop at the first run that fails.

    Raises what keeps a run from starting, the failure of a warm-up (nothing was measured yet), and ``interrupted``.
    ``folder`` of the study is named after its first run, and not made here.
    """
    runs: list[Measured] = []
    folder = Path()
    done = 0
    try:
        for turn in turns:
            progress.begins(done + 1, len(turns), turn)
            result = execute(job_of(turn), progress)
            if result.code > 128:
                raise _interrupted(result.code - 128, done, len(turns))
            if done == 0:
                folder = result.run.path.with_name(f"scale-{result.run.path.name}")
            try:
                measured = _measured(turn, result)
            except RankupError as error:
                if turn.repeat == 0:
                    raise
                return Study(runs, findings_of(error)[0], folder)
            progress.ended(measured)
            done += 1
            if turn.repeat > 0:
                runs.append(measured)
    except KeyboardInterrupt:  # while no process of a run is there
        raise _interrupted(signal.SIGINT, done, len(turns)) from None
    return Study(runs, None, folder)


def _measured(turn: Trial, result: Result) -> Measured:
    if result.code == 0:
        return read_run(turn, result.run)
    which = f"repeat {turn.repeat}" if turn.repeat else "the warm-up"
    error = result.run.left_error() or result.error
    error = error or RankupError("run-stopped", "it was stopped", context=str(result.run.path), exit_code=1)
    raise RankupError(
        error.code,
        f"{which} of {count_of(turn.processes)} failed: {error.message}",
        context=error.context,
        hint=error.hint,
        exit_code=error.exit_code,
    )


def _interrupted(signum: int, done: int, total: int) -> RankupError:
    return RankupError(
        "interrupted",
        f"ended by {signal.Signals(signum).name} after {done} of {total} runs",
        hint="the records of those that ended stay in their run directories",
        exit_code=128 + signum,
    )
