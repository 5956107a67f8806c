"""Optimizers that train without a loop of ``run.steps`` or ``run.epochs``, as in reinforcement learning often: a script
that asks for snapshots gets none there, and is warned of once. So is one that trains in ``run.epochs`` on the batches
of a loader of its own.
"""

from __future__ import annotations

from typing import Any

from torch.optim import Optimizer

from rankup.runtime.call_site import call_site
from rankup.runtime.checkpointing.carried.messages import warn
from rankup.runtime.context import RunContext

#: Fewer are taken before a loop, by a warm-up or by a schedule that wants a step.
STEPS = 32


class OutsideLoops:
    """Of one run, on rank 0: counts the steps of its optimizers until its first loop begins."""

    def __init__(self) -> None:
        self._steps = 0
        self._hooks: list[Any] = []
        self._ended = False

    def watch(self, optimizer: Optimizer | None) -> None:
        if optimizer is not None and not self._ended and hasattr(optimizer, "register_step_post_hook"):
            self._hooks.append(optimizer.register_step_post_hook(self._stepped))

    def end(self) -> None:
        """A loop begins, or it is said."""
        self._ended = True
        while self._hooks:
            self._hooks.pop().remove()

    def _stepped(self, *_: Any) -> None:
        self._steps += 1
        if self._steps < STEPS:
            return
        self.end()
        warn(
            f"{STEPS} steps of an optimizer were taken before any loop over run.steps or run.epochs: snapshots are "
            "saved in these loops alone, so this training has none, and a resume begins it anew. Loop over "
            "for batch in run.steps(data, steps=n), with run.register for what the script keeps (a replay buffer, the "
            "state of a game); or store run.state.state_dict() yourself"
        )


class OwnBatches:
    """Of one loop over ``run.epochs``, on rank 0."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._looks = run.world.is_main
        self._before = 0

    def begin(self) -> None:
        """An epoch is handed to the script."""
        self._before = self._versions() if self._looks else 0

    def end(self, *, iterated: bool) -> None:
        """The script has done with it."""
        if not self._looks or iterated or self._versions() == self._before:
            return
        self._looks = False
        warn(
            f"an epoch of run.epochs at {call_site()} was not iterated, and the weights have changed in it: batches of "
            "another loader are not divided among the ranks here, their steps are not counted, and a resume begins the "
            "epoch anew. Write for batch in epoch: …, over the data set that prepare got"
        )

    def _versions(self) -> int:
        return sum(parameter._version for model in self._run.models for parameter in model.parameters())
