"""What each rank records for ``rankup verify``: after every step, hashes of all that the training consists of.

Off unless ``RANKUP_TRACE`` names a directory. There each rank appends to ``rank-R.jsonl``:

- ``begin``: before the first step of this attempt, after a resume: ``step``, ``world_size``, ``state``, ``unkept``
- ``step``: ``step`` (from 1, over all attempts), ``at`` ([epoch, step] per feed), ``batch`` (its hash) and ``rows`` (a
  short hash per sample; none where a step has several batches), ``loss`` (each number that a backward began with, as
  float.hex), ``state`` (name → SHA-256), ``unkept`` (what has a state and is in no snapshot), ``random`` (the
  generators)
- ``end``: after the last epoch, the same as ``begin``

Names of ``state``: ``model/NAME``, ``optimizer/NAME/FIELD``, ``optimizer/NAME/options``, ``kept/NAME``,
``metrics/NAME``; a second model's begin with ``1/``.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import torch

from rankup.core.records import RecordWriter
from rankup.runtime.digest import digest, rows
from rankup.runtime.interruption import VARIABLE as INTERRUPT_VARIABLE
from rankup.runtime.interruption import Interruption
from rankup.runtime.seed import rng_state
from rankup.runtime.untracked_state import find_untracked
from rankup.strategies import state as by_name

if TYPE_CHECKING:
    from rankup.runtime.run import Run

VARIABLE = "RANKUP_TRACE"


class Trace:
    """Entered around the loop over epochs; ``step`` is called after each step, ``end`` after the last epoch."""

    @classmethod
    def from_environment(cls, run: Run) -> Trace | None:
        folder = os.environ.get(VARIABLE)
        return cls(run, Path(folder)) if folder else None

    def __init__(self, run: Run, folder: Path) -> None:
        self._run = run
        self._records = RecordWriter(folder / f"rank-{run.world.rank}.jsonl")
        self._unkept = find_untracked(run)
        self._losses: list[str] = []
        self._interruption = Interruption(os.environ.get(INTERRUPT_VARIABLE, ""), run.world.rank, folder)

    def __enter__(self) -> Trace:
        self._backward = torch.Tensor.backward
        note, original = self._losses.append, self._backward

        def backward(tensor: torch.Tensor, *args: Any, **options: Any) -> Any:
            if tensor.numel() == 1:
                note(float(tensor.detach()).hex())
            return original(tensor, *args, **options)  # type: ignore[no-untyped-call]

        # A plain loop tells nobody its loss; every loop calls this.
        torch.Tensor.backward = backward  # type: ignore[assignment,method-assign]
        run = self._run
        self._records.write(
            "begin",
            world_size=run.world.world_size,
            strategy=run.strategy.name,
            precision=run.precision.name,
            **self._where(),
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        torch.Tensor.backward = self._backward  # type: ignore[method-assign]
        self._records.close()

    def step(self) -> None:
        """A step is through; then the interruption that was asked for, if it is time."""
        run = self._run
        batch = run.batch
        whole = (
            run.gradients.accumulate == 1 and not run.strategy.shards
        )  # the batch at hand is all of this rank's step
        counts = batch is not None and whole and batch.samples > 0
        self._records.write(
            "step",
            at=[list(feed.position.resume()) for feed in run.feeds],
            batch=digest(batch.value) if batch is not None else "",
            rows=rows(batch.value, batch.samples) if batch is not None and counts else [],
            loss=list(self._losses),
            random=digest(rng_state()),
            **self._where(),
        )
        self._losses.clear()
        self._interruption.step(run.steps_done)

    def end(self) -> None:
        self._records.write("end", **self._where())

    def _where(self) -> dict[str, Any]:
        unkept = {name: digest(thing.state_dict()) for name, thing in self._unkept.items()}
        return {"step": self._run.steps_done, "state": _state(self._run), "unkept": unkept}


def _state(run: Run) -> dict[str, str]:
    found: dict[str, str] = {}
    for index, (model, optimizer) in enumerate(run.prepared):
        prefix = f"{index}/" if index else ""
        saved = by_name.state(run.strategy, model, optimizer)
        found |= {f"{prefix}model/{name}": digest(tensor) for name, tensor in saved["model"].items()}
        trained = saved.get("optimizer", {"state": {}, "groups": {}})
        for name, fields in trained["state"].items():
            found |= {
                f"{prefix}optimizer/{name}/{field}": digest(value) for field, value in sorted(fields.items())
            }
        for name, options in trained["groups"].items():
            found[f"{prefix}optimizer/{name}/options"] = digest(dict(sorted(options.items())))
    found |= {
        f"kept/{name}": digest(thing.state_dict())
        for name, thing in sorted(run.registered.items())
        if not getattr(thing, "timed", False)
    }
    return found | {f"metrics/{name}": digest(value) for name, value in sorted(run.metrics.items())}
