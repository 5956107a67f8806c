"""Buffers of replicas: batch statistics that each rank gathered alone, made one before anyone evaluates or saves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

Values = list[tuple[torch.Tensor, torch.Tensor]]  # (buffer, a value for it)


def united(model: nn.Module, world_size: int) -> Values:
    """For every buffer of ``model`` what is to be all ranks': the mean of running means and variances, else rank 0's.

    The buffers stay as they are. A collective: one for each dtype and rule, however many layers there are.
    """
    averaged = {
        id(buffer)
        for module in model.modules()
        if isinstance(module, _NormBase)
        for buffer in (module.running_mean, module.running_var)
        if buffer is not None
    }
    alike: dict[tuple[torch.dtype, bool], list[torch.Tensor]] = defaultdict(list)
    for buffer in model.buffers():
        alike[buffer.dtype, id(buffer) in averaged].append(buffer)
    values: Values = []
    for (_, mean), buffers in alike.items():
        flat = torch.cat([buffer.flatten() for buffer in buffers])
        if mean:
            dist.all_reduce(flat)
            flat.div_(world_size)
        else:
            dist.broadcast(flat, src=0)
        pieces = torch.split(flat, [buffer.numel() for buffer in buffers])
        values += [(buffer, piece.view_as(buffer)) for buffer, piece in zip(buffers, pieces, strict=True)]
    return values


def copies(models: Iterable[nn.Module]) -> Values:
    """Every buffer's value now: a batch that does not count must not move batch statistics."""
    return [(buffer, buffer.clone()) for model in models for buffer in model.buffers()]


def restore(saved: Values) -> None:
    with torch.no_grad():
        for buffer, value in saved:
            buffer.copy_(value)
