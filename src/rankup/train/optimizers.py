"""The optimizers of ``--optimizer``. They use torch's fused kernel if there is one: one pass over all parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.optim import SGD, Adadelta, Adam, Optimizer

from rankup.errors import RankupError
from rankup.train.learning_rate import learning_rate
from rankup.train.options import TrainOptions


def optimizer_for(options: TrainOptions) -> Callable[[list[nn.Parameter]], Optimizer]:
    """A function of the parameters, for ``run.prepare``."""
    rate = learning_rate(options)
    if options.optimizer == "adam":
        return lambda parameters: Adam(
            parameters, lr=rate, weight_decay=options.weight_decay, fused=options.fused
        )
    if options.optimizer == "sgd":
        return lambda parameters: SGD(
            parameters,
            lr=rate,
            momentum=options.momentum,
            weight_decay=options.weight_decay,
            nesterov=options.nesterov,
            fused=_fused_sgd(options, parameters),
        )
    return lambda parameters: Adadelta(parameters, lr=rate, weight_decay=options.weight_decay)


def _fused_sgd(options: TrainOptions, parameters: list[Any]) -> bool:
    """torch has no fused kernel of SGD for sharded parameters (fsdp, tp)."""
    given = [p for part in parameters for p in (part["params"] if isinstance(part, dict) else [part])]
    sharded = any(hasattr(parameter, "to_local") for parameter in given)
    if options.fused and sharded and "fused" in options.given:
        raise RankupError(
            "no-fused-sgd",
            f"torch has no fused kernel of sgd for sharded parameters, which {options.strategy} has",
            hint="leave --fused out, or --optimizer adam",
        )
    return options.fused and not sharded
