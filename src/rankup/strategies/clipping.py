"""The norm of a gradient that lies in pieces: whole tensors, shards, and what other ranks hold."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import nn


def clip_gradients(
    parameters: Iterable[nn.Parameter], max_norm: float, *, over_ranks: bool = False
) -> torch.Tensor:
    """Scale gradients in place so that their 2-norm is ``max_norm`` at most; the norm before, a scalar tensor.

    The norm of a sharded gradient (a DTensor) is that of the whole gradient: otherwise each rank would clip by another
    norm. ``over_ranks``: ranks hold different parameters, and the norm is that of all of them.
    """
    parameters = list(parameters)
    nothing = torch.zeros((), device=parameters[0].device if parameters else None)
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not gradients and not over_ranks:
        return nothing
    norms = [whole(torch.linalg.vector_norm(gradient)) for gradient in gradients]
    total = torch.linalg.vector_norm(torch.stack(norms)) if norms else nothing
    if over_ranks:
        squared = total.square()
        dist.all_reduce(squared)
        total = squared.sqrt()
    scale = (max_norm / (total + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        local(gradient).mul_(scale)
    return total


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """All of a tensor that ranks hold in pieces. A collective where it is one."""
    gathered: torch.Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return gathered


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's piece of a sharded tensor, sharing its memory; any other tensor itself."""
    piece: torch.Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return piece
