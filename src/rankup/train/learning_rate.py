"""The learning rate for the global batch, if ``--lr-rule`` is given, and its warm-up. The default changes nothing."""

from __future__ import annotations

import math

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LinearLR

from rankup.train.options import TrainOptions


def learning_rate(options: TrainOptions) -> float:
    """``--lr``, scaled by ``--lr-rule`` from ``--base-batch`` to ``--global-batch``.

    ``linear`` keeps the change per sample, for SGD (Goyal et al. 2017). ``sqrt`` keeps the noise of a step, for Adam
    and similar optimizers (Malladi et al. 2022). ``none`` does not scale.
    """
    if options.lr_rule == "none" or options.base_batch is None:
        return options.lr
    factor = options.global_batch / options.base_batch
    return options.lr * (factor if options.lr_rule == "linear" else math.sqrt(factor))


def describe_rate(options: TrainOptions) -> str:
    """One line about the rule and the warm-up; "" without them."""
    parts = []
    if options.lr_rule != "none":
        parts.append(
            f"learning rate {options.lr:g} → {learning_rate(options):g} "
            f"({options.lr_rule}, global batch {options.base_batch} → {options.global_batch})"
        )
    if options.warmup:
        parts.append(f"warm-up over {options.warmup} steps")
    return ", ".join(parts)


def warmup_for(options: TrainOptions, optimizer: Optimizer) -> LinearLR | None:
    """A schedule that steps after each optimizer step, from 1/warmup of the rate to all of it. None without one."""
    if options.warmup < 2:  # with a warm-up of one step, the first step has the whole rate
        return None
    return LinearLR(optimizer, start_factor=1 / options.warmup, total_iters=options.warmup - 1)
