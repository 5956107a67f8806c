"""One attempt: a traced run that ends by itself, is asked to stop, or freezes and is killed."""

from __future__ import annotations

import functools
import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from rankup.core.rundir import PROGRESS_VARIABLE
from rankup.errors import RankupError
from rankup.resolve.here import resolve_here
from rankup.resolve.resolved import Resolved
from rankup.run.execute import Result, View, execute
from rankup.verify.files import last_lines, lost_lines
from rankup.verify.killer import Killer, how_it_ended
from rankup.verify.trace_reader import FROZEN, SEVERAL, AttemptTrace, read_attempt

# Save at the end only: saving must not change the uninterrupted training.
AT_THE_END = f"{10**9} steps"
STARTUP = Path(__file__).parents[1] / "runtime" / "tracing" / "startup"  # its sitecustomize.py records
# A proof reports to no server.
NO_TRACKING = {"WANDB_MODE": "disabled", "MLFLOW_TRACKING_URI": ""}
STOPPED = 75  # the exit code of a run that saved and ended before its training was done


class AttemptFailed(RankupError):
    """The script, or rankup in it, ended with an error."""


class ProofStopped(RankupError):
    """A signal from outside ended an attempt, and the proof with it."""


class AttemptView(Protocol):
    """Shows progress: called before, during and after each attempt, and before all those that are interrupted."""

    def follows(self, interruptions: int, seconds: float) -> None: ...

    def begins(self, what: str, processes: int) -> None: ...

    def tick(self) -> None: ...

    def ended(self, how: str) -> None: ...


@dataclass(frozen=True)
class AttemptSpec:
    """Describes one attempt. ``saves``: the steps after which it saves, besides the end. ``interrupt``: the value of
    RANKUP_INTERRUPT. ``steps``: train to the end of this step; None: to the end of the training. ``env``: besides.
    ``resumed``: start it as its user would after a kill. ``final_step``: the last step of the uninterrupted
    training."""

    what: str
    processes: int
    snapshots: Path
    steps: int | None
    saves: tuple[int, ...] = ()
    interrupt: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    resumed: bool = False
    final_step: int | None = None


@dataclass(frozen=True)
class AttemptEnd:
    """``attempt``: its trace, or None. ``killed``: verify killed it. ``stopped``: why something else stopped it, so
    that another attempt must continue. ``signalled``: verify sent it a signal, and what it did then."""

    attempt: AttemptTrace | None
    killed: bool = False
    signalled: str = ""
    stopped: str = ""


_execute = functools.partial(execute, closed_input=True)  # a proof asks nobody


