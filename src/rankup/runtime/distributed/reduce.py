"""Sums and means over ranks. Means are weighted by counts: a mean of batch means is wrong with a short batch."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
import torch.distributed as dist

from rankup.runtime.distributed.control import Control

Number = TypeVar("Number", int, float, torch.Tensor)


def reduce_sum(
    value: Number, control: Control | None, what: str = "run.sum", *, by_line: bool = True
) -> Number:
    """The sum over ranks, as the type that came in; tensors keep shape, dtype and device.

    Python numbers use the control group, so that no GPU is waited for; the sum of ints and floats is a float.
    ``by_line``: ranks must be on the same line of the script.
    """
    if control is None:
        return value
    if isinstance(value, torch.Tensor):
        control.add(f"{what} of {value.dtype} {tuple(value.shape)}", by_line=by_line)
        total = value.detach().clone(memory_format=torch.contiguous_format)  # nccl takes no other
        with control.inside(what):
            dist.all_reduce(total)
        return total
    is_float = not isinstance(value, int)
    number, whole = (float(value), 0) if is_float else (0.0, int(value))  # True counts as 1
    # An int in two parts, each of which a float64 holds exactly.
    total, high, low, floats = control.add(
        what, number, whole >> 32, whole & 0xFFFFFFFF, is_float, by_line=by_line
    )
    summed = (int(high) << 32) + int(low)
    return total + summed if floats else summed  # type: ignore[return-value]  # a float beside another rank's


def reduce_mean(value: Number, count: int, control: Control | None) -> float | torch.Tensor:
    """Σ value·count / Σ count over ranks. A rank with a count of 0 adds nothing, even if its value is NaN."""
    if control is None:
        return value
    if isinstance(value, torch.Tensor):
        scaled = value.detach() * count if count else torch.zeros_like(value)
        return reduce_sum(scaled, control, "run.mean") / reduce_sum(count, control, "run.mean")
    total, counts = control.add("run.mean", value * count if count else 0.0, count, by_line=True)
    return total / counts if counts else float("nan")


def gather(value: Any, control: Control | None, what: str) -> list[Any]:
    """What each rank gave on this line, by rank. A collective; any value that can be pickled."""
    return [value] if control is None else control.gather(what, value, by_line=True)
