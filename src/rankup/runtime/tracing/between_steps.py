"""What a script does between two steps of its optimizers: the batches that it takes, its losses, its evaluations, the
ends of its epochs, and the steps that a ``GradScaler`` skips.

An evaluation is what happens while the trained model is in ``eval()``, or a batch that is taken where no gradients are
computed. Its batches are no input of a step: a resume need not evaluate again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, ref

import torch
from torch import nn

from rankup.runtime.digest import digest, rows
from rankup.runtime.tracing.script_position import same_end

EPOCH, EVALUATION = "epoch", "evaluation"
_UNKNOWN = "unknown"  # samples that no sampler tells


class BetweenSteps:
    """Of one process. ``reached`` is called at the end of an epoch and after each part of an evaluation."""

    def __init__(self, reached: Callable[[str], None]) -> None:
        self._reached = reached
        # Those that have all parameters that are trained, the innermost first.
        self._models: list[ref[nn.Module]] = []
        # Iterator → of its next batches.
        self._indices: WeakKeyDictionary[Any, deque[Any]] = WeakKeyDictionary()
        self._epochs: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # iterator → its number
        self._begun = 0
        self._taken: WeakSet[Any] = WeakSet()  # iterators that gave this step's batches
        self._trained: WeakSet[Any] = WeakSet()  # that gave those of a step before
        self._scalers: WeakSet[Any] = WeakSet()
        self._steps = self._scaled = 0
        self._batches: list[tuple[str, list[Any]]] = []  # their digests, and their samples
        self._aside: list[tuple[str, list[Any]]] = []  # the first batch of an evaluation
        self._losses: list[str] = []
        self._used = 0  # so many of the batches are in the gradients
        self._dropped: list[tuple[str, list[Any]]] = []  # were in gradients that are gone
        self._evaluated = 0  # since the last step
        self._parts = 0  # since then, or since one that was skipped
        self._epoch = 0
        self._epoch_end = False

    def trains(self, models: list[nn.Module]) -> None:
        self._models = [ref(model) for model in models]

    # ------------------------------------------------------------------- what the script calls

    def begins_epoch(self, iterator: Any, _: Any = None) -> None:
        """An iterator with workers that stay is used for the next epoch."""
        self._indices.pop(iterator, None)
        self._epochs.pop(iterator, None)

    def index(self, iterator: Any, chosen: Any) -> None:
        """The sampler's answer for one of the next batches."""
        self._indices.setdefault(iterator, deque()).append(chosen)

    def batch(self, iterator: Any, batch: Any) -> None:
        samples = _samples(iterator, self._indices.get(iterator))
        if self._evaluates():
            if not self._aside:
                self._aside.append(_described(batch, samples))
            self._part_of_an_evaluation()
            return
        if iterator not in self._epochs:
            self._begun += 1
            self._epochs[iterator] = self._begun
        if not self._batches:
            self._epoch = self._epochs[iterator]
        self._taken.add(iterator)
        self._batches.append(_described(batch, samples))

    def exhausted(self, iterator: Any) -> None:
        if iterator in self._trained or iterator in self._taken:
            self._epoch_end = True
            self._reached(EPOCH)

    def evaluates(self, model: Any, _: Any = None) -> None:
        """``model.eval()`` was called."""
        if any(trained() is model for trained in self._models):
            self._part_of_an_evaluation()

    def loss(self, tensor: torch.Tensor, _: Any = None) -> None:
        if tensor.numel() == 1:
            self._losses.append(float(tensor.detach()).hex())
            # A step may use its batch twice, with a ``zero_grad`` between.
            self._batches, self._dropped = self._batches or self._dropped, []
            self._used = len(self._batches)

    def scaler(self, scaler: Any, _: Any = None) -> None:
        self._scalers.add(scaler)

    def skips(self) -> bool:
        """Whether the ``GradScaler`` skipped its step: the optimizer made none. Then the batches and losses that were
        collected for it are dropped."""
        skipped = self._steps == self._scaled
        self._scaled = self._steps
        if skipped:
            self._forget()
        return skipped

    @property
    def pending(self) -> bool:
        """Whether something was collected for gradients that no step has taken."""
        return bool(self._losses)

    def drops(self) -> None:
        """These gradients are gone, without a step: so are their batches and losses."""
        self._dropped, self._batches = self._batches[: self._used], self._batches[self._used :]
        self._losses, self._used = [], 0
        self._epoch = self._begun

    # ------------------------------------------------------------------------- what is written

    @property
    def scales(self) -> list[Any]:
        """Scale and growth tracker of each ``GradScaler`` that is on."""
        return sorted(scale for scaler in self._scalers if (scale := _scale(scaler)) is not None)

    @property
    def taken(self) -> list[str]:
        """The batches since the last step."""
        return [each for each, _ in self._batches]

    def since_step(self, expected: list[str] | None) -> dict[str, Any]:
        """The fields of a step's record; then it begins anew. ``expected``: what an earlier process took for it."""
        # A script may take all its batches where no gradients are computed: one ahead of each step.
        batches = self._batches or (self._aside if self._parts == 1 else [])
        if expected is not None:
            batches = batches[len(batches) - min(len(expected), len(batches)) :]
        digests = [each for each, _ in batches]
        if expected is not None and same_end(digests, expected):
            digests = expected
        found = {
            "batch": digest(digests),
            "batches": digests,
            "rows": [sample for _, samples in batches for sample in samples],
            "epoch": self._epoch,
            "loss": self._losses,
            **self.events(),
        }
        self._forget()
        self._steps += 1
        self._evaluated, self._epoch_end = 0, False
        return found

    def _forget(self) -> None:
        self._trained |= self._taken
        self._taken = WeakSet()
        self._batches, self._aside, self._losses, self._used, self._dropped = [], [], [], 0, []
        self._parts = 0

    def events(self) -> dict[str, Any]:
        return {"evaluated": self._evaluated, "epoch_end": self._epoch_end}

    def _evaluates(self) -> bool:
        innermost = self._models[0]() if self._models else None
        return not torch.is_grad_enabled() or (innermost is not None and not innermost.training)

    def _part_of_an_evaluation(self) -> None:
        self._evaluated += 1
        self._parts += 1
        self._reached(EVALUATION)


def _samples(iterator: Any, chosen: deque[Any] | None) -> list[Any] | str:
    """Indices of the next batch, as the sampler gave them."""
    if not chosen:
        return _UNKNOWN
    first = chosen.popleft()
    if not getattr(iterator, "_in_order", True):
        return _UNKNOWN
    indices = first if isinstance(first, (list, tuple)) else [first]
    return list(indices) if all(type(index) is int for index in indices) else _UNKNOWN


def _described(batch: Any, samples: list[Any] | str) -> tuple[str, list[Any]]:
    return digest(batch), rows(batch, _length(batch)) if isinstance(samples, str) else samples


def _scale(scaler: Any) -> tuple[float, int] | None:
    state = scaler.state_dict()
    return (float(state["scale"]), int(state["_growth_tracker"])) if state else None


def _length(batch: Any) -> int:
    """Samples of a batch, by its first tensor."""
    if isinstance(batch, torch.Tensor):
        return len(batch) if batch.dim() else 0
    inside = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, (list, tuple)) else ()
    return next((length for item in inside if (length := _length(item))), 0)
