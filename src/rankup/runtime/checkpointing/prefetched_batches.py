"""Batches that a script takes before it trains on them: it holds the next one, makes a list, or has a thread for it.

While a batch is trained, its place in the order and its weight are those of the batch that was taken last. A snapshot
counts batches as done that were not trained, and where ranks have uneven shares another batch's weight is used. Seen
from here, the first body takes no step of an optimizer, and some steps come after the last body. A thread that takes
the batches would also save while another one trains: that is an error at the first step.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from rankup.errors import RankupError
from rankup.runtime.call_site import call_site
from rankup.runtime.checkpointing.carried.messages import warn
from rankup.runtime.context import RunContext
from rankup.strategies.inner_optimizers import with_inner

# Of fewer bodies, one step for all of them after the loop looks like one for each.
FEWEST_BODIES = 3


@dataclass
class Bodies:
    """Of an epoch, or of a loop; and the steps of optimizers since it began."""

    done: int = 0
    idle_first: bool = False
    steps: int = 0

    def body_done(self) -> None:
        self.done += 1
        if self.done == 1:
            self.idle_first = self.steps == 0


class PrefetchedBatches:
    """Of one run: one warning on rank 0, and on each rank the error ``batches-in-thread``."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._optimizers: set[int] = set()
        self._hook: Any = None
        self._thread = threading.current_thread()  # that takes the batches
        self._epoch, self._loop = Bodies(), Bodies()
        self._over = False  # the loop
        self._steps_inside = 0  # of the epoch's loop
        self._said = False

    def watch(self, stack: ExitStack) -> None:
        """A loop begins."""
        if self._hook is not None:
            self._hook.remove()
        self._epoch, self._loop, self._over = Bodies(), Bodies(), False
        self._optimizers = {id(each) for opt in self._run.optimizers for each in with_inner(opt)}
        self._thread = threading.current_thread()
        self._hook = register_optimizer_step_pre_hook(self._before_step)
        stack.callback(self._loop_done)

    def epoch_begins(self) -> None:
        """The first batch of an epoch is asked for."""
        self._thread = threading.current_thread()

    def step_done(self) -> None:
        """A body has ended, by asking for the next batch."""
        self._epoch.body_done()
        self._loop.body_done()

    def epoch_trained(self) -> None:
        self._steps_inside = self._epoch.steps

    def epoch_done(self) -> None:
        """The code after the inner loop has run."""
        epoch, self._epoch = self._epoch, Bodies()
        after = epoch.steps - self._steps_inside
        if epoch.idle_first and after and epoch.done > 1 and epoch.steps % epoch.done == 0:
            self._warn(f"{after} came after the last one")

    def _loop_done(self) -> None:
        loop = self._loop
        self._over = True
        # The last batch of run.steps may still be held, or all of them: then the next steps are theirs.
        if loop.done < FEWEST_BODIES or not loop.idle_first or loop.steps not in (0, loop.done - 1):
            self._hook.remove()

    def _before_step(self, optimizer: Optimizer, *_: Any) -> None:
        if id(optimizer) not in self._optimizers:
            return
        self._loop.steps += 1
        if not self._over:
            self._check_thread()
            self._epoch.steps += 1
        elif self._loop.steps == self._loop.done:
            self._hook.remove()
            self._warn("the last one came after the loop")

    def _check_thread(self) -> None:
        here = threading.current_thread()
        # One that Python did not start is autograd's: an optimizer's step may be a hook of its backward.
        if here is self._thread or isinstance(here, threading._DummyThread):
            return
        raise RankupError(
            "batches-in-thread",
            f"batches are taken in the thread {self._thread.name!r} and trained in {here.name!r}: the first is ahead, "
            "so a snapshot counts batches as trained that were not, and is taken while the weights change",
            hint="take each batch where it is trained, for batch in epoch: …; num_workers= loads batches ahead",
            exit_code=1,
        )

    def _warn(self, behind: str) -> None:
        if self._said or not self._run.world.is_main:
            return
        self._said = True
        warn(
            f"the loop at {call_site()} takes batches before it trains on them: the first took no step, and {behind}. "
            "rankup counts a batch as trained when the next one is asked for: a resume leaves out those between, and "
            "on several ranks a batch gets the weight of another one. Take each batch when it is trained, "
            "for batch in epoch: …; num_workers= loads them ahead"
        )
