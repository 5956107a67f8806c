"""Numbers over all ranks. Sums are sums; means weigh by counts, since a mean of batch means is wrong on a short one."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
import torch.distributed as dist

Number = TypeVar("Number", int, float, torch.Tensor)


def reduce_sum(value: Number, control: dist.ProcessGroup | None) -> Number:
    """The sum over ranks, as the type that came in; tensors keep shape, dtype and device.

    Python numbers travel as float64 or int64 on the control group, so that no GPU is waited for.
    """
    if control is None:
        return value
    if isinstance(value, torch.Tensor):
        total = value.detach().clone(memory_format=torch.contiguous_format)  # nccl takes no other
        dist.all_reduce(total)
        return total
    kind = int if isinstance(value, int) else float  # True counts as 1
    packed = torch.tensor(value, dtype=torch.int64 if kind is int else torch.float64)
    dist.all_reduce(packed, group=control)
    return kind(packed.item())


def reduce_mean(value: Number, count: int, control: dist.ProcessGroup | None) -> float | torch.Tensor:
    """Σ value·count / Σ count over ranks. A rank with a count of 0 adds nothing, even if its value is NaN."""
    if control is None:
        return value
    if isinstance(value, torch.Tensor):
        scaled = value.detach() * count if count else torch.zeros_like(value)
        return reduce_sum(scaled, control) / reduce_sum(count, control)
    total = torch.tensor([value * count if count else 0.0, count], dtype=torch.float64)
    dist.all_reduce(total, group=control)
    return float(total[0] / total[1])


def gather(value: Any, control: dist.ProcessGroup | None) -> list[Any]:
    """What each rank gave, by rank. A collective; any value that can be pickled."""
    if control is None:
        return [value]
    everyone: list[Any] = [None] * dist.get_world_size(control)
    dist.all_gather_object(everyone, value, group=control)
    return everyone
