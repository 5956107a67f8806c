"""All ranks start from the same model, whatever random numbers each has drawn.

The statistics of its BatchNorm may differ later.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules.batchnorm import _NormBase


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


def batch_statistics(model: nn.Module) -> Iterator[tuple[torch.Tensor, bool]]:
    """Every buffer of a BatchNorm, and whether it is a mean or a variance."""
    for module in model.modules():
        if isinstance(module, _NormBase):
            for name, buffer in module.named_buffers(recurse=False):
                yield buffer, name in ("running_mean", "running_var")
