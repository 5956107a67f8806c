"""What every strategy answers. A strategy knows tensors and process groups, never data sets or files."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

import torch
from torch import nn


@runtime_checkable
class Strategy(Protocol):
    """The life of a step: ``weigh``, then forward and backward, inside ``deferred`` but for the last micro-batch."""

    name: str

    def wrap(self, model: nn.Module, device: torch.device, *, find_unused_parameters: bool) -> nn.Module:
        """The model to call in the training loop. ``model`` is on ``device`` already."""
        ...

    def unwrap(self, model: nn.Module) -> nn.Module:
        """The user's own module inside what ``wrap`` returned."""
        ...

    def weigh(self, weight: float) -> None:
        """How much this rank's gradient counts in the mean over ranks, from the next backward on.

        ``n · W / N`` for ``n`` local samples of a global batch of ``N`` on ``W`` ranks makes local means into the
        global mean; 1 where all hold equally many; 0 makes sure that nothing of this rank's gradient is used, not
        even a NaN.
        """
        ...

    def deferred(self) -> AbstractContextManager[None]:
        """While inside, gradients gather on their rank: for all micro-batches of a window but the last."""
        ...

    def clip(self, parameters: Iterable[nn.Parameter], max_norm: float) -> torch.Tensor:
        """Scale the gradients down to a norm of ``max_norm``; the norm before, a scalar tensor."""
        ...
