"""Parameters that only a dummy batch has used: they end a step without a gradient, as in one process.

A rank without samples computes on a dummy batch, whose gradients count nothing. DDP still counts its parameters as
used, and gives them a gradient of zeros: Adam would continue by its momentum, and AdamW would decay the weight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from rankup.strategies.groups import strategy_group


class DummyGradients:
    """``counts()`` says whether this rank's gradients count in the mean over ranks."""

    def __init__(self, counts: Callable[[], bool]) -> None:
        self._counts = counts
        self._watched: set[int] = set()  # ids of parameters
        self._used: tuple[set[int], set[int]] = (set(), set())  # by a dummy batch; by samples

    def watch(self, parameters: Iterable[nn.Parameter]) -> None:
        for parameter in parameters:
            if parameter.requires_grad and id(parameter) not in self._watched:
                self._watched.add(id(parameter))
                parameter.register_post_accumulate_grad_hook(self._notes(id(parameter)))  # type: ignore[no-untyped-call]

    def before_step(self, optimizer: Optimizer, *_: Any) -> None:
        """An optimizer's pre-step hook. A collective."""
        parameters = [
            p for group in optimizer.param_groups for p in group["params"] if id(p) in self._watched
        ]
        if not parameters:
            return
        used = torch.tensor([[id(p) in ids for p in parameters] for ids in self._used], dtype=torch.int32)
        dist.all_reduce(used, op=dist.ReduceOp.MAX, group=strategy_group())
        for ids in self._used:
            ids.difference_update(map(id, parameters))
        for parameter, by_dummy, by_samples in zip(parameters, *used.tolist(), strict=True):
            if by_dummy and not by_samples:
                parameter.grad = None

    def _notes(self, key: int) -> Callable[[torch.Tensor], None]:
        def hook(parameter: torch.Tensor) -> None:
            self._used[self._counts()].add(key)

        return hook
