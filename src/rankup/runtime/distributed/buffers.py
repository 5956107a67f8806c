"""Buffers of replicas: each rank collects its own batch statistics; they are averaged before an evaluation or a save.

Running means and variances of BatchNorm are averaged over ranks. Any other buffer must be the same on all ranks: if a
forward pass updates it from its rank's samples (a queue, a codebook, other statistics), only rank 0's would be used,
and what the other ranks saw would be lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import nn

from rankup.errors import RankupError
from rankup.strategies.replicas import batch_statistics

Values = list[tuple[torch.Tensor, torch.Tensor]]  # (buffer, a value for it)


def averaged_buffers(model: nn.Module, world_size: int) -> Values:
    """For every buffer of ``model`` its value for all ranks: the mean of running means and variances, else rank 0's.

    The buffers are not changed. A collective: a few for each dtype, for any number of layers. Raises RankupError
    ``buffers-differ``, on all ranks, for a buffer that is neither averaged nor the same.
    """
    averaged = {id(buffer) for buffer, is_mean in batch_statistics(model) if is_mean}
    counted = {id(buffer) for buffer, is_mean in batch_statistics(model) if not is_mean}
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
    _check_equal(model, [(b, v) for b, v in values if id(b) not in averaged | counted])
    return values


def _check_equal(model: nn.Module, values: Values) -> None:
    """An error on all ranks if one has another value than rank 0. A collective, if there are any values."""
    if not values:
        return
    device = values[0][0].device
    differs = [not torch.equal(_bits(buffer), _bits(value)) for buffer, value in values]
    flags = torch.tensor(differs, dtype=torch.int32, device=device)
    dist.all_reduce(flags, op=dist.ReduceOp.MAX)
    wrong = [id(buffer) for (buffer, _), flag in zip(values, flags.tolist(), strict=True) if flag]
    if wrong:
        names = [name for name, buffer in model.named_buffers() if id(buffer) in wrong]
        raise RankupError(
            "buffers-differ",
            f"the buffer {names[0]} of the model is not the same on all ranks"
            + (f", nor are {len(names) - 1} more" if names[1:] else ""),
            hint="a forward pass updates it from its own rank's samples, and only BatchNorm's statistics are averaged. "
            "Update it from run.gather(samples), which gives those of all ranks",
            exit_code=1,
        )


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """A NaN is not equal to itself."""
    return tensor.detach().contiguous().flatten().view(torch.uint8)


def copies(models: Iterable[nn.Module]) -> Values:
    """Copies of the batch statistics: a batch that does not count must not change them. Other buffers change as on the
    ranks whose batches count: a counter of forward passes, the vectors of a spectral norm."""
    return [(buffer, buffer.clone()) for model in models for buffer, _ in batch_statistics(model)]


def restore(saved: Values) -> None:
    with torch.no_grad():
        for buffer, value in saved:
            buffer.copy_(value)
