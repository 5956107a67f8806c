"""All ranks start from the same model, whatever random numbers each has drawn."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn


def trainable(model: nn.Module) -> bool:
    """Whether there is a gradient to reduce: a frozen teacher has none."""
    return any(parameter.requires_grad for parameter in model.parameters())


def start_equal(model: nn.Module, *, parameters: bool = True) -> None:
    """Buffers, and ``parameters`` too, become rank 0's. A collective."""
    with torch.no_grad():
        for tensor in (*model.buffers(), *(model.parameters() if parameters else ())):
            sent = tensor.detach().contiguous()  # nccl takes no other; a copy where it lies otherwise
            dist.broadcast(sent, src=0)
            tensor.copy_(sent)
