"""Parameters that only a dummy batch has used: they end a step without a gradient, as in one process.

A rank without samples computes on a dummy batch, whose gradients count nothing. DDP still counts its parameters as
used, and gives them a gradient of zeros: Adam would continue by its momentum, and AdamW would decay the weight.

All ranks know before a backward whether some rank has a dummy batch in this step: from the size of the batch, or by the
exchange of ``run.backward(count=)``. In all other steps nothing is noted, and nothing exchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from rankup.strategies.exchange import on_some_rank


class DummyGradients:
    """``counts()`` says whether this rank's gradients count in the mean over ranks."""

    def __init__(self, counts: Callable[[], bool]) -> None:
        self._counts = counts
        self._watched: dict[int, nn.Parameter] = {}
        self._used: tuple[set[int], set[int]] = (set(), set())  # ids: by a dummy batch; by samples
        self._expected = False  # whether some rank has a dummy batch in this step
        self._steps = 0  # that had one
        self._done: dict[
            int, int
        ] = {}  # optimizer → the same at its last step: a later one has what was used since
        self._handles: list[Any] = []

    def watch(self, parameters: Iterable[nn.Parameter]) -> None:
        for parameter in parameters:
            if parameter.requires_grad and id(parameter) not in self._watched:
                self._watched[id(parameter)] = parameter
                if self._handles:
                    self._hook(parameter)

    def join(self, optimizer: Optimizer) -> None:
        """Before its steps it looks at what was used."""
        if self._watched and id(optimizer) not in self._done:
            self._done[id(optimizer)] = self._steps
            optimizer.register_step_pre_hook(self._before_step)

    def expect(self, expected: bool) -> None:
        """A step begins in which some rank has a dummy batch, or none has. The same on all ranks."""
        self._expected = expected
        self._steps += expected
        self._note_or_not()

    def _note_or_not(self) -> None:
        """Hooks, which cost a call for each parameter, are there only as long as some optimizer needs their notes."""
        if not self._expected and all(steps == self._steps for steps in self._done.values()):
            while self._handles:
                self._handles.pop().remove()
        elif not self._handles:
            for parameter in self._watched.values():
                self._hook(parameter)

    def _hook(self, parameter: nn.Parameter) -> None:
        hook = self._notes(id(parameter))
        self._handles.append(parameter.register_post_accumulate_grad_hook(hook))  # type: ignore[no-untyped-call]

    def _before_step(self, optimizer: Optimizer, *_: Any) -> None:
        """A collective, if some rank had a dummy batch since the last step of ``optimizer``."""
        if not self._expected and self._done[id(optimizer)] == self._steps:
            return
        parameters = [
            p for group in optimizer.param_groups for p in group["params"] if id(p) in self._watched
        ]
        used = on_some_rank(id(p) in ids for ids in self._used for p in parameters)
        for ids in self._used:
            ids.difference_update(map(id, parameters))
        count = len(parameters)
        for parameter, by_dummy, by_samples in zip(parameters, used[:count], used[count:], strict=True):
            if by_dummy and not by_samples:
                parameter.grad = None
        self._done[id(optimizer)] = self._steps
        self._note_or_not()

    def _notes(self, key: int) -> Callable[[torch.Tensor], None]:
        def hook(parameter: torch.Tensor) -> None:
            self._used[self._counts()].add(key)

        return hook