class Attempts:
    """Starts attempts of ``job`` one after another, each below ``folder`` with its trace and its run directory.
    ``env``: what shortens them; ``limit``: the most seconds that one may take; ``resume_args``: gives the arguments
    with which its user starts the script after a kill. ``alone``: one process is started as ``python script.py`` would,
    without the variables of a launcher."""

    def __init__(
        self,
        job: Resolved,
        folder: Path,
        progress: AttemptView,
        *,
        env: Mapping[str, str] | None = None,
        limit: float | None = None,
        resume_args: Callable[[], Sequence[str]] = tuple,
        alone: bool = False,
        execute: Callable[[Resolved, View], Result] = _execute,
    ) -> None:
        self._job = job
        self._env = env or {}
        self._limit = limit
        self._resume_args = resume_args
        self._alone = alone
        self.patience: float | None = None  # in seconds, with an attempt that resumes
        self.folder = folder
        self._progress = progress
        self._execute = execute
        self.count = 0
        self.seconds = 0.0  # of the last attempt
        self.stopped: ProofStopped | None = None  # why no other attempt follows

    def run(self, ask: AttemptSpec) -> AttemptEnd:
        """Run one attempt until it ends.

        Raises RankupError if it fails by itself, if it traces no step, or if a signal ends it.
        """
        try:
            return self._run(ask)
        except AttemptFailed as failed:
            self._progress.ended(f"failed: {failed.message}")
            raise
        except ProofStopped as stopped:
            self._progress.ended(stopped.message)
            self.stopped = stopped
            raise

    def announce(self, interruptions: int) -> None:
        """Show how many interruptions follow, each in an attempt of its own, and one attempt to the end."""
        self._progress.follows(interruptions, self.seconds)

    def _run(self, ask: AttemptSpec) -> AttemptEnd:
        self.count += 1
        trace = self.folder / f"trace-{self.count:02d}"
        trace.mkdir(mode=0o700, parents=True)
        self._progress.begins(ask.what, ask.processes)
        stop = f";stop {ask.steps} 0" if ask.steps is not None else ""
        env = {
            PROGRESS_VARIABLE: "off",
            "RANKUP_TRACE": str(trace),
            "RANKUP_INTERRUPT": ask.interrupt + stop,
            "RANKUP_TRACE_LAST": str(ask.steps or 0),  # of any script
            "RANKUP_SNAPSHOT_DIR": str(ask.snapshots),
            "RANKUP_SNAPSHOT_EVERY": AT_THE_END,
            "RANKUP_SNAPSHOT_STEPS": ",".join(map(str, ask.saves)),
            "RANKUP_WRITTEN": str(self.folder),
            "RANKUP_TRACE_ALONE": str(int(self._alone and ask.processes == 1)),
            "PYTHONPATH": self._python_path(),
            **NO_TRACKING,
            **self._env,
            **ask.env,
        }
        limit = self._limit or (self.patience if ask.resumed else None)
        killer = Killer(trace / FROZEN, limit, self._progress.tick)
        flags = {"name": "attempts", "nodes": 1, "nproc_per_node": ask.processes, "runs_root": self.folder}
        added = tuple(self._resume_args()) if ask.resumed else ()
        command = (*self._job.spec.command, *added) if added else ()
        job = resolve_here({**flags, "env": env}, earlier=self._job, command=command)
        began = time.monotonic()
        result = self._execute(job, killer)
        self.seconds = time.monotonic() - began
        if killer.late and self._limit is None:
            raise AttemptFailed(
                "hangs",
                f"attempt {self.count} ({ask.what}) had not ended after {self.seconds:.0f} s",
                context=str(result.run.logs),
                hint=f"many times longer than without an interruption; the logs are in {result.run.logs}",
            )
        if killer.late:
            raise too_long(self.seconds, f"attempt {self.count} ({ask.what})", self._limit)
        if (trace / SEVERAL).exists():
            raise RankupError(
                "several-trainings",
                "the script trains in several processes that have the same rank",
                context=str(result.run.logs),
                hint="verify follows one training: start each by itself, or as the ranks of one process group",
                exit_code=1,
            )
        self._check(result, ask, killed=killer.killed or bool(killer.signal))
        attempt = read_attempt(trace)
        if attempt is not None:
            logs = result.run.logs
            attempt = replace(attempt, printed=last_lines(logs), lost=lost_lines(logs))
        if killer.signal:
            at_end = attempt is not None and attempt.final_step == ask.final_step
            how = how_it_ended(result.run, killer, at_end=at_end)
            self._progress.ended(how)
            return AttemptEnd(attempt, killer.killed, how)
        if attempt is None and ask.resumed and not killer.killed:
            self._progress.ended("ended without a step")
            return AttemptEnd(None)
        if attempt is None and not killer.killed:
            raise RankupError(
                "nothing-traced",
                "the script trained no step that could be traced",
                context=str(result.run.logs),
                hint="verify sees loops over run.steps(…) or run.epochs(…), and the steps of torch's optimizers in a "
                "Python that has rankup: docs/reference/verify.md",
            )
        where = f"at step {attempt.final_step}" if attempt else "before its first step"
        if killer.killed:
            self._progress.ended(f"killed {where}")
            return AttemptEnd(attempt, killed=True)
        assert attempt is not None
        stopped = self._stopped(result, ask, attempt)
        self._progress.ended(f"stopped {where}" if stopped else f"ended {where}")
        return AttemptEnd(attempt, stopped=stopped)

    def _python_path(self) -> str:
        own = self._job.spec.env.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        return os.pathsep.join(filter(None, (str(STARTUP), own)))

    def _check(self, result: Result, ask: AttemptSpec, *, killed: bool) -> None:
        number = result.signal or (result.code - 128 if result.code > 128 else None)
        if number is not None:
            raise ProofStopped(
                "interrupted",
                f"ended by {signal.Signals(number).name} in attempt {self.count}: {ask.what}",
                hint=f"nothing is proved; the traces are in {self.folder}",
                exit_code=128 + number,
            )
        if result.code in (0, STOPPED) or killed:
            return
        error = result.run.left_error() or result.error
        if error is not None and (refused := self._refused(error)):
            raise refused
        raise AttemptFailed(
            error.code if error else "attempt-failed",
            f"attempt {self.count} ({ask.what}) failed: {error.message if error else f'code {result.code}'}",
            context=error.context if error else str(result.run.logs),
            hint=error.hint if error else "",
            exit_code=error.exit_code if error else 1,
        )

    def _refused(self, error: RankupError) -> RankupError | None:
        """What no attempt can do here, by the words of its error."""
        kept = self.folder / "refused.txt"  # runtime/tracing/written_files.py
        if kept.exists():
            path, why = kept.read_text().splitlines()[:2]
            return RankupError(
                "file-not-kept",
                f"the script is about to change a file of which verify can keep no copy: {why}",
                context=path,
                hint="nothing was changed: move the file away, or run verify in a copy of the folder",
                exit_code=1,
            )
        for code, words, message, hint in _REFUSED:
            if any(word in error.message for word in words):
                said = f"{message}: {error.message}"
                return RankupError(code, said, context=error.context, hint=hint, exit_code=1)
        return None

    def _stopped(self, result: Result, ask: AttemptSpec, attempt: AttemptTrace) -> str:
        """Why the attempt was stopped although verify did not ask for it; "" if it reached its end."""
        if result.code == 0 or (ask.steps is not None and attempt.final_step >= ask.steps):
            # Ranks that a script has started itself end without a word.
            if attempt.ended or attempt.any_script:
                return ""
            raise RankupError(
                "no-end",
                f"attempt {self.count} ({ask.what}): a Python interpreter did not end normally",
                context=str(result.run.logs),
                hint="the final state is unknown, so verify cannot compare it: remove os._exit() from the script, or "
                "find out what killed the process",
                exit_code=1,
            )
        details = result.run.path / "outcome.json"
        asked = json.loads(details.read_text()).get("stop") if details.exists() else None
        if asked is None:
            raise ProofStopped(
                "interrupted",
                f"a signal that verify did not send stopped attempt {self.count}: {ask.what}",
                context=str(result.run.logs),
                hint="nothing is proved: run verify again, and send no signals to its processes",
                exit_code=1,
            )
        return str(asked)


_REFUSED = (
    (
        "asks-for-input",
        ("EOFError: EOF when reading a line",),
        "the script asks for input, and a proof has none",
        "give the answer by an argument of the script, or by a variable",
    ),
    (
        "needs-gpu",
        (
            "Torch not compiled with CUDA enabled",
            "has no attribute '_cuda_",  # of torch._C
            "No CUDA GPUs are available",
            "Found no NVIDIA driver",
            "CUDA driver initialization failed",
            "no NVIDIA GPU",
            "torch.cuda.is_available() is False",
        ),
        "the script needs a GPU, and there is none here",
        "run verify where the script can train, in a job or in an interactive allocation",
    ),
)


def too_long(seconds: float, what: str, limit: float | None) -> RankupError:
    return RankupError(
        "proof-too-long",
        f"{what} took {seconds:.0f} s, and may take {limit or 0:.0f} s",
        context="--budget",
        hint="use a larger --budget; a script without run.steps(…) or run.epochs(…) cannot be cut short",
        exit_code=1,
    )
