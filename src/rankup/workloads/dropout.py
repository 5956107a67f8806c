"""Dropout with masks from random bytes: on the CPU one draw per element costs more than a small layer."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class ByteDropout(nn.Module):
    """``nn.Dropout(p)`` for a ``p`` that is a whole number of 256ths: an element is dropped if its byte is below 256 p.

    Probability and scaling are the same as in ``nn.Dropout``. The random numbers differ, but come from the same
    generator. On a GPU it is ``F.dropout``.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self._below = int(p * 256)
        if self._below != p * 256 or not 0 <= p < 1:
            raise ValueError(f"p={p} is not a whole number of 256ths in [0, 1)")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training or self.p == 0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.p)
        # One draw for eight elements. random_() would not do: it leaves the sign bit of every word 0.
        words = torch.randint(-(2**63), 2**63 - 1, (-(-x.numel() // 8),), dtype=torch.int64)
        kept = words.view(torch.uint8)[: x.numel()].view(x.shape) >= self._below
        return x * kept.to(x.dtype).mul_(1 / (1 - self.p))
