"""Sums and means over ranks. Means are weighted by counts: a mean of batch means is wrong with a short batch.

Tensors are added up in float64 on the CPU, and elsewhere in float32 at least, and only the result is rounded to their
dtype: a mean in bfloat16 times its count has lost digits already, and one in float16 overflows.
"""

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

    Python numbers are exchanged on the host, so that no GPU is waited for; the sum of ints and floats is a float.
    ``by_line``: ranks must be on the same line of the script.
    """
    if control is None:
        return value
    if isinstance(value, torch.Tensor):
        control.add(f"{what} of {value.dtype} {tuple(value.shape)}", by_line=by_line)
        total = value.detach().to(_wide(value) if _has_fraction(value) else value.dtype, copy=True)
        return _add_up(total, control, what).to(value.dtype)
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
        (counts,) = control.add(f"run.mean of {value.dtype} {tuple(value.shape)}", count, by_line=True)
        wide = value.detach().to(_wide(value), copy=True)
        mean = _add_up(wide.mul_(count) if count else wide.zero_(), control, "run.mean") / counts
        return mean.to(value.dtype if _has_fraction(value) else torch.get_default_dtype())
    total, counts = control.add("run.mean", value * count if count else 0.0, count, by_line=True)
    return total / counts if counts else float("nan")


def _has_fraction(value: torch.Tensor) -> bool:
    return value.is_floating_point() or value.is_complex()


def _wide(value: torch.Tensor) -> torch.dtype:
    return torch.promote_types(value.dtype, torch.float64 if value.device.type == "cpu" else torch.float32)


def _add_up(mine: torch.Tensor, control: Control, what: str) -> torch.Tensor:
    total = mine.contiguous()  # nccl takes no other
    with control.inside(what):
        dist.all_reduce(total)
    return total


def gather(value: Any, control: Control | None, what: str) -> list[Any]:
    """What each rank gave on this line, by rank. A collective; any value that can be pickled."""
    return [value] if control is None else control.gather(what, value, by_line=True)
