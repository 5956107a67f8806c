"""Checks of the arguments of ``run.backward``, and its errors."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import nn

from rankup.core.whole_lines import warn
from rankup.errors import RankupError
from rankup.strategies import Strategy
from rankup.strategies.clipping import local

REDUCTIONS = ("mean", "sum", "global")


def check_reduction(
    reduction: str, count: object, strategy: Strategy, accumulate: int, gathered: int
) -> None:
    """An error for arguments that exclude each other; ``gathered``: calls of run.gather with gradients in this body."""
    if reduction not in REDUCTIONS:
        raise RankupError(
            "bad-reduction",
            f"run.backward(loss, reduction={reduction!r}) is unknown",
            hint=f"one of {', '.join(REDUCTIONS)}",
            exit_code=1,
        )
    if count is not None and reduction != "mean":
        raise RankupError(
            "count-and-reduction",
            f'count= is for a mean over so many units, and this loss is a "{reduction}"',
            hint="divide a sum by its count, and pass count=; or leave count= out",
            exit_code=1,
        )
    if reduction == "global":
        strategy.check("global_loss")
    if reduction == "global" and accumulate > 1:
        raise RankupError(
            "global-loss-in-parts",
            "no process has the outputs of the whole global batch, which is computed in "
            f"accumulate={accumulate} micro-batches",
            hint="leave it out for a loss over the whole global batch",
            exit_code=1,
        )
    if reduction == "global" and not gathered:
        raise RankupError(
            "global-without-gather",
            'reduction="global" is for a loss of the whole global batch, but nothing was gathered in this step',
            hint="outputs = run.gather(model(x)): all ranks' rows, with gradients",
            exit_code=1,
        )


def units_of(count: float | torch.Tensor) -> float:
    """``count`` as a number; waits for the device if it is a tensor there."""
    if isinstance(count, torch.Tensor) and count.numel() != 1:
        raise RankupError(
            "bad-count",
            f"count= is one number, and this tensor has the shape {tuple(count.shape)}",
            hint="(targets != padding).sum(), or weight[targets].sum()",
            exit_code=1,
        )
    units = float(count)
    if not math.isfinite(units) or units < 0:
        raise RankupError(
            "bad-count",
            f"count={units} is invalid: it is what the loss is a mean over",
            hint="0 or more: tokens, targets that are not ignored, the sum of their class weights",
            exit_code=1,
        )
    return units


def scale_gradients(models: Iterable[nn.Module], factor: float) -> None:
    """Multiply every gradient of ``models`` in place."""
    found = [p.grad for model in models for p in model.parameters() if p.grad is not None]
    gradients = [piece for piece in map(local, found) if piece.numel()]
    if gradients and factor != 1.0:
        torch._foreach_mul_(gradients, factor)


def warn_uncounted(loss: torch.Tensor) -> None:
    """Warn if a loss with a count of 0 is not 0: it is not used. Waits for the device."""
    value = float(loss.detach())
    if math.isfinite(value) and value:
        warn(
            f"count= is 0 on this rank and its loss is {value:g}: nothing of it is used. count= must count everything "
            'that the loss holds; for a sum divided by a number of your own: run.backward(loss, reduction="sum")'
        )


def mixed_counts() -> RankupError:
    return RankupError(
        "mixed-counts",
        "with accumulate= one run.backward(loss, count=…) per micro-batch, or none, can be divided by all counts",
        hint="pass count= in every micro-batch and add the losses up before; or leave accumulate= out",
        exit_code=1,
    )
