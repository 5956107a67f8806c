"""What each rank records for ``rankup verify``: after every step, hashes of the whole state of the training.

Off unless ``RANKUP_TRACE`` names a directory. There each rank appends to ``rank-R.jsonl``:

- ``begin``: before the first step of a loop, after a resume: ``step``, ``at``, ``world_size``, ``state``,
  ``untracked``, ``variables``
- ``epoch``: an epoch's first step is about to begin: ``epoch`` (from 0), ``untracked``
- ``step``: ``step`` (from 1, over all attempts), ``at`` ([epoch, step] per feed), ``batch`` (its hash) and ``rows`` (a
  short hash per sample; none if a step has several batches), ``loss`` (each number that a backward began with, as
  float.hex), ``state`` (name → SHA-256), ``untracked`` (what has a state and is in no snapshot), ``random`` (the
  generators), ``variables`` (the script's plain ones), ``size`` (of all weights), ``pending`` (whether gradients
  remain), ``evaluated`` (batches of evaluations within this step)
- ``behind``: the code after an epoch's steps has run: ``step``, ``evaluated``
- ``end``: after the last epoch, the same as ``begin``; ``left``: instead of it, after a ``break``
- ``exit``: the interpreter ends without an error; the same as ``begin``. ``final_state.py`` writes the numbers then

The names in ``state`` are those of ``run_digests.py``. A second training in the same process continues the first one's
count of steps.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from rankup.core.records import RecordWriter
from rankup.runtime.checkpointing.registered_state import declared
from rankup.runtime.context import RunContext
from rankup.runtime.digest import digest, rows, size_of
from rankup.runtime.seed import rng_state
from rankup.runtime.tracing import final_state
from rankup.runtime.tracing.fault_injection import VARIABLE as INTERRUPT_VARIABLE
from rankup.runtime.tracing.fault_injection import FaultInjection
from rankup.runtime.tracing.run_digests import gradients_pending, state_digests
from rankup.runtime.unregistered.marks import FUNCTION
from rankup.runtime.unregistered.walk import Walk, codes_of_script, roots

SAVES_VARIABLE = "RANKUP_SNAPSHOT_STEPS"  # steps after which to save, whatever the script says: "3,7,12"

_latest: Trace | None = None  # of this process; it writes the last record at exit


class Trace:
    """Of one loop, entered around it. ``step`` is called after each step, ``end`` after the last epoch, ``left`` after
    a break. ``before_freezing`` waits until what is being saved is durable."""

    # Of all trainings of this process.
    _runs: list[RunContext]
    _records: RecordWriter
    _interruption: FaultInjection

    def __init__(self, run: RunContext, folder: Path, before_freezing: Callable[[], None]) -> None:
        global _latest
        before, rank = _latest, run.world.rank
        self._run = run
        self._folder = folder
        if before is not None:
            self._runs, self._records = before._runs, before._records
            self._interruption = before._interruption
        else:
            self._runs = []
            self._records = RecordWriter(folder / f"rank-{rank}.jsonl")
            self._interruption = FaultInjection(os.environ.get(INTERRUPT_VARIABLE, ""), rank, folder)
            atexit.register(_at_exit)
        self._interruption.before_freezing = before_freezing
        if run not in self._runs:
            self._runs.append(run)
        # Trainings of this process before this one have had these steps.
        self._earlier_steps = sum(other.global_step for other in self._runs[: self._runs.index(run)])
        self._codes = codes_of_script()
        self._losses: list[str] = []
        self._evaluated = 0
        self._saves = {int(step) for step in os.environ.get(SAVES_VARIABLE, "").split(",") if step}
        _latest = self

    def __enter__(self) -> Trace:
        self._backward = torch.Tensor.backward
        note, original = self._losses.append, self._backward

        def backward(tensor: torch.Tensor, *args: Any, **options: Any) -> Any:
            if tensor.numel() == 1:
                note(float(tensor.detach()).hex())
            return original(tensor, *args, **options)  # type: ignore[no-untyped-call]

        # A plain loop does not pass its loss to rankup, but every loop calls this.
        torch.Tensor.backward = backward  # type: ignore[assignment,method-assign]
        run = self._run
        self._records.write(
            "begin",
            world_size=run.world.world_size,
            strategy=run.strategy.name,
            exact=run.strategy.exact,
            precision=run.precision.name,
            at=self._at(),
            **self._where(),
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        torch.Tensor.backward = self._backward  # type: ignore[method-assign]

    @property
    def save_due(self) -> bool:
        """Whether ``RANKUP_SNAPSHOT_STEPS`` names the step that was done last."""
        return self._step in self._saves

    def epoch_begins(self) -> None:
        """The first batch of an epoch is about to be handed out; also in the middle of one that is resumed."""
        self._records.write("epoch", epoch=self._at()[-1][0], step=self._step, **self._unregistered())

    def step(self) -> None:
        """Record a step; then interrupt the run, if that is due."""
        self._interruption.record_follows()
        run = self._run
        batch = run.batch
        # Whether the batch at hand is all of this rank's step.
        whole = run.gradients.accumulate == 1 and not run.strategy.by_parts
        counts = batch is not None and whole and batch.samples > 0
        self._records.write(
            "step",
            at=self._at(),
            batch=digest(batch.value) if batch is not None else "",
            rows=rows(batch.value, batch.samples) if batch is not None and counts else [],
            loss=list(self._losses),
            evaluated=self._counted(),
            size=size_of(p for model, _ in run.prepared for p in model.parameters()),
            pending=gradients_pending(run),
            **self._where(),
        )
        self._losses.clear()
        self._interruption.step(self._step)

    def evaluation(self) -> None:
        """A batch of an evaluation is done."""
        self._evaluated += 1
        self._interruption.evaluation(self._step)

    def behind(self) -> None:
        """The code after an epoch's steps has run, and nothing of it is saved yet."""
        self._records.write("behind", step=self._step, evaluated=self._counted())
        self._interruption.reached("behind", self._step)

    def end(self) -> None:
        self._records.write("end", **self._where())

    def left(self) -> None:
        """The loop was left by a break."""
        self._records.write("left", **self._where())

    def exit(self) -> None:
        self._interruption.reached("exit", self._step)
        self._records.write("exit", evaluated=self._counted(), **self._where())
        self._records.close()
        if self._run.world.is_main:
            final_state.write(self._runs, self._folder)

    @property
    def _step(self) -> int:
        done: int = self._earlier_steps + self._run.global_step
        return done

    def _at(self) -> list[list[int]]:
        return [list(feed.position.resume()) for feed in self._run.feeds]

    def _counted(self) -> int:
        count, self._evaluated = self._evaluated, 0
        return count

    def _where(self) -> dict[str, Any]:
        return {
            "step": self._step,
            "state": state_digests(self._run),
            "random": digest(rng_state()),
            **self._unregistered(),
        }

    def _unregistered(self) -> dict[str, dict[str, str]]:
        """What the script holds and no snapshot has: ``untracked``, the state of objects by their class and path, and
        ``variables``, plain values by their path, and functions under other names than their own."""
        known, held, own = declared(self._run)
        walk = Walk(known, held).look(roots(self._codes, own))
        marks = walk.found.items()
        functions = {
            path: mark.digest
            for path, mark in walk.by_path().items()
            if mark.named == FUNCTION and path.rpartition(".")[2] != mark.text
        }
        kinds = {path: type(thing).__name__ for path, thing in walk.objects.items()}
        return {
            "untracked": {
                f"{kinds.get(path, mark.text.split(' ')[0])} {path}": mark.digest
                for path, mark in marks
                if not mark.plain
            },
            "variables": functions | {path: mark.digest for path, mark in marks if mark.plain},
        }


def _at_exit() -> None:
    # Python sets last_type before it ends with an uncaught exception; any other exit is a success.
    if _latest is not None and getattr(sys, "last_type", None) is None:
        _latest.exit()
