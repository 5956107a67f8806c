"""The optimizers of ``--optimizer``. They use torch's fused kernel if there is one: one pass over all parameters."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn
from torch.optim import SGD, Adadelta, Adam, Optimizer

from rankup.train.options import TrainOptions
from rankup.train.rates import learning_rate


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
            fused=options.fused,
        )
    return lambda parameters: Adadelta(parameters, lr=rate, weight_decay=options.weight_decay)
