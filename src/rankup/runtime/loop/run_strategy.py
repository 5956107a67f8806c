"""``run.strategy``: what differs between strategies, for loops that serve all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from rankup.runtime.context import RunContext


class RunStrategy:
    """The strategy in force. ``name``: ``"ddp"``."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self.name = run.strategy.name

    def forward_backward(
        self, model: nn.Module, loss: Callable[[Any, Any], torch.Tensor], x: Any, y: Any
    ) -> tuple[Any, Any]:
        """``loss(model(x), y)`` and its backward under every strategy, also a pipeline, where they are one call.

        (loss, output); (None, None) on ranks whose stage does not see them, whose ``run.batch.samples`` is 0.
        """
        return self._run.gradients.forward_backward(self._run.batch, model, loss, x, y)
