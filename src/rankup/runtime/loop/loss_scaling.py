"""Loss scaling for fp16: small gradients survive its narrow range, and a step that overflowed is not taken.

The loss is multiplied by a power of two before backward, and gradients divided by it before clipping. When a gradient
overflowed anywhere, no rank steps and the factor halves; after 2000 good steps it doubles (Micikevicius et al. 2018,
the constants of torch's ``GradScaler``). Unlike that one it knows sharded gradients and stages of a pipeline: ranks
agree on the overflow by a maximum where they hold different gradients. It waits for the device once per step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from rankup.strategies import Strategy
from rankup.strategies.clipping import local

START = 2.0**16
DOUBLE_AFTER = 2000


class LossScaler:
    """``factor`` before backward, ``finite`` before the step. Has a ``state_dict``.

    What was multiplied by the factor is divided by it in ``gradients.py``, behind the backward that completes a step's
    gradients.
    """

    def __init__(self, scale: float = START) -> None:
        self.scale = scale
        self.good_steps = 0  # since the factor last changed
        self.skipped = 0
        self._overflowed: bool | None = (
            None  # at a step since the last change of batch; None where there was none
        )
        self._batch: object = None

    def factor(self, batch: object) -> float:
        """What to multiply the losses of ``batch`` by. It changes between batches only: one may have several steps."""
        if batch is not self._batch:
            self._batch = batch
            self._settle()
        return self.scale

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
