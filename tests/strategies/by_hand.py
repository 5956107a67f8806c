"""A strategy from one file, as a user of the protocol would write it: replicas whose gradients are averaged by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

import torch
import torch.distributed as dist
from torch import nn

from rankup.strategies.base import Refusal, Refusals, Strategy
from rankup.strategies.replicas import start_equal


class ByHand(Strategy):
    """Each parameter's gradient is averaged over the ranks as soon as backward has added it up."""

    name = "by-hand"
    refuses: ClassVar[Refusals] = {
        "lbfgs": Refusal("not-by-hand", "{strategy} has no closures", "another optimizer"),
        "clip": Refusal("not-by-hand", "{strategy} does not clip", "leave clip= out"),
    }

    def __init__(self) -> None:
        self._weight = 1.0
        self._reduces = True

    def wrap(self, model: nn.Module, device: torch.device, *, find_unused_parameters: bool) -> nn.Module:
        start_equal(model)
        for parameter in model.parameters():
            parameter.register_hook(self._weighed)
            parameter.register_post_accumulate_grad_hook(self._average)
        return model

    def set_gradient_scale(self, weight: float) -> None:
        self._weight = weight

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        self._reduces = False
        yield
        self._reduces = True

    def _weighed(self, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * self._weight if self._weight else torch.zeros_like(gradient)

    def _average(self, parameter: torch.Tensor) -> None:
        if self._reduces:
            assert parameter.grad is not None
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
