"""Optimizers that train without a loop of ``run.steps`` or ``run.epochs``, as in reinforcement learning often: a script
that asks for snapshots gets none there, and is warned of once.
"""

from __future__ import annotations

from typing import Any

from torch.optim import Optimizer

from rankup.runtime.checkpointing.carried.messages import warn

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
