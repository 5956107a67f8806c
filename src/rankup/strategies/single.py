"""``none``: one process. No process group, no wrapper: a debugger sees the user's own model."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn


class Single:
    name = "none"

    def wrap(self, model: nn.Module, device: torch.device, *, find_unused_parameters: bool) -> nn.Module:
        return model

    def unwrap(self, model: nn.Module) -> nn.Module:
        return model

    def weigh(self, weight: float) -> None:
        pass  # the only rank's local mean is the global mean

    def deferred(self) -> AbstractContextManager[None]:
        return nullcontext()

    def clip(self, parameters: Iterable[nn.Parameter], max_norm: float) -> torch.Tensor:
        return nn.utils.clip_grad_norm_(parameters, max_norm)
