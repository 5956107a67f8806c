"""``opt.step(closure)``: if an optimizer decides by the loss, all ranks must decide in the same way.

LBFGS ends its iterations and chooses the length of a step by the loss that the closure returns. With its own loss each
rank would take other steps, so the optimizer gets the loss of the global batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import LBFGS, Optimizer

from rankup.errors import RankupError
from rankup.runtime.loop.gradients import Gradients
from rankup.strategies import Strategy


def share_losses(optimizer: Optimizer, gradients: Gradients) -> None:
    """From now on closures give ``optimizer`` the loss of the global batch. Each call is a collective."""

    def before_step(_: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if callable(kwargs.get("closure")):
            return args, {**kwargs, "closure": shared(kwargs["closure"])}
        if len(args) > 1 and callable(args[1]):
            return (args[0], shared(args[1]), *args[2:]), kwargs
        return None

    def shared(closure: Callable[[], Any]) -> Callable[[], Any]:
        def whole() -> Any:
            weights: set[float] = set()
            gradients.weights = weights
            try:
                loss = closure()
            finally:
                gradients.weights = None
            return _shared_loss(gradients, loss, weights)

        return whole

    optimizer.register_step_pre_hook(before_step)


def check_closures(
    optimizer: Optimizer, strategy: Strategy, gradients: Gradients, *, accumulate: int, clip: float | None
) -> None:
    """An error for what LBFGS cannot do: it computes the whole step's loss and gradient several times per step."""
    if not isinstance(optimizer, LBFGS):
        return
    strategy.check("lbfgs")
    for given, what, hint in (
        (accumulate > 1, f"accumulate={accumulate}", "leave it out: a closure sees one micro-batch only"),
        (clip is not None, f"clip={clip}", "clip in the closure, after backward"),
        (gradients.scaler is not None, "fp16", "fp32 or bf16: it cannot leave out a step that overflowed"),
        (gradients.weigh_losses, "sync_batchnorm", "leave it out"),
    ):
        if given:
            raise RankupError("not-with-lbfgs", f"LBFGS cannot be used with {what}", hint=hint)


def _shared_loss(gradients: Gradients, loss: Any, weights: set[float]) -> Any:
    """What a closure returned, of the global batch: the mean over ranks, weighed as its gradient was (``weights``)."""
    if loss is None or not isinstance(loss, (int, float, torch.Tensor)):
        return loss
    if len(weights) > 1:
        raise RankupError(
            "closure-losses",
            "the closure called run.backward for losses that are weighed differently, which do not add up to one loss "
            "of the global batch",
            hint="one run.backward per closure, for the loss that it returns",
            exit_code=1,
        )
    from rankup.runtime.distributed.reduce import reduce_sum

    weight = next(iter(weights), gradients.sample_weight) / gradients.replicas
    return reduce_sum(_weighed(loss, weight), gradients.control, "the loss of a closure", by_line=False)


def _weighed(loss: Any, weight: float) -> Any:
    """``loss · weight``; 0 where it counts nothing, even if it is NaN."""
    if isinstance(loss, torch.Tensor):
        return loss.detach() * weight if weight else torch.zeros_like(loss.detach())
    return loss * weight if weight else 0.0
