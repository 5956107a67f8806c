"""Behind ``run.batches``: each sample once over all ranks, with gradients off, while the run may be told to stop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from rankup.runtime.loaders import Feed

if TYPE_CHECKING:
    from rankup.runtime.run import Run


def visit(run: Run, feed: Feed, asks: Iterator[None]) -> Iterator[Any]:
    """The batches of ``feed``; asking whether to stop (``asks``) is a collective that each rank joins as often,
    however many batches it has or looks at.
    """
    outer, gradients = run.batch, torch.is_grad_enabled()
    # Off, not only for speed: a forward that DDP expects a backward of may be a collective.
    torch.set_grad_enabled(False)
    try:
        for batch in feed.batches(0, 0):
            run.batch = batch
            yield batch.value
            run.batch = outer
            next(asks, None)
    except GeneratorExit:  # the loop was left by a break
        run.batch = outer
        list(asks)
        raise
    finally:
        run.batch = outer
        torch.set_grad_enabled(gradients)
    list(asks)
