"""Batches that a script takes before it trains on them: a prefetcher that holds the next one, ``list(epoch)``.

While a batch is trained, its place in the order and its weight are those of the batch that was taken last. A snapshot
counts batches as done that were not trained, and where ranks have uneven shares another batch's weight is used. Seen
from here, the first body of the epoch takes no step of an optimizer, and some come after its last one.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from rankup.runtime.call_site import call_site
from rankup.runtime.checkpointing.carried.messages import warn
from rankup.runtime.context import RunContext
from rankup.strategies.inner_optimizers import with_inner


class PrefetchedBatches:
    """Of one run, on rank 0: one warning at the end of an epoch of ``run.epochs``."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._optimizers: set[int] = set()
        self._said = False
        self._begin()

    def _begin(self) -> None:
        """The next epoch begins."""
        self._bodies = 0
        self._idle_first = False
        self._steps = 0  # of optimizers
        self._steps_inside = 0

    def watch(self, stack: ExitStack) -> None:
        """A loop begins."""
        self._begin()
        if self._run.world.is_main and not self._said:
            self._optimizers = {id(each) for opt in self._run.optimizers for each in with_inner(opt)}
            stack.callback(register_optimizer_step_post_hook(self._stepped).remove)

    def _stepped(self, optimizer: Optimizer, *_: Any) -> None:
        self._steps += id(optimizer) in self._optimizers

    def step_done(self) -> None:
        """A body has ended, by asking for the next batch."""
        self._bodies += 1
        if self._bodies == 1:
            self._idle_first = self._steps == 0

    def epoch_trained(self) -> None:
        self._steps_inside = self._steps

    def epoch_done(self) -> None:
        """The code after the inner loop has run."""
        bodies, idle, steps, after = (
            self._bodies,
            self._idle_first,
            self._steps,
            self._steps - self._steps_inside,
        )
        self._begin()
        if self._said or not idle or not after or bodies < 2 or steps % bodies:
            return
        self._said = True
        warn(
            f"the loop at {call_site()} takes batches of the epoch before it trains on them: the first took no step, "
            f"and {after} came after the last one. rankup counts a batch as trained when the next one is asked for: a "
            "resume leaves out those between, and on several ranks a batch gets the weight of another one. Take each "
            "batch when it is trained, for batch in epoch: …; num_workers= loads them ahead"
        )
