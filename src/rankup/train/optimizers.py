"""The optimizers that a flag names; fused where torch has a fused kernel for it: one pass over the parameters."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn
from torch.optim import SGD, Adadelta, Adam, Optimizer

from rankup.train.options import TrainOptions


def optimizer_for(options: TrainOptions) -> Callable[[list[nn.Parameter]], Optimizer]:
    """A function of the parameters, as ``run.prepare`` wants it."""
    if options.optimizer == "adam":
        return lambda parameters: Adam(parameters, lr=options.lr, fused=True)
    if options.optimizer == "sgd":
        return lambda parameters: SGD(parameters, lr=options.lr, momentum=0.9, fused=True)
    return lambda parameters: Adadelta(parameters, lr=options.lr)
