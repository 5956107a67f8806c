"""Loss scaling for fp16: it keeps small gradients in the narrow range, and skips a step that has overflowed.

The loss is multiplied by a power of two before backward, and gradients are divided by it before clipping. If a gradient
overflows on any rank, no rank steps and the factor is halved; after 2000 good steps it is doubled (Micikevicius et al.
2018, with the constants of torch's ``GradScaler``). Unlike ``GradScaler`` it supports sharded gradients and stages of a
pipeline: ranks with different gradients agree on the overflow by a maximum. It waits for the device once per step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from rankup.runtime.loop.backward_checks import scale_gradients
from rankup.strategies import Strategy
from rankup.strategies.clipping import local

START = 2.0**16
DOUBLE_AFTER = 2000


class LossScaler:
    """``factor`` before backward, ``finite`` before the step. Has a ``state_dict``.

    ``unscaled`` divides gradients by the factor after the backward that completes those of a step.
    """

    def __init__(self, scale: float = START) -> None:
        self.scale = scale
        self.good_steps = 0  # since the factor last changed
        self.skipped = 0
        self._overflowed: bool | None = (
            None  # at a step since the last change of batch; None where there was none
        )
        self._batch: object = None
        self._unscaled = False  # whether gradients in this body are free of the loss scale already

    def factor(self, batch: object) -> float:
        """The factor for the losses of ``batch``. It changes only between batches: a batch may have several steps."""
        if batch is not self._batch:
            self._batch = batch
            self._unscaled = self._unscaled and batch is None
            self._settle()
        return self.scale

    @contextmanager
    def unscaled(self, batch: object, models: Iterable[nn.Module]) -> Iterator[None]:
        """Around a backward, after which gradients are those without a loss scale, so that a loop may clip them. The
        scale is a power of two: to go back for another backward costs no digit."""
        scale = self.factor(batch)
        if self._unscaled:
            scale_gradients(models, scale)
        yield
        scale_gradients(models, 1.0 / scale)
        self._unscaled = True

    def finite(self, parameters: Iterable[nn.Parameter], strategy: Strategy, device: torch.device) -> bool:
        """Whether all gradients are finite, on all ranks. May be a collective, and waits for the device."""
        pieces = [local(parameter.grad) for parameter in parameters if parameter.grad is not None]
        gradients = [piece for piece in pieces if piece.numel()]  # a shard may be empty
        overflowed = torch.zeros((), device=device)
        if gradients:
            overflowed = (~nn.utils.get_total_norm(gradients, math.inf).isfinite()).float()
        strategy.agree(overflowed)
        bad = bool(overflowed.item())
        self._overflowed = bad or bool(self._overflowed)
        self.skipped += bad
        return not bad

    def _settle(self) -> None:
        if self._overflowed:
            self.scale, self.good_steps = self.scale / 2, 0
        elif self._overflowed is False:
            self.good_steps += 1
            if self.good_steps == DOUBLE_AFTER:
                self.scale, self.good_steps = self.scale * 2, 0
        self._overflowed = None

    def state_dict(self) -> dict[str, Any]:
        self._settle()
        return {"scale": self.scale, "good_steps": self.good_steps, "skipped": self.skipped}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.scale, self.good_steps = state_dict["scale"], state_dict["good_steps"]
        self.skipped, self._overflowed = state_dict["skipped"], None
