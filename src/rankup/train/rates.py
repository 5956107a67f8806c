"""The learning rate of another global batch, where a rule is asked for, and its warm-up. Nothing changes by itself."""

from __future__ import annotations

import math

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LinearLR

from rankup.train.options import TrainOptions


def learning_rate(options: TrainOptions) -> float:
    """``--lr`` as ``--lr-rule`` scales it from ``--base-batch`` to ``--global-batch``.

    ``linear`` keeps the change per sample for SGD (Goyal et al. 2017), ``sqrt`` the noise of a step, for Adam and its
    kin (Malladi et al. 2022). ``none`` is ``--lr``, whatever the batch.
    """
    if options.lr_rule == "none" or options.base_batch is None:
        return options.lr
    factor = options.global_batch / options.base_batch
    return options.lr * (factor if options.lr_rule == "linear" else math.sqrt(factor))


def describe_rate(options: TrainOptions) -> str:
    """What the rule did, in a line; empty where there is none."""
    said = []
    if options.lr_rule != "none":
        said.append(
            f"learning rate {options.lr:g} → {learning_rate(options):g} "
            f"({options.lr_rule}, global batch {options.base_batch} → {options.global_batch})"
        )
    if options.warmup:
        said.append(f"warm-up over {options.warmup} steps")
    return ", ".join(said)


def warmup_for(options: TrainOptions, optimizer: Optimizer) -> LinearLR | None:
    """Steps after each optimizer step; from 1/warmup of the rate to all of it. None where not asked for."""
    if options.warmup < 2:  # the first step of a warm-up of one has the whole rate
        return None
    return LinearLR(optimizer, start_factor=1 / options.warmup, total_iters=options.warmup - 1)
