"""Behind ``run.batches``: each sample once over all ranks, with gradients off, while the run may be told to stop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from rankup.runtime.loaders import Feed

if TYPE_CHECKING:
    from rankup.runtime.run import Run
    from rankup.runtime.survival import Survival


def visit(run: Run, feed: Feed, survival: Survival) -> Iterator[Any]:
    """The batches of ``feed``; asking whether to stop is a collective that each rank joins as often, however many
    batches it has or looks at.
    """
    outer, gradients = run.batch, torch.is_grad_enabled()
    asked = survival.asked(feed.steps)
    # Off, not only for speed: a forward that DDP expects a backward of may be a collective.
    torch.set_grad_enabled(False)
    try:
        for batch in feed.batches(0, 0):
            run.batch = batch
            yield batch.value
            run.batch = outer
            if next(asked, False):
                survival.leave()
    except GeneratorExit:  # a break: here nobody would hear an exception, and the next one who asks leaves
        run.batch = outer
        list(asked)
        raise
    finally:
        run.batch = outer
        torch.set_grad_enabled(gradients)
    if any(list(asked)):
        survival.leave()
