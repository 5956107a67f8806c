"""Buffers of replicas: batch statistics that each rank gathered alone, made one before anyone evaluates or saves."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules.batchnorm import _NormBase


def synchronise(models: Iterable[nn.Module], world_size: int) -> None:
    """Average running means and variances over ranks; every other buffer becomes rank 0's. A collective."""
    for model in models:
        averaged = [
            buffer
            for module in model.modules()
            if isinstance(module, _NormBase)
            for buffer in (module.running_mean, module.running_var)
            if buffer is not None
        ]
        known = {id(buffer) for buffer in averaged}
        for buffer in averaged:
            dist.all_reduce(buffer)
            buffer.div_(world_size)
        for buffer in model.buffers():
            if id(buffer) not in known:
                dist.broadcast(buffer, src=0)


def copies(models: Iterable[nn.Module]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """(buffer, its value now) for every buffer: a batch that does not count must not move batch statistics."""
    return [(buffer, buffer.clone()) for model in models for buffer in model.buffers()]


def restore(saved: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> None:
    with torch.no_grad():
        for buffer, value in saved:
            buffer.copy_(value)
